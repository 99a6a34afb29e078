"""Random streams: `Rngs`, a named set of streams of keys, each a key and a count of how often it was drawn from.

A stream's next key is `fold_in(key, count)`, so that a model's randomness is a function of its seeds and of what was
drawn before. `split_rngs` and `fork_rngs` make one stream into many, for `vmap` and `scan`.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import phalanx.numpy as jnp
from phalanx import random
from phalanx.core import dtypes
from phalanx.core.aval import ShapeDtypeStruct
from phalanx.core.errors import ArgumentError, ArgumentTypeError, TreeError
from phalanx.nnx import functional
from phalanx.nnx.filters import Filter, to_predicate
from phalanx.nnx.levels import described
from phalanx.nnx.objects import Object
from phalanx.nnx.variable import MISSING, Variable


class RngState(Variable):
    """A part of a random stream.

    Args:
      value, **metadata: as in `Variable`.

    Examples:
      >>> from phalanx import nnx
      >>> list(nnx.state(nnx.Rngs(0), nnx.RngState).default)
      ['count', 'key']
    """


class RngKey(RngState):
    """The key of a stream.

    Args:
      value, **metadata: as in `Variable`.

    Examples:
      >>> from phalanx import nnx
      >>> list(nnx.state(nnx.Rngs(0), nnx.RngKey).default)
      ['key']
    """


class RngCount(RngState):
    """How often a stream was drawn from.

    Args:
      value, **metadata: as in `Variable`.

    Examples:
      >>> from phalanx import nnx
      >>> rngs = nnx.Rngs(0)
      >>> _ = rngs()
      >>> int(nnx.state(rngs, nnx.RngCount).default.count.value)
      1
    """


class MissingStreamError(ArgumentError, AttributeError, KeyError):
    """An `Rngs` has no stream of a name, and no default.

    Args:
      where, expected, got, mend: as in `PhalanxError`.

    Examples:
      >>> from phalanx import nnx
      >>> try:
      ...     nnx.Rngs(params=0).dropout()
      ... except nnx.rnglib.MissingStreamError:
      ...     print("name a stream dropout")
      name a stream dropout
    """

    __str__ = ArgumentError.__str__


def _as_key(x: Any) -> Any:
    if isinstance(x, Variable):
        x = x.value
    if isinstance(x, int) or (hasattr(x, "ndim") and x.ndim == 0 and not _is_key(x)):
        return random.key(x)
    if isinstance(x, ShapeDtypeStruct):
        return x
    if not _is_key(x):
        if not hasattr(x, "dtype"):
            raise ArgumentTypeError(
                "a random stream",
                expected="a seed or a key",
                got=f"{x!r} of type {type(x).__name__}",
                mend="pass an integer, or a key of phalanx.random.key",
            )
        return random.wrap_key_data(x)
    return x


def _is_key(x: Any) -> bool:
    return isinstance(getattr(x, "dtype", None), dtypes.KeyDtype)


# The draws of `phalanx.random` that a stream offers as methods, its next key as the first argument.
DRAWS = tuple(
    "ball bernoulli beta binomial bits categorical cauchy chisquare choice dirichlet double_sided_maxwell exponential "
    "f gamma generalized_normal geometric gumbel laplace loggamma logistic lognormal maxwell multinomial "
    "multivariate_normal normal orthogonal pareto permutation poisson rademacher randint rayleigh t "
    "triangular truncated_normal uniform wald weibull_min".split()
)
# The initializers of `phalanx.nn` that it offers likewise: `rngs.lecun_normal()((3, 4))`.
INITIALIZERS = tuple(
    "delta_orthogonal glorot_normal glorot_uniform he_normal he_uniform kaiming_normal kaiming_uniform lecun_normal "
    "lecun_uniform variance_scaling xavier_normal xavier_uniform".split()
)


class _Draws:
    """The methods that draw: for each function of `phalanx.random` one that gives it the stream's next key."""

    __slots__ = ()


