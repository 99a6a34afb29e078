"""Arguments of a compiled function: which are static, which are donated, and how they flatten.

A `Signature` is what `jit` was told about the parameters, completed from the function's own signature; it splits each
call into array leaves and static values. Used by `jit` and by the stages, which name arguments by these paths.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from phalanx.core.aval import aval_at, aval_of
from phalanx.core.errors import ArgumentError, ArgumentTypeError, positions
from phalanx.core.source import code_position
from phalanx.runtime.dispatch import Static
from phalanx.tree import keystr, tree_flatten, tree_flatten_with_path, tree_unflatten


class CallArguments(NamedTuple):
    """One call's arguments, taken apart.

    leaves: the array leaves.
    tree: the structure of (dynamic positional arguments, dynamic keyword arguments).
    statics: positions, names and values of the static arguments.
    num_args: how many positional arguments there were.
    signature: what split them.
    """

    leaves: list
    tree: Any
    statics: tuple
    num_args: int
    signature: Signature

    @property
    def key(self) -> tuple:
        """What stands for all but the leaves in cache keys."""
        return self.tree, self.statics

    def rebuild(self, leaves: Sequence[Any]) -> tuple[tuple, dict]:
        """The arguments with other leaves in place of the arrays."""
        args, kwargs = tree_unflatten(self.tree, leaves)
        if not self.statics:
            return args, kwargs
        fixed = dict(self.statics)
        dynamic = iter(args)
        full = tuple(fixed[i].value if i in fixed else next(dynamic) for i in range(self.num_args))
        return full, kwargs | {k: v.value for k, v in fixed.items() if isinstance(k, str)}

    def with_statics(self, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        """Dynamic arguments of another call, and the static ones of this one in their places."""
        fixed = {k: v.value for k, v in self.statics}
        full = list(args)
        for i in sorted(k for k in fixed if isinstance(k, int)):
            full.insert(i, fixed[i])
        return tuple(full), kwargs | {k: v for k, v in fixed.items() if isinstance(k, str)}

    def dynamic(self) -> tuple[tuple, dict]:
        """The dynamic arguments only."""
        return tree_unflatten(self.tree, self.leaves)

    def avals(self, name: str) -> tuple:
        """The types of the leaves.

        Raises:
          ArgumentTypeError: an argument of the function `name` is no array.
        """
        try:
            return tuple(map(aval_of, self.leaves))
        except ArgumentTypeError:
            for i, x in enumerate(self.leaves):
                aval_at(x, lambda i=i: f"{name}, argument {self.path(i)}")
            raise

    def path(self, i: int) -> str:
        """What the user calls leaf `i`: the parameter's name and the path within it."""
        args, kwargs = self.dynamic()
        path, _ = tree_flatten_with_path((args, kwargs))[0][i]
        inside = path[2:]
        if path[0].idx == 1:
            return f"{path[1].key}{keystr(inside)}"
        return f"{self.signature.name_of(self.position(path[1].idx))}{keystr(inside)}"

    def position(self, n: int) -> int:
        """The position among all arguments of dynamic positional argument `n`."""
        static = {k for k, _ in self.statics if isinstance(k, int)}
        return [i for i in range(self.num_args) if i not in static][n]

    def donated(self) -> tuple[int, ...]:
        """The numbers of the leaves that belong to donated arguments."""
        signature = self.signature
        if not (signature.donate_argnums or signature.donate_argnames):
            return ()
        args, kwargs = self.dynamic()
        out, start = [], 0
        for n, arg in enumerate(args):
            count = len(tree_flatten(arg)[0])
            if self.position(n) in signature.donate_argnums:
                out.extend(range(start, start + count))
            start += count
        for name in sorted(kwargs):
            count = len(tree_flatten(kwargs[name])[0])
            if name in signature.donate_argnames:
                out.extend(range(start, start + count))
            start += count
        return tuple(out)


