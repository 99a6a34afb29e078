"""Random streams: `Rngs` is a set of named streams, each of which consists of a key and a counter.

The next key of a stream is `fold_in(key, count)`, so that the random numbers of a model are a function of its seeds and
of the number of earlier draws. `split_rngs` and `fork_rngs` turn one stream into many, for `vmap` and `scan`.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from phalanx import nn, numpy as jnp, random
from phalanx.core import ArgumentError, ArgumentTypeError, ConversionError, ShapeDtypeStruct, TreeError, dtypes
from phalanx.nnx.filters import Filter, to_predicate
from phalanx.nnx.graph_mode import GraphMode, resolve_mode
from phalanx.nnx.graphlib import Path, clone, iter_graph
from phalanx.nnx.objects import Pytree, get_attributes
from phalanx.nnx.trace_level import describe
from phalanx.nnx.variable import MISSING, Variable, unwrap
from phalanx.typing import Array, ArrayLike, PRNGKey, PyTree

KeyCount: TypeAlias = int | tuple[int, ...]
"""A number of keys, or the shape of an array of keys."""

KeyCounts: TypeAlias = KeyCount | Mapping[Filter, KeyCount] | None
"""A number of keys for all streams, or one for the streams that each filter matches; None for no change."""


class RngState(Variable):
    """A part of a random stream.

    Args:
      value, **metadata: as in `Variable`.

    Examples:
      >>> from phalanx import nnx
      >>> list(nnx.state(nnx.Rngs(0), nnx.RngState).default)
      ['count', 'key']
    """

    @classmethod
    def counted_type(cls) -> type[RngState]:
        """`RngState`: keys and counts are shown together."""
        return RngState


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
    """The number of draws from a stream.

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
    """An `Rngs` has no stream of the requested name, and no stream `default`.

    Args:
      where, expected, got, fix: as in `PhalanxError`.

    Examples:
      >>> from phalanx import nnx
      >>> try:
      ...     nnx.Rngs(params=0).dropout()
      ... except nnx.rnglib.MissingStreamError:
      ...     print("there is no stream dropout")
      there is no stream dropout
    """

    __str__ = ArgumentError.__str__  # KeyError would show the repr of the message


def _to_key(x: ArrayLike | Variable) -> Any:
    """A key from a seed, a key, or the data of a key."""
    x = unwrap(x)
    # A scalar is a seed. An array of integers is the data of a key, as `random.key_data` returns it.
    if isinstance(x, int) or (hasattr(x, "ndim") and x.ndim == 0 and not _is_key(x)):
        return random.key(x)
    # A shape stands for a key while `eval_shape` builds a model from abstract arguments.
    if isinstance(x, ShapeDtypeStruct) or _is_key(x):
        return x
    if not hasattr(x, "dtype"):
        raise ConversionError(
            "a random stream",
            expected="a seed or a key",
            got=f"{x!r} of type {type(x).__name__}",
            fix="pass an integer, as in nnx.Rngs(0), or a key made by phalanx.random.key",
        )
    return random.wrap_key_data(x)


def _is_key(x: object) -> bool:
    return isinstance(getattr(x, "dtype", None), dtypes.KeyDtype)


# Functions of `phalanx.random` that are methods of streams: `rngs.params.normal(shape)`.
DRAWS = tuple(
    "ball bernoulli beta binomial bits categorical cauchy chisquare choice dirichlet double_sided_maxwell exponential "
    "f gamma generalized_normal geometric gumbel laplace loggamma logistic lognormal maxwell multinomial "
    "multivariate_normal normal orthogonal pareto permutation poisson rademacher randint rayleigh t "
    "triangular truncated_normal uniform wald weibull_min".split()
)
# Initializers of `phalanx.nn` that are methods of streams: `rngs.params.lecun_normal()(shape)`.
INITIALIZERS = tuple(
    "delta_orthogonal glorot_normal glorot_uniform he_normal he_uniform kaiming_normal kaiming_uniform lecun_normal "
    "lecun_uniform variance_scaling xavier_normal xavier_uniform".split()
)


class _DrawMethods:
    """The methods of streams that draw random numbers: functions of `phalanx.random` without their key argument."""

    __slots__ = ()


