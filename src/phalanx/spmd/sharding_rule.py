"""Rules by which shardings spread over an operation whose meaning the partitioner does not know, written like einsum.

`"... i j, ... j k -> ... i k"` names the dimensions of operands and results: dimensions of one name are split alike.
Called by `custom_partitioning`; builds on Shardy's form of such rules.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from phalanx.core.errors import ShapeError, ShardingError
from phalanx.runtime.partitioned_calls import spread

BATCHING = "…"
"""Stands in an `ArrayMapping` for leading dimensions of any number; text says `...`."""


class CompoundFactor(tuple):
    """A dimension that is several factors, major to minor: `CompoundFactor("i", "j")`; text says `(i j)`.

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
                "CompoundFactor", expected="at least two names", got=repr(factors), mend="write one name by itself"
            )
        return super().__new__(cls, factors)


class ArrayMapping(tuple):
    """The dimensions of one operand or result: names, `CompoundFactor`s, and first of all perhaps `BATCHING`.

    Args:
      dim_mappings: one for each dimension.

    Raises:
      ShardingError: `BATCHING` stands behind another name.

    Examples:
      >>> len(ArrayMapping("i", CompoundFactor("j", "k")))
      2
    """

    def __new__(cls, *dim_mappings: str | CompoundFactor) -> ArrayMapping:
        if any(str(name).startswith(BATCHING) for name in dim_mappings[1:]):
            raise ShardingError(
                "ArrayMapping", expected="`...` before all names only", got=repr(dim_mappings), mend="put it first"
            )
        return super().__new__(cls, dim_mappings)


class SdyShardingRule:
    """Which dimensions of operands and results are split alike.

    Args:
      operand_mappings, result_mappings: for each operand and result its dimensions.
      reduction_factors: names over which the operation sums, so that it can be split along them.
      need_replication_factors: names along which nothing may be split.
      permutation_factors: names along which devices exchange pieces.
      **factor_sizes: sizes of the parts of compound factors, as far as no dimension tells them.

    Raises:
      ShardingError: a name in the options stands in no mapping.

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
        self.special = {
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
                        mend="use a name that stands in a mapping",
                    )

    @classmethod
    def parse(cls, text: str, **options: Any) -> SdyShardingRule:
        """The rule that a text such as `"i (j k), ... -> i"` says.

        Raises:
          ShardingError: the text is no rule.
        """
        sides = text.split("->")
        if len(sides) != 2:
            raise _unreadable(text, "operands and results with one `->` between them")
        return cls(*(tuple(_mapping(text, part) for part in _listed(side)) for side in sides), **options)

    def attribute(self, constants: Sequence[tuple], operands: Sequence[tuple], results: Sequence[tuple]) -> Any:
        """Shardy's attribute for operands and results of these shapes, after constants that stay whole.

        Raises:
          ShapeError: the rule does not fit the shapes.
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
        special = dict(self.special)
        special["need_replication_factors"] += tuple([name for names in whole for name in names])
        return spread(tensors, len(constants) + len(operands), sizes, **special)

    def __repr__(self) -> str:
        def said(mappings: Sequence[ArrayMapping]) -> str:
            dims = ([f"({' '.join(d)})" if isinstance(d, CompoundFactor) else d for d in m] for m in mappings)
            return ", ".join(" ".join(d).replace(BATCHING, "...") for d in dims)

        return f"SdyShardingRule({said(self.operand_mappings)} -> {said(self.result_mappings)})"


def _parts(dim: str | CompoundFactor) -> tuple:
    return tuple(dim) if isinstance(dim, CompoundFactor) else (dim,)


def _listed(side: str) -> list[str]:
    return [part.strip() for part in side.split(",")] if side.strip() else []


def _mapping(text: str, part: str) -> ArrayMapping:
    """The dimensions that a text between commas names."""
    found = re.findall(r"\([^()]*\)|[^\s()]+", part)
    dims: list[str | CompoundFactor] = []
    for word in found:
        names = word.strip("()").split()
        if not all(re.fullmatch(r"\.\.\.\w*|[A-Za-z_]\w*", name) for name in names) or not names:
            raise _unreadable(text, "names of dimensions, `...` and names in parentheses")
        dims.append(CompoundFactor(*names) if word.startswith("(") else word.replace("...", BATCHING))
    return ArrayMapping(*dims)


def _factors(where: str, mapping: ArrayMapping, shape: tuple, sizes: dict[Any, int]) -> list[list]:
    """The names of the factors of each dimension, whose sizes are noted."""
    own = list(mapping)
    if own and str(own[0]).startswith(BATCHING):
        count = len(shape) - len(own) + 1
        own[:1] = [f"{own[0]}{i}" for i in range(count)]  # leading dimensions of any number, the first ones alike
    if len(own) != len(shape):
        raise _misfit(where, f"names for {len(shape)} dimensions", len(mapping))
    for dim, size in zip(own, shape, strict=True):
        names = _parts(dim)
        open_names = [n for n in names if n not in sizes]
        if len(open_names) == 1:
            sizes[open_names[0]] = size // math.prod(sizes[n] for n in names if n in sizes)
        if len(open_names) > 1 or math.prod(sizes[n] for n in names) != size:
            shown = {n: sizes.get(n, "unknown") for n in names}
            raise _misfit(where, f"factors of a dimension of size {size}", f"sizes {shown}")
    return [list(_parts(dim)) for dim in own]


def _unreadable(text: str, expected: str) -> ShardingError:
    return ShardingError(
        "sharding rule", expected=expected, got=repr(text), mend="write it like '... i j, ... j k -> ... i k'"
    )


def _misfit(where: str, expected: str, got: Any) -> ShapeError:
    return ShapeError(
        f"sharding rule, {where}",
        expected=expected,
        got=got,
        mend="name each dimension, and give the sizes of compound factors as keywords",
    )