class Signature:
    """What is known of a function's parameters.

    Args:
      fun: the function.
      static_argnums, static_argnames: parameters whose values are part of the program.
      donate_argnums, donate_argnames: parameters whose buffers may be reused.
      what: the transformation that asks, for messages.
      static: what it calls static parameters.

    Raises:
      ArgumentError: a number or name is not one of the function's parameters, or is both static and donated.
    """

    def __init__(
        self,
        fun: Callable,
        static_argnums: Any,
        static_argnames: Any,
        donate_argnums: Any,
        donate_argnames: Any,
        what: str = "jit",
        static: str = "static",
    ):
        self.fun = fun
        self._what = f"{what} of {code_position(fun)}"
        try:
            self.parameters = list(inspect.signature(fun).parameters.values())
        except (TypeError, ValueError):
            self.parameters = []
        self.static_argnums, self.static_argnames = self._complete(static, static_argnums, static_argnames)
        self.donate_argnums, self.donate_argnames = self._complete("donate", donate_argnums, donate_argnames)
        both = self.static_argnums & self.donate_argnums
        if both:
            raise ArgumentError(
                f"{self._what}, donate_argnums",
                expected="arguments that are not static",
                got=f"{sorted(both)}, which are in {static}_argnums too",
                mend="drop them from one of the two",
            )
        self.is_plain = not (self.static_argnums or self.static_argnames)

    def _complete(self, kind: str, nums: Any, names: Any) -> tuple[frozenset, frozenset]:
        """Positions and names, each inferred from the other where only one is given."""
        where = f"{self._what}, {kind}_arg"
        given_nums = () if nums is None else positions(f"{where}nums", nums)
        given_names = () if names is None else (names,) if isinstance(names, str) else tuple(names)
        positional = [p for p in self.parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        variadic = any(p.kind is p.VAR_POSITIONAL for p in self.parameters)
        count = len(positional)
        places = set()
        for n in given_nums:
            if self.parameters and not variadic and not -count <= n < count:
                raise ArgumentError(
                    f"{where}nums",
                    expected=f"positions below {count}, the number of positional parameters",
                    got=str(n),
                    mend="count from 0, or use the parameter's name",
                )
            places.add(n % count if n < 0 and count else n)
        known = {p.name for p in self.parameters}
        takes_any = any(p.kind is p.VAR_KEYWORD for p in self.parameters)
        for name in given_names:
            if self.parameters and name not in known and not takes_any:
                raise ArgumentError(
                    f"{where}names",
                    expected=f"names of parameters: {', '.join(sorted(known))}",
                    got=repr(name),
                    mend="correct the name",
                )
        found = set(given_names)
        found |= {
            positional[n].name
            for n in places
            if n < count and positional[n].kind is not inspect.Parameter.POSITIONAL_ONLY
        }
        places |= {i for i, p in enumerate(positional) if p.name in given_names}
        return frozenset(places), frozenset(found)

    def name_of(self, i: int) -> str:
        """The name of positional parameter `i`."""
        positional = [p for p in self.parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        if i < len(positional):
            return positional[i].name
        variadic = next((p.name for p in self.parameters if p.kind is p.VAR_POSITIONAL), "args")
        return f"{variadic}[{i - len(positional)}]"

    def split(self, args: tuple, kwargs: dict) -> CallArguments:
        """Take a call apart.

        Raises:
          ArgumentTypeError: a static argument is not hashable.
        """
        leaves, (tree, statics) = self.flatten(args, kwargs)
        for where, static in statics:
            _check_hashable(self.name_of(where) if isinstance(where, int) else where, static.value, self._what)
        return CallArguments(leaves, tree, statics, len(args), self)

    def flatten(self, args: tuple, kwargs: dict) -> tuple[list, Any]:
        """The leaves of a call, and what stands for all else in cache keys."""
        dynamic, statics = self.divide(args, kwargs)
        leaves, tree = tree_flatten(dynamic)
        return leaves, (tree, statics)

    def divide(self, args: tuple, kwargs: dict) -> tuple[tuple[tuple, dict], tuple]:
        """The dynamic arguments of a call, positional and by keyword, and its static ones."""
        if self.is_plain:
            return (args, kwargs), ()
        fixed, names = self.static_argnums, self.static_argnames
        statics = [(i, Static(args[i])) for i in sorted(fixed) if i < len(args)]
        statics += [(k, Static(kwargs[k])) for k in sorted(kwargs) if k in names]
        dynamic = tuple([x for i, x in enumerate(args) if i not in fixed])
        return (dynamic, {k: v for k, v in kwargs.items() if k not in names}), tuple(statics)


def _check_hashable(name: str, value: Any, what: str) -> None:
    try:
        hash(value)
    except TypeError:
        raise ArgumentTypeError(
            f"{what}, static argument {name}",
            expected="a hashable value, since it is part of the key under which the program is kept",
            got=f"{value!r} of type {type(value).__name__}",
            mend="give a tuple instead of a list, or do not mark the argument as static",
        ) from None
