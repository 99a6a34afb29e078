"""Flatten the arguments of compiled functions: static and donated parameters, and argument names for error messages.

A `Signature` combines the options of `jit` (static and donated parameters) with the signature of the Python function.
It splits the arguments of a call into array leaves and static values, which together with the tree structure form the
cache key of the call. Errors name an argument by its parameter and its path within it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from phalanx.core import (
    ArgumentError,
    ArgumentTypeError,
    ConversionError,
    format_code_position,
    get_aval,
    get_aval_of_argument,
    parse_positions,
)
from phalanx.runtime.eager_jit import Static
from phalanx.tree import keystr, tree_flatten, tree_flatten_with_path, tree_unflatten
from phalanx.tree.operations import refuse_endless_container


class CallArguments(NamedTuple):
    """The flattened arguments of one call.

    leaves: the array leaves.
    tree: structure of (dynamic positional arguments, dynamic keyword arguments).
    statics: pairs of position or name and value of the static arguments.
    num_args: number of positional arguments, static ones included.
    signature: the signature that flattened them.
    """

    leaves: list
    tree: Any
    statics: tuple
    num_args: int
    signature: Signature

    @property
    def key(self) -> tuple:
        """Everything but the leaves, as part of a cache key."""
        return self.tree, self.statics

    def rebuild(self, leaves: Sequence[Any]) -> tuple[tuple, dict]:
        """The arguments `(args, kwargs)` of the call with its array leaves replaced."""
        return self.with_statics(*tree_unflatten(self.tree, leaves))

    def with_statics(self, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        """Insert the static arguments of this call into dynamic arguments, of this or of another call."""
        full, named = list(args), dict(kwargs)
        # `statics` has the positions in ascending order, so that each insertion finds the arguments before it in place.
        for where, static in self.statics:
            if isinstance(where, int):
                full.insert(where, static.value)
            else:
                named[where] = static.value
        return tuple(full), named

    def dynamic(self) -> tuple[tuple, dict]:
        """The dynamic arguments `(args, kwargs)`."""
        return tree_unflatten(self.tree, self.leaves)

    def avals(self, name: str) -> tuple:
        """The abstract values of the leaves.

        Raises:
          ArgumentTypeError: a leaf of an argument is not an array; `name` is the function in the message.
        """
        try:
            return tuple(map(get_aval, self.leaves))
        except ArgumentTypeError:
            # Only after a failure, since the name of an argument takes another flattening.
            for i, x in enumerate(self.leaves):
                get_aval_of_argument(x, lambda i=i: f"{name}, argument {self.path(i)}")
            raise

    def path(self, i: int) -> str:
        """The name of leaf `i` in error messages: the name of its parameter and the path within the argument."""
        return self.paths()[i]

    def paths(self) -> list[str]:
        """The names of all leaves."""
        found = []
        for (which, first, *inside), _ in tree_flatten_with_path(self.dynamic())[0]:
            # The path starts with the position in the pair (args, kwargs), then the position or name of the argument.
            name = first.key if which.idx == 1 else self.signature.name_of(self.position(first.idx))
            found.append(f"{name}{keystr(tuple(inside))}")
        return found

    def position(self, n: int) -> int:
        """The position of dynamic positional argument `n` among all positional arguments."""
        static = dict(self.statics)
        return [i for i in range(self.num_args) if i not in static][n]

    def donated_leaves(self) -> tuple[int, ...]:
        """The indices of the leaves that belong to donated arguments."""
        nums, names = self.signature.donate_argnums, self.signature.donate_argnames
        if not (nums or names):
            return ()
        paths = [path for path, _ in tree_flatten_with_path(self.dynamic())[0]]
        return tuple(
            i
            for i, (which, first, *_) in enumerate(paths)
            if (first.key in names if which.idx == 1 else self.position(first.idx) in nums)
        )


class Signature:
    """The parameters of a function, with the static and donated ones marked.

    Args:
      fun: the function.
      static_argnums, static_argnames: parameters whose values are compile-time constants.
      donate_argnums, donate_argnames: parameters whose buffers may be reused.
      what: name of the transformation, for error messages.
      static: prefix of the names of its static options: `pmap` has `static_broadcasted_argnums`.

    Raises:
      ArgumentError: a position or name does not belong to a parameter, or a parameter is both static and donated.
    """

    def __init__(
        self,
        fun: Callable,
        static_argnums: int | Sequence[int] | None = None,
        static_argnames: str | Iterable[str] | None = None,
        donate_argnums: int | Sequence[int] | None = None,
        donate_argnames: str | Iterable[str] | None = None,
        what: str = "jit",
        static: str = "static",
    ):
        self.what = f"{what} of {format_code_position(fun)}"
        try:
            self.parameters = list(inspect.signature(fun).parameters.values())
        # Builtins and some callables have no signature; then positions and names cannot be validated.
        except (TypeError, ValueError):
            self.parameters = []
        self.positional = [p for p in self.parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        self.static_argnums, self.static_argnames = self._complete(static, static_argnums, static_argnames)
        self.donate_argnums, self.donate_argnames = self._complete("donate", donate_argnums, donate_argnames)
        both = self.static_argnums & self.donate_argnums
        if both:
            raise ArgumentError(
                f"{self.what}, donate_argnums",
                expected="positions of arguments that are not static",
                got=f"{sorted(both)}, which are in {static}_argnums too",
                fix=f"remove {sorted(both)} from donate_argnums: a static argument has no buffer",
            )
        self.is_plain = not (self.static_argnums or self.static_argnames)

    def _complete(
        self, kind: str, nums: int | Sequence[int] | None, names: str | Iterable[str] | None
    ) -> tuple[frozenset, frozenset]:
        """Validate positions and names of parameters; where only one of them is given, complete the other."""
        where = f"{self.what}, {kind}_arg"
        given_nums = () if nums is None else parse_positions(f"{where}nums", nums)
        given_names = () if names is None else (names,) if isinstance(names, str) else tuple(names)
        kinds = {p.kind for p in self.parameters}
        known = {p.name for p in self.parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
        unnamed = {p.name for p in self.parameters if p.kind in (p.POSITIONAL_ONLY, p.VAR_POSITIONAL)}
        count = len(self.positional)
        for n in given_nums:
            if self.parameters and inspect.Parameter.VAR_POSITIONAL not in kinds and not -count <= n < count:
                raise ArgumentError(
                    f"{where}nums",
                    expected=f"positions below {count}, the number of positional parameters",
                    got=str(n),
                    fix=f"pass positions from 0 to {count - 1}, or leave {kind}_argnums out",
                )
        for name in given_names:
            by_position = f"mark it by its position in {kind}_argnums"
            takes_any = not self.parameters or inspect.Parameter.VAR_KEYWORD in kinds
            if name in unnamed or not (takes_any or name in known):
                raise ArgumentError(
                    f"{where}names",
                    expected=f"names of parameters that can be passed by name: {', '.join(sorted(known)) or 'none'}",
                    got=repr(name),
                    fix=by_position if name in unnamed else f"replace {name!r} by one of these names",
                )
        places = {n % count if n < 0 and count else n for n in given_nums}
        if nums is not None and names is not None:  # The user chose both ways of passing an argument.
            return frozenset(places), frozenset(given_names)
        found = {p.name for i, p in enumerate(self.positional) if i in places and p.kind is not p.POSITIONAL_ONLY}
        places |= {i for i, p in enumerate(self.positional) if p.name in given_names}
        return frozenset(places), frozenset(found.union(given_names))

    def name_of(self, where: int | str) -> str:
        """The name of the parameter that receives the positional argument `where`, or the keyword `where`."""
        if isinstance(where, str):
            return where
        extra = where - len(self.positional)
        if extra < 0:
            return self.positional[where].name
        return f"{next((p.name for p in self.parameters if p.kind is p.VAR_POSITIONAL), 'args')}[{extra}]"

    def split(self, args: tuple, kwargs: dict) -> CallArguments:
        """Flatten the arguments of a call and check that the static ones are hashable.

        Raises:
          ConversionError: a static argument is not hashable.
        """
        leaves, (tree, statics) = self.flatten(args, kwargs)
        for where, static in statics:
            try:
                hash(static)
            except TypeError:
                raise ConversionError(
                    f"{self.what}, static argument {self.name_of(where)}",
                    expected="a hashable value, since it is part of the cache key of the compiled program",
                    got=f"{static.value!r} of type {type(static.value).__name__}",
                    fix="pass a tuple instead of a list, or do not mark the argument as static",
                ) from None
        return CallArguments(leaves, tree, statics, len(args), self)

    def flatten(self, args: tuple, kwargs: dict) -> tuple[list, Any]:
        """The leaves of the arguments of a call, and the rest of its cache key."""
        dynamic, statics = self.divide(args, kwargs)
        refuse_endless_container(dynamic)
        leaves, tree = tree_flatten(dynamic)
        return leaves, (tree, statics)

    def divide(self, args: tuple, kwargs: dict) -> tuple[tuple[tuple, dict], tuple]:
        """The dynamic arguments `(args, kwargs)` of a call, and its static arguments."""
        if self.is_plain:
            return (args, kwargs), ()
        fixed, names = self.static_argnums, self.static_argnames
        statics = [(i, Static(args[i])) for i in sorted(fixed) if i < len(args)]
        statics += [(k, Static(kwargs[k])) for k in sorted(kwargs) if k in names]
        dynamic = tuple([x for i, x in enumerate(args) if i not in fixed])
        return (dynamic, {k: v for k, v in kwargs.items() if k not in names}), tuple(statics)