def _make_draw(name: str) -> Callable:
    def draw(self: Any, *args: Any, **kwargs: Any) -> Array:
        return getattr(random, name)(self(), *args, **kwargs)

    draw.__doc__ = f"`random.{name}` with the next key."
    return draw


def _make_initializer(name: str) -> Callable:
    def draw(self: Any, *args: Any, **kwargs: Any) -> Callable:
        initializer = getattr(nn.initializers, name)(*args, **kwargs)
        return lambda shape, *rest, **named: initializer(self(), shape, *rest, **named)

    draw.__doc__ = f"`initializers.{name}` without the key argument; each call takes the next key."
    return draw


for _names, _make in ((DRAWS, _make_draw), (INITIALIZERS, _make_initializer)):
    for _name in _names:
        _method = _make(_name)
        _method.__name__ = _name
        setattr(_DrawMethods, _name, _method)


class RngStream(Pytree, _DrawMethods):
    """One stream of random keys.

    Args:
      key: a key, or a seed.
      tag: the name of the stream, which filters match.

    Examples:
      >>> from phalanx import nnx
      >>> stream = nnx.RngStream(0, tag="dropout")
      >>> _ = stream()
      >>> int(stream.count.value)
      1
    """

    def __init__(self, key: ArrayLike | Variable, *, tag: str):
        key = _to_key(key)
        shape = () if isinstance(key, ShapeDtypeStruct) else key.shape
        self.tag = tag
        self.key = RngKey(key, tag=tag)
        # As many counters as keys, so that a mapped function gets a key together with its counter.
        self.count = RngCount(jnp.zeros(shape, jnp.uint32), tag=tag)

    def __call__(self) -> PRNGKey:
        """Return the next key.

        Returns:
          A random key.
        """
        key, count = self.key.value, self.count.value
        if key.shape:
            raise ArgumentError(
                f"{describe(self)}, a draw from the stream {self.tag!r}",
                expected="a stream with one key",
                got=f"a stream that was split into keys of shape {key.shape}",
                fix="draw inside nnx.vmap or nnx.scan over the split stream, or call nnx.restore_rngs first",
            )
        self.count.value = count + 1
        # `fold_in` instead of splitting: the key is constant, so that a stream can be restored from its count, and
        # loops carry one integer.
        return random.fold_in(key, count)

    def set_key(self, key: PRNGKey) -> None:
        """Replace the key, and start the counter again.

        Args:
          key: a key, or an array of keys.
        """
        self.key.value = key
        self.count.value = jnp.zeros(key.shape, jnp.uint32)

    def split(self, k: KeyCount) -> RngStream:
        """Return a stream of `k` keys for a mapped function; this stream advances.

        Args:
          k: the number of keys, or the shape of an array of keys.

        Returns:
          The stream.
        """
        return self.fork(split=k)

    def fork(self, *, split: KeyCount | None = None) -> RngStream:
        """Return an independent stream; this stream advances.

        Args:
          split: the number of keys, or the shape of an array of keys; None for one key.

        Returns:
          The stream.
        """
        key = self()
        return type(self)(key if split is None else random.split(key, split), tag=self.tag)

    def broadcast(self, k: KeyCount | None = None) -> RngStream:
        """Return an independent stream whose key is repeated; this stream advances.

        Args:
          k: the number of copies, or the shape of an array of keys; None for one key.

        Returns:
          The stream.
        """
        key = self()
        shape = () if k is None else (k,) if isinstance(k, int) else tuple(k)
        return type(self)(jnp.broadcast_to(key, shape) if shape else key, tag=self.tag)