def _drawing(name: str) -> Callable:
    def draw(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(random, name)(self(), *args, **kwargs)

    draw.__name__ = name
    draw.__doc__ = f"`random.{name}` with the next key."
    return draw


def _initializing(name: str) -> Callable:
    def draw(self: Any, *args: Any, **kwargs: Any) -> Any:
        from phalanx.nn import initializers

        initializer = getattr(initializers, name)(*args, **kwargs)
        return lambda shape, *rest, **named: initializer(self(), shape, *rest, **named)

    draw.__name__ = name
    draw.__doc__ = f"`initializers.{name}`, with the next key at each call of what it gives."
    return draw


for _name in DRAWS:
    setattr(_Draws, _name, _drawing(_name))
for _name in INITIALIZERS:
    setattr(_Draws, _name, _initializing(_name))


class RngStream(Object, _Draws):
    """One stream of keys.

    Args:
      key: a key, or a seed.
      tag: the stream's name, which filters know it by.

    Examples:
      >>> from phalanx import nnx
      >>> stream = nnx.RngStream(0, tag="dropout")
      >>> _ = stream()
      >>> int(stream.count.value)
      1
    """

    def __init__(self, key: Any, *, tag: str):
        key = _as_key(key)
        shape = () if isinstance(key, ShapeDtypeStruct) else key.shape
        self.tag = tag
        self.key = RngKey(key, tag=tag)
        self.count = RngCount(jnp.zeros(shape, jnp.uint32), tag=tag)

    def __call__(self) -> Any:
        """The next key.

        Returns:
          A random key.
        """
        key, count = self.key.value, self.count.value
        if key.shape:
            raise ArgumentError(
                f"{described(self)}, a draw from the stream {self.tag!r}",
                expected="a stream with one key",
                got=f"one that was split into keys of shape {key.shape}",
                mend="draw inside nnx.vmap or nnx.scan over the split stream",
            )
        self.count.value = count + 1
        return random.fold_in(key, count)

    def split(self, k: int | tuple[int, ...]) -> RngStream:
        """A stream of `k` keys, for `k` examples of a mapped function; this one advances.

        Args:
          k: how many keys, or the shape of an array of them.

        Returns:
          The stream.
        """
        return type(self)(random.split(self(), k), tag=self.tag)

    def fork(self, *, split: int | tuple[int, ...] | None = None) -> RngStream:
        """An independent stream, of `split` keys if given; this one advances.

        Args:
          split: how many keys, or the shape of an array of them; None for one.

        Returns:
          The stream.
        """
        key = self()
        return type(self)(key if split is None else random.split(key, split), tag=self.tag)

    def broadcast(self, k: int | tuple[int, ...] | None = None) -> RngStream:
        """An independent stream whose key is repeated `k` times; this one advances.

        Args:
          k: how often, or the shape of an array of keys; None for one key.

        Returns:
          The stream.
        """
        key = self()
        shape = () if k is None else (k,) if isinstance(k, int) else tuple(k)
        return type(self)(jnp.broadcast_to(key, shape) if shape else key, tag=self.tag)


class Rngs(Object, _Draws):
    """Named streams of random keys; a name that has none of its own draws from `default`.

    Args:
      default: a seed or key for the stream `default`, or a mapping with all streams.
      **rngs: seeds, keys or streams by name.

    Raises:
      MissingStreamError: a stream is asked for that is not there, and there is no default.

    Examples:
      >>> from phalanx import nnx
      >>> rngs = nnx.Rngs(0, dropout=1)
      >>> bool((rngs.params() == rngs.default()).all()), sorted(rngs)
      (False, ['default', 'dropout'])
    """

    def __init__(self, default: Any = None, **rngs: Any):
        if isinstance(default, Mapping):
            rngs = {**default, **rngs}
        elif default is not None:
            rngs["default"] = default
        for name, key in rngs.items():
            stream = key if isinstance(key, RngStream) else RngStream(key, tag=name)
            setattr(self, name, stream)

    def _stream(self, name: str) -> RngStream:
        streams = self.__dict__
        stream = streams.get(name) or streams.get("default")
        if stream is None:
            raise MissingStreamError(
                f"{described(self)}, stream {name!r}",
                expected=f"one of the streams {sorted(streams)}" if streams else "a stream",
                got=repr(name),
                mend=f"make it with nnx.Rngs({name}=seed), or give a default stream with nnx.Rngs(seed)",
            )
        return stream

    def __getattr__(self, name: str) -> RngStream:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._stream(name)

    def __getitem__(self, name: str) -> RngStream:
        return self._stream(name)

    def __contains__(self, name: object) -> bool:
        return name in self.__dict__

    def __iter__(self) -> Iterator[str]:
        return iter(self.__dict__)

    def __len__(self) -> int:
        return len(self.__dict__)

    def __call__(self) -> Any:
        """The next key of the default stream.

        Returns:
          A random key.
        """
        return self._stream("default")()

    def items(self) -> Iterator[tuple[str, RngStream]]:
        """The streams by name.

        Yields:
          Pairs (name, stream).
        """
        yield from self.__dict__.items()

    def fork(self, /, *, split: Any = None) -> Rngs:
        """Independent streams, of `split` keys if given; these advance.

        Args:
          split: how many keys: for all streams, or for those of a filter in a mapping of filters.

        Returns:
          The `Rngs`.
        """
        return Rngs(**{k: s.fork(split=n) for k, s, n in self._counted(split)})

    def split(self, k: Any) -> Rngs:
        """Streams of `k` keys, for `k` examples of a mapped function; these advance.

        Args:
          k: how many: for all streams, or for those of a filter in a mapping of filters.

        Returns:
          The `Rngs`.
        """
        return self.fork(split=k)

    def broadcast(self, k: Any) -> Rngs:
        """Independent streams whose keys are repeated `k` times; these advance.

        Args:
          k: how often: for all streams, or for those of a filter in a mapping of filters.

        Returns:
          The `Rngs`.
        """
        return Rngs(**{name: s.broadcast(n) for name, s, n in self._counted(k)})

    def _counted(self, split: Any) -> list[tuple[str, RngStream, Any]]:
        return [(name, s, _count_for(split, (name,), s)) for name, s in self.__dict__.items()]


def _count_for(split: Any, path: tuple, stream: RngStream) -> Any:
    """How many keys a stream is to have."""
    if not isinstance(split, Mapping):
        return split
    for filter, count in split.items():
        if to_predicate(filter)(path, stream.key) or filter == path[-1]:
            return count
    return None


class SplitBackups(contextlib.AbstractContextManager):
    """The streams as they were before they were split; as a context manager it brings them back at the end.

    Args:
      backups: for each stream itself, its key and its count.
    """

    def __init__(self, backups: list[tuple[RngStream, Any, Any]]):
        self.backups = backups

    def __exit__(self, *_: Any) -> None:
        restore_rngs(self)


def restore_rngs(backups: SplitBackups, /) -> None:
    """Bring streams back to one key.

    Args:
      backups: what `split_rngs` or `fork_rngs` gave.

    Examples:
      >>> from phalanx import nnx
      >>> rngs = nnx.Rngs(0)
      >>> backups = nnx.split_rngs(rngs, splits=3)
      >>> nnx.restore_rngs(backups)
      >>> rngs.default.key.shape
      ()
    """
    for stream, key, count in backups.backups:
        stream.key.value, stream.count.value = key, count


def _streams(node: Any) -> Iterator[tuple[tuple, RngStream]]:
    for path, value in functional.iter_graph(node):
        if isinstance(value, RngStream):
            yield path, value


def split_rngs(
    node: Any = MISSING,
    /,
    *,
    splits: int | tuple[int, ...],
    only: Filter = ...,
    squeeze: bool = False,
    graph: bool | None = None,
    graph_updates: bool | None = None,
) -> Any:
    """Make each random stream in a module one of many keys, for `vmap` or `scan` over them.

    Args:
      node: a module, or a tree of modules, changed in place; left out, a decorator is given, which does this to the
        arguments of each call and undoes it afterwards.
      splits: how many keys.
      only: which streams.
      squeeze: drop the new dimension, which must have the size 1.
      graph, graph_updates: taken for compatibility.

    Returns:
      `SplitBackups`, with which `restore_rngs` undoes it.

    Raises:
      ArgumentError: `squeeze` with several keys.

    Examples:
      >>> from phalanx import nnx
      >>> rngs = nnx.Rngs(0)
      >>> with nnx.split_rngs(rngs, splits=3):
      ...     rngs.default.key.shape
      (3,)
    """
    if node is MISSING:
        return _around(lambda args: split_rngs(args, splits=splits, only=only, squeeze=squeeze))
    if squeeze and splits not in (1, (1,)):
        raise ArgumentError(
            "split_rngs, argument squeeze",
            expected="splits=1, since the new dimension is dropped",
            got=f"splits={splits}",
            mend="pass splits=1, or squeeze=False",
        )
    predicate = to_predicate(only)
    backups = []
    for path, stream in _streams(node):
        if predicate((*path, "key"), stream.key):
            key = stream()
            backups.append((stream, stream.key.value, stream.count.value))
            keys = random.split(key, splits)
            stream.key.value = keys[0] if squeeze else keys
            stream.count.value = jnp.zeros(stream.key.value.shape, jnp.uint32)
    return SplitBackups(backups)


def fork_rngs(
    node: Any = MISSING, /, *, split: Any = None, graph: bool | None = None, graph_updates: bool | None = None
) -> Any:
    """Give each random stream in a module a key of its own, or several, drawn from it.

    Args:
      node: a module, or a tree of modules, changed in place; left out, a decorator is given, which does this to the
        arguments of each call and undoes it afterwards.
      split: how many keys: for all streams, or for those of a filter in a mapping of filters.
      graph, graph_updates: taken for compatibility.

    Returns:
      `SplitBackups`, with which `restore_rngs` undoes it.

    Examples:
      >>> from phalanx import nnx
      >>> rngs = nnx.Rngs(0)
      >>> with nnx.fork_rngs(rngs, split=3):
      ...     rngs.default.key.shape
      (3,)
    """
    if node is MISSING:
        return _around(lambda args: fork_rngs(args, split=split))
    backups = []
    for path, stream in _streams(node):
        count = _count_for(split, path, stream)
        key = stream()
        backups.append((stream, stream.key.value, stream.count.value))
        stream.key.value = key if count is None else random.split(key, count)
        stream.count.value = jnp.zeros(stream.key.value.shape, jnp.uint32)
    return SplitBackups(backups)


def _around(change: Callable[[Any], SplitBackups]) -> Callable:
    def decorate(fun: Callable) -> Callable:
        @functools.wraps(fun)
        def changed(*args: Any, **kwargs: Any) -> Any:
            with change((args, kwargs)):
                return fun(*args, **kwargs)

        return changed

    return decorate


def reseed(node: Any, /, *, graph: bool | None = None, policy: Any = "scalars_only", **stream_keys: Any) -> None:
    """Give random streams new keys, and start their counts again.

    Args:
      node: a module, or a tree of modules.
      policy: what to do with a stream of several keys: "scalars_only" refuses it, "match_shape" splits the new key,
        a function `(path, key, shape) -> keys` says it.
      **stream_keys: seeds or keys by the name of the stream.
      graph: taken for compatibility.

    Raises:
      TreeError: a stream has several keys, under "scalars_only".

    Examples:
      >>> from phalanx import nnx
      >>> rngs = nnx.Rngs(0)
      >>> nnx.reseed(rngs, default=7)
    """
    source = Rngs(**stream_keys)  # each stream of a name gets a key of its own
    for path, stream in _streams(node):
        if stream.tag not in stream_keys:
            continue
        key, shape = source[stream.tag](), stream.key.value.shape
        if callable(policy):
            key = policy(path, key, shape)
        elif shape and policy == "match_shape":
            key = random.split(key, shape)
        elif shape and policy == "scalars_only":
            raise TreeError(
                f"reseed, stream {stream.tag!r}",
                expected="a stream with one key, under policy='scalars_only'",
                got=f"one with keys of shape {shape}",
                mend="pass policy='match_shape'",
            )
        elif shape or policy not in ("scalars_only", "match_shape"):
            raise ArgumentTypeError(
                "reseed, argument policy",
                expected="'scalars_only', 'match_shape' or a function",
                got=repr(policy),
                mend="choose one of these",
            )
        stream.key.value = key
        stream.count.value = jnp.zeros(key.shape, jnp.uint32)


def with_rngs(
    node: Any = MISSING,
    /,
    *,
    split: Any = None,
    fork: Filter | Sequence[Filter] = None,
    broadcast: Any = None,
    only: Filter = ...,
    graph: bool | None = None,
    graph_updates: bool | None = None,
) -> Any:
    """A module with other random streams in the place of its own, which advance; all else is shared with the module.

    Args:
      node: a module, or a tree of modules; left out, a decorator is given, which does this to the arguments of a call.
      split: how many keys streams are split into: for all, or for those of a filter in a mapping of filters.
      fork: which streams become independent ones.
      broadcast: how often keys are repeated: for all streams, or for those of a filter in a mapping of filters.
      only: which streams any of this is for.
      graph, graph_updates: taken for compatibility.

    Returns:
      The module, or a decorator.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.with_rngs(nnx.Rngs(0, params=1), split={"params": 3}).params.key.shape
      (3,)
    """
    if node is MISSING:

        def decorate(fun: Callable) -> Callable:
            @functools.wraps(fun)
            def changed(*args: Any, **kwargs: Any) -> Any:
                own, named = with_rngs((args, kwargs), split=split, fork=fork, broadcast=broadcast, only=only)
                return fun(*own, **named)

            return changed

        return decorate
    forked = fork if isinstance(fork, list | tuple) else () if fork is None else (fork,)
    means = to_predicate(only)
    made = functional.clone(node, variables=False)
    for path, stream in list(_streams(made)):
        if not means((*path, "key"), stream.key):
            continue
        if (count := _count_for(split, path, stream)) is not None:
            new = stream.split(count)
        elif (count := _count_for(broadcast, path, stream)) is not None:
            new = stream.broadcast(count)
        elif _count_for(dict.fromkeys(forked, True), path, stream):
            new = stream.fork()
        else:
            continue
        stream.key, stream.count = new.key, new.count
    return made
