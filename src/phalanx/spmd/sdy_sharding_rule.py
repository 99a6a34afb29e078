"""Sharding rules of user-defined operations, in a notation like einsum.

`"... i j, ... j k -> ... i k"` names the dimensions of operands and results; dimensions with the same name are sharded
over the same axes. `custom_partitioning` converts these rules to attributes of Shardy.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from typing import Any

from phalanx.core import ShapeError, ShardingError
from phalanx.runtime.custom_partitioning_calls import make_sdy_sharding_rule

BATCHING = "…"
"""In an `ArrayMapping`, any number of leading dimensions; written `...` in a text."""


class CompoundFactor(tuple):
    """A dimension that consists of several factors, major to minor; written `(i j)` in a text.

    Args:
      factors: the names, at least two.

    Raises:
      ShardingError: there are fewer than two names.

    Examples:
      >>> CompoundFactor("i", "j") == ("i", "j")
      True
    """

    def __new__(cls, *factors: str) -> CompoundFactor:
        if len(factors) < 2:
            raise ShardingError(
                "CompoundFactor",
                expected="at least two names",
                got=repr(factors),
                fix="write a single name as a string",
            )
        return super().__new__(cls, factors)


class ArrayMapping(tuple):
    """The names of the dimensions of one operand or result.

    Args:
      dim_mappings: a name or `CompoundFactor` for each dimension, optionally after `BATCHING`.

    Raises:
      ShardingError: `BATCHING` is not the first entry.

    Examples:
      >>> len(ArrayMapping("i", CompoundFactor("j", "k")))
      2
    """

    def __new__(cls, *dim_mappings: str | CompoundFactor) -> ArrayMapping:
        if any(str(name).startswith(BATCHING) for name in dim_mappings[1:]):
            raise ShardingError(
                "ArrayMapping",
                expected="`...` before all names only",
                got=repr(dim_mappings),
                fix="move `...` to the front",
            )
        return super().__new__(cls, dim_mappings)


class SdyShardingRule:
    """The correspondence of dimensions of operands and results: equal names are sharded over the same axes.

    Args:
      operand_mappings, result_mappings: an `ArrayMapping` for each operand and result.
      reduction_factors: names that the operation sums over, which may be sharded.
      need_replication_factors: names that must not be sharded.
      permutation_factors: names along which devices exchange shards.
      **factor_sizes: sizes of the parts of compound factors, unless a dimension determines them.

    Raises:
      ShardingError: a name in the options occurs in no mapping.

    Examples:
      >>> rule = SdyShardingRule((ArrayMapping("i", "j"),), (ArrayMapping("i"),), reduction_factors=("j",))
      >>> rule.operand_mappings[0] == ("i", "j")
      True
    """

    def __init__(
        self,
        operand_mappings: Sequence[ArrayMapping],
        result_mappings: Sequence[ArrayMapping],
        *,
        reduction_factors: Sequence[str] = (),
        need_replication_factors: Sequence[str] = (),
        permutation_factors: Sequence[str] = (),
        **factor_sizes: int,
    ):
        self.operand_mappings, self.result_mappings = tuple(operand_mappings), tuple(result_mappings)
        self.special: dict[str, tuple] = {
            "reduction_factors": tuple(reduction_factors),
            "need_replication_factors": tuple(need_replication_factors),
            "permutation_factors": tuple(permutation_factors),
        }
        self.factor_sizes = factor_sizes
        known = {n for m in (*self.operand_mappings, *self.result_mappings) for d in m for n in _parts(d)}
        for option, names in (*self.special.items(), ("factor sizes", tuple(factor_sizes))):
            for name in names:
                if name not in known:
                    raise ShardingError(
                        f"sharding rule, {option}",
                        expected=f"names of the rule ({', '.join(sorted(known))})",
                        got=repr(name),
                        fix=f"remove {name!r}, or name a dimension {name!r} in the rule",
                    )

    @classmethod
    def parse(cls, text: str, **options: Any) -> SdyShardingRule:
        """Parse a text such as `"i (j k), ... -> i"`.

        Raises:
          ShardingError: the text is not a rule.
        """
        # Operands on the left and results on the right, as in einsum.
        sides = text.split("->")
        if len(sides) != 2:
            raise _unreadable(text, "operands and results with one `->` between them")
        parts = (side.split(",") if side.strip() else [] for side in sides)
        return cls(*(tuple(_mapping(text, part) for part in side) for side in parts), **options)

    def attribute(self, constants: Sequence[tuple], operands: Sequence[tuple], results: Sequence[tuple]) -> Any:
        """Convert the rule to Shardy's attribute for these shapes, preceded by constants that are replicated.

        Raises:
          ShapeError: the rule does not match the shapes.
        """
        whole = [[("constant", i, d) for d in range(len(shape))] for i, shape in enumerate(constants)]
        sizes: dict[Any, int] = dict(self.factor_sizes)
        sizes.update((name, n) for names, shape in zip(whole, constants) for name, n in zip(names, shape))
        tensors: list[list[list]] = [[[name] for name in names] for names in whole]
        for kind, mappings, shapes in (
            ("operand", self.operand_mappings, operands),
            ("result", self.result_mappings, results),
        ):
            if len(mappings) != len(shapes):
                raise _misfit(f"{kind}s", f"{len(shapes)} mappings", len(mappings))
            tensors += [_factors(f"{kind} {i}", m, s, sizes) for i, (m, s) in enumerate(zip(mappings, shapes))]
        # Hoisted constants are not part of the user's rule. They are replicated, since nothing is known of their
        # dimensions.
        replicated = (*self.special["need_replication_factors"], *itertools.chain(*whole))
        special = {**self.special, "need_replication_factors": replicated}
        return make_sdy_sharding_rule(tensors, len(constants) + len(operands), sizes, **special)

    def __repr__(self) -> str:
        def said(mappings: Sequence[ArrayMapping]) -> str:
            dims = ([f"({' '.join(d)})" if isinstance(d, CompoundFactor) else d for d in m] for m in mappings)
            return ", ".join(" ".join(d).replace(BATCHING, "...") for d in dims)

        return f"SdyShardingRule({said(self.operand_mappings)} -> {said(self.result_mappings)})"


def _parts(dim: str | CompoundFactor) -> tuple:
    return tuple(dim) if isinstance(dim, CompoundFactor) else (dim,)


def _mapping(text: str, part: str) -> ArrayMapping:
    """Parse the names between two commas."""
    dims: list[str | CompoundFactor] = []
    for word in re.findall(r"\([^()]*\)|[^\s()]+", part):
        names = word.strip("()").split()
        if not all(re.fullmatch(r"\.\.\.\w*|[A-Za-z_]\w*", name) for name in names) or not names:
            raise _unreadable(text, "names of dimensions, `...` and names in parentheses")
        dims.append(CompoundFactor(*names) if word.startswith("(") else word.replace("...", BATCHING))
    return ArrayMapping(*dims)


def _factors(where: str, mapping: ArrayMapping, shape: tuple, sizes: dict[Any, int]) -> list[list]:
    """The names of the factors of each dimension; records their sizes in `sizes`."""
    own = list(mapping)
    if own and str(own[0]).startswith(BATCHING):
        # `...` becomes as many names as the mapping lacks. They are numbered from the first dimension, so the first
        # dimensions of two operands correspond even if one has more.
        own[:1] = [f"{own[0]}{i}" for i in range(len(shape) - len(own) + 1)]
    if len(own) != len(shape):
        raise _misfit(where, f"names for {len(shape)} dimensions", len(mapping))
    for dim, size in zip(own, shape, strict=True):
        names = _parts(dim)
        open_names = [n for n in names if n not in sizes]
        # One unknown part of a compound factor follows from the size of the dimension.
        if len(open_names) == 1:
            sizes[open_names[0]] = size // math.prod(sizes[n] for n in names if n in sizes)
        if len(open_names) > 1 or math.prod(sizes[n] for n in names) != size:
            shown = {n: sizes.get(n, "unknown") for n in names}
            raise _misfit(where, f"factors of a dimension of size {size}", f"sizes {shown}")
    return [list(_parts(dim)) for dim in own]


def _unreadable(text: str, expected: str) -> ShardingError:
    return ShardingError(
        "sharding rule", expected=expected, got=repr(text), fix="write it like '... i j, ... j k -> ... i k'"
    )


def _misfit(where: str, expected: str, got: Any) -> ShapeError:
    return ShapeError(
        f"sharding rule, {where}",
        expected=expected,
        got=got,
        fix="write one name for each dimension, and pass the sizes of compound factors as keywords",
    )