class Rngs(Pytree, _DrawMethods):
    """Named streams of random keys. A name without a stream uses the stream `default`.

    Args:
      default: a seed or key for the stream `default`, or a mapping with all streams.
      **rngs: seeds, keys or streams by name.

    Raises:
      MissingStreamError: a stream is used that does not exist, and there is no stream `default`.

    Examples:
      >>> from phalanx import nnx
      >>> rngs = nnx.Rngs(0, dropout=1)
      >>> bool((rngs.params() == rngs.default()).all()), sorted(rngs)
      (False, ['default', 'dropout'])
    """

    def __init__(
        self,
        default: ArrayLike | Variable | RngStream | Mapping[str, ArrayLike | RngStream] | None = None,
        **rngs: ArrayLike | Variable | RngStream,
    ):
        if isinstance(default, Mapping):
            rngs = {**default, **rngs}
        elif default is not None:
            rngs["default"] = default
        for name, key in rngs.items():
            setattr(self, name, key if isinstance(key, RngStream) else RngStream(key, tag=name))

    def __getitem__(self, name: str) -> RngStream:
        streams = get_attributes(self)
        # A stream is an object without `__bool__` and therefore true.
        stream = streams.get(name) or streams.get("default")
        if stream is None:
            raise MissingStreamError(
                f"{describe(self)}, stream {name!r}",
                expected=f"one of the streams {sorted(streams)}" if streams else "a stream",
                got=repr(name),
                fix=f"create it with nnx.Rngs({name}=seed), or create a default stream with nnx.Rngs(seed)",
            )
        return stream

    def __getattr__(self, name: str) -> RngStream:
        if name.startswith("_"):
            raise AttributeError(name)
        return self[name]

    def __contains__(self, name: object) -> bool:
        return name in get_attributes(self)

    def __iter__(self) -> Iterator[str]:
        return iter(get_attributes(self))

    def __len__(self) -> int:
        return len(get_attributes(self))

    def __call__(self) -> PRNGKey:
        """Return the next key of the stream `default`.

        Returns:
          A random key.
        """
        return self["default"]()

    def items(self) -> Iterator[tuple[str, RngStream]]:
        """Iterate over the streams.

        Yields:
          Pairs (name, stream).
        """
        yield from get_attributes(self).items()

    def fork(self, /, *, split: KeyCounts = None) -> Rngs:
        """Return independent streams; these streams advance.

        Args:
          split: the number of keys, for all streams or by filter.

        Returns:
          The `Rngs`.
        """
        return Rngs(**{name: s.fork(split=_get_count(split, (name,), s)) for name, s in self.items()})

    def split(self, k: KeyCounts) -> Rngs:
        """Return streams of `k` keys for a mapped function; these streams advance.

        Args:
          k: the number of keys, for all streams or by filter.

        Returns:
          The `Rngs`.
        """
        return self.fork(split=k)

    def broadcast(self, k: KeyCounts) -> Rngs:
        """Return independent streams whose keys are repeated `k` times; these streams advance.

        Args:
          k: the number of copies, for all streams or by filter.

        Returns:
          The `Rngs`.
        """
        return Rngs(**{name: s.broadcast(_get_count(k, (name,), s)) for name, s in self.items()})


def _get_count(split: Any, path: Path, stream: RngStream) -> Any:
    """The number of keys for a stream."""
    if not isinstance(split, Mapping):
        return split
    for filter, count in split.items():
        if to_predicate(filter)(path, stream.key) or filter == path[-1]:
            return count
    return None


class SplitBackups(contextlib.AbstractContextManager):
    """The state of streams before they were split; as a context manager, it restores them on exit.

    Args:
      backups: each stream with its key and its count.
    """

    def __init__(self, backups: Sequence[tuple[RngStream, PRNGKey, Array]]):
        self.backups = backups

    def __exit__(self, *_: object) -> None:
        restore_rngs(self)


def restore_rngs(backups: SplitBackups, /) -> None:
    """Restore streams that were split.

    Args:
      backups: the result of `split_rngs` or `fork_rngs`.

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


def _iter_streams(node: PyTree, only: Filter, graph: bool | None) -> Iterator[tuple[Path, RngStream]]:
    """Iterate over the streams in a module whose keys a filter matches, with their paths."""
    predicate = to_predicate(only)
    for path, value in iter_graph(node, graph=graph):
        if isinstance(value, RngStream) and predicate((*path, "key"), value.key):
            yield path, value


def _replace_keys(
    node: PyTree, only: Filter, new_key: Callable[[Path, RngStream, PRNGKey], PRNGKey], mode: GraphMode
) -> Any:
    """Replace the key of each stream by a function of the next key, and return the previous state.

    Unless the mode writes structures back, the streams are replaced in a copy, which is returned; it shares all other
    variables.
    """
    if not mode.updates:
        copy = clone(node, variables=False, graph=mode.graph)
        for path, stream in list(_iter_streams(copy, only, mode.graph)):
            key = new_key(path, stream, stream())
            stream.key, stream.count = stream.key.copy(), stream.count.copy()
            stream.set_key(key)
        return copy
    # Saved after the draw of the new key, so that restored streams do not repeat that draw.
    backups = []
    for path, stream in _iter_streams(node, only, mode.graph):
        key = stream()
        backups.append((stream, stream.key.value, stream.count.value))
        stream.set_key(new_key(path, stream, key))
    return SplitBackups(backups)


def split_rngs(
    node: PyTree = MISSING,
    /,
    *,
    splits: KeyCount,
    only: Filter = ...,
    squeeze: bool = False,
    graph: bool | None = None,
    graph_updates: bool | None = None,
) -> Any:
    """Split each random stream in a module into many keys, for `vmap` or `scan` over them.

    Args:
      node: a module, or a tree of modules, which is changed in place. If omitted, a decorator is returned, which splits
        the streams in the arguments of each call and restores them afterwards.
      splits: the number of keys.
      only: the streams to split.
      squeeze: whether to remove the new dimension, which must have size 1.
      graph, graph_updates: the mode; None for the defaults of `set_graph_mode` and `set_graph_updates`.

    Returns:
      `SplitBackups`, with which `restore_rngs` restores the streams. With `graph=False` or `graph_updates=False`, the
      node is not changed, and a copy with other streams is returned.

    Raises:
      ArgumentError: `squeeze` with several keys.

    Examples:
      >>> from phalanx import nnx
      >>> rngs = nnx.Rngs(0)
      >>> with nnx.split_rngs(rngs, splits=3):
      ...     rngs.default.key.shape
      (3,)
    """
    mode = resolve_mode(graph, graph_updates)
    if node is MISSING:
        options = dict(splits=splits, only=only, squeeze=squeeze, graph=mode.graph, graph_updates=mode.updates)
        return _decorate(lambda args: split_rngs(args, **options), mode)
    # Squeezing is for code that treats a single replica like many: the key changes, its shape does not.
    if squeeze and splits not in (1, (1,)):
        raise ArgumentError(
            "split_rngs, argument squeeze",
            expected="splits=1, since the new dimension is removed",
            got=f"splits={splits}",
            fix="pass splits=1, or squeeze=False to keep the dimension",
        )

    def split(path: Path, stream: RngStream, key: PRNGKey) -> PRNGKey:
        keys = random.split(key, splits)
        return keys[0] if squeeze else keys

    return _replace_keys(node, only, split, mode)


def fork_rngs(
    node: PyTree = MISSING, /, *, split: KeyCounts = None, graph: bool | None = None, graph_updates: bool | None = None
) -> Any:
    """Replace the key of each random stream in a module by one or several new keys that are drawn from it.

    Args:
      node: a module, or a tree of modules, which is changed in place. If omitted, a decorator is returned, which forks
        the streams in the arguments of each call and restores them afterwards.
      split: the number of keys, for all streams or by filter.
      graph, graph_updates: the mode; None for the defaults of `set_graph_mode` and `set_graph_updates`.

    Returns:
      `SplitBackups`, with which `restore_rngs` restores the streams. With `graph=False` or `graph_updates=False`, the
      node is not changed, and a copy with other streams is returned.

    Examples:
      >>> from phalanx import nnx
      >>> rngs = nnx.Rngs(0)
      >>> with nnx.fork_rngs(rngs, split=3):
      ...     rngs.default.key.shape
      (3,)
    """
    mode = resolve_mode(graph, graph_updates)
    if node is MISSING:
        options = dict(split=split, graph=mode.graph, graph_updates=mode.updates)
        return _decorate(lambda args: fork_rngs(args, **options), mode)

    def fork(path: Path, stream: RngStream, key: PRNGKey) -> PRNGKey:
        count = _get_count(split, path, stream)
        return key if count is None else random.split(key, count)

    return _replace_keys(node, ..., fork, mode)


def _decorate(change: Callable[[Any], Any], mode: GraphMode) -> Callable:
    """A decorator that changes the streams in the arguments of each call, and restores them afterwards."""

    def decorate(fun: Callable) -> Callable:
        @functools.wraps(fun)
        def call(*args: Any, **kwargs: Any) -> Any:
            if not mode.updates:
                new_args, new_kwargs = change((args, kwargs))
                return fun(*new_args, **new_kwargs)
            with change((args, kwargs)):
                return fun(*args, **kwargs)

        return call

    return decorate


def reseed(
    node: PyTree,
    /,
    *,
    graph: bool | None = None,
    policy: str | Callable[[Path, Any, tuple], Any] = "scalars_only",
    **stream_keys: ArrayLike | Variable,
) -> None:
    """Set new keys in random streams, and start their counters again.

    Args:
      node: a module, or a tree of modules.
      policy: the treatment of streams with several keys. "scalars_only" raises an error, "match_shape" splits the new
        key, and a function `(path, key, shape) -> keys` returns the keys of each stream.
      **stream_keys: seeds or keys by the name of the stream. Streams of the same name get different keys.
      graph: False for the tree mode, in which shared variables are errors; None for the default of `set_graph_mode`.

    Raises:
      TreeError: a stream has several keys, under "scalars_only".

    Examples:
      >>> from phalanx import nnx
      >>> rngs = nnx.Rngs(0)
      >>> nnx.reseed(rngs, default=7)
    """
    if not callable(policy) and policy not in ("scalars_only", "match_shape"):
        raise ArgumentTypeError(
            "reseed, argument policy",
            expected="'scalars_only', 'match_shape' or a function (path, key, shape) -> keys",
            got=repr(policy),
            fix="pass policy='match_shape' to split the new key where a stream has several",
        )
    # Drawing from a new `Rngs` gives a different key to each stream of the same name.
    source = Rngs(**stream_keys)
    for path, stream in _iter_streams(node, ..., graph):
        if stream.tag not in stream_keys:
            continue
        key, shape = source[stream.tag](), stream.key.value.shape
        if callable(policy):
            key = policy(path, key, shape)
        elif shape and policy == "scalars_only":
            raise TreeError(
                f"reseed, stream {stream.tag!r}",
                expected="a stream with one key, under policy='scalars_only'",
                got=f"a stream with keys of shape {shape}",
                fix="pass policy='match_shape' to split the new key",
            )
        elif shape:
            key = random.split(key, shape)
        stream.set_key(key)


def with_rngs(
    node: PyTree = MISSING,
    /,
    *,
    split: KeyCounts = None,
    fork: Filter | Sequence[Filter] = None,
    broadcast: KeyCounts = None,
    only: Filter = ...,
    graph: bool | None = None,
    graph_updates: bool | None = None,
) -> Any:
    """Return a module with other random streams that shares everything else; the streams of the original advance.

    Args:
      node: a module, or a tree of modules. If omitted, a decorator is returned, which replaces the arguments of a call.
      split: the number of keys to split streams into, for all streams or by filter.
      fork: the streams to replace by independent streams.
      broadcast: the number of copies of keys, for all streams or by filter.
      only: the streams to consider.
      graph, graph_updates: the mode; None for the defaults of `set_graph_mode` and `set_graph_updates`.

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
            def call(*args: Any, **kwargs: Any) -> Any:
                options = dict(split=split, fork=fork, broadcast=broadcast, only=only, graph=graph)
                new_args, new_kwargs = with_rngs((args, kwargs), **options)
                return fun(*new_args, **new_kwargs)

            return call

        return decorate
    forked = fork if isinstance(fork, list | tuple) else () if fork is None else (fork,)
    copy = clone(node, variables=False, graph=graph)
    # A list, since the loop changes the modules that the iterator traverses.
    for path, stream in list(_iter_streams(copy, only, graph)):
        if (count := _get_count(split, path, stream)) is not None:
            new = stream.split(count)
        elif (count := _get_count(broadcast, path, stream)) is not None:
            new = stream.broadcast(count)
        elif _get_count(dict.fromkeys(forked, True), path, stream):
            new = stream.fork()
        else:
            continue
        stream.key, stream.count = new.key, new.count
    return copy
