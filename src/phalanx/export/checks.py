"""Safety checks of export: which kernels a portable program may call, and how a check is switched off.

StableHLO promises that its own operations keep their meaning; a custom call names a kernel outside of it, which only
its owner can promise anything about. `STABLE_TARGETS` lists the ones that are promised, each with the reason. Builds
on the engine; `lowering` checks what it exports, `verification` what it reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from phalanx.core.errors import PhalanxError
from phalanx.engine.stablehlo import custom_calls


class CustomCallError(PhalanxError, ValueError):
    """A program to be exported calls kernels that nobody promises to keep.

    Args:
      where, expected, got, mend: as in `PhalanxError`.

    Examples:
      >>> import phalanx
      >>> from phalanx import export
      >>> f = phalanx.jit(lambda x: phalanx.pure_callback(lambda v: v, x, x))
      >>> try:
      ...     export.export(f)(1.0)
      ... except CustomCallError as error:
      ...     print(error.where)
      export of <lambda>
    """


class PlatformError(PhalanxError, ValueError):
    """An exported program is called on a platform that it was not lowered for.

    Args:
      where, expected, got, mend: as in `PhalanxError`.

    Examples:
      >>> import phalanx
      >>> from phalanx import export
      >>> exported = export.export(phalanx.jit(lambda x: x + 1), platforms=["cuda"])(1.0)
      >>> try:
      ...     with phalanx.default_device("cpu"):
      ...         exported.call(1.0)
      ... except PlatformError as error:
      ...     print(type(error).__name__)
      PlatformError
    """


@dataclass(frozen=True)
class DisabledSafetyCheck:
    """A check that the caller of `export` takes upon himself; made by the two class methods.

    Args:
      text: how the check is written in artifacts.

    Examples:
      >>> DisabledSafetyCheck.custom_call("my_kernel")
      DisabledSafetyCheck(text='custom_call:my_kernel')
    """

    text: str

    @classmethod
    def platform(cls) -> DisabledSafetyCheck:
        """Allow calls on other platforms than those of the export."""
        return cls("platform")

    @classmethod
    def custom_call(cls, target_name: str) -> DisabledSafetyCheck:
        """Allow the kernel `target_name`, which the caller promises to have wherever the program runs."""
        return cls(f"custom_call:{target_name}")

    def is_custom_call(self) -> str | None:
        """The kernel that this allows, or None if it is another check."""
        kind, _, target = self.text.partition(":")
        return target if kind == "custom_call" else None


_LAPACK = "jaxlib keeps its typed LAPACK kernels under their names; attributes are only added, with defaults"
_SOLVER = "jaxlib keeps its typed solver kernels for GPUs under their names"
_DYNAMISM = "part of StableHLO's contract for symbolic shapes: rewritten to plain operations when shapes are refined"
_PARTITIONER = "markers that the partitioner removes; XLA reads the ones it ever wrote"
_LEGALISED = "an operation of CHLO or MHLO under its own name, which XLA expands on every platform"

_ROUTINES = (
    "gees geev gehrd geqp3 geqrf gesdd gesvd getrf gtsv heevd orgqr ormqr potrf sydevd syevd sytrd hetrd trsm "
    "ungqr unmqr"
).split()

STABLE_TARGETS: Final[dict[str, str]] = {
    **{f"lapack_{letter}{routine}_ffi": _LAPACK for letter in "sdcz" for routine in _ROUTINES},
    **{f"cusolver_{r}_ffi": _SOLVER for r in ("getrf", "geqrf", "orgqr", "syevd", "potrf", "gesvd", "gesvdj", "sytrd")},
    "cu_lu_pivots_to_permutation": _SOLVER,
    "cusparse_gtsv2_ffi": _SOLVER,
    "shape_assertion": _DYNAMISM,
    "stablehlo.dynamic_reduce_window": _DYNAMISM,
    "stablehlo.dynamic_rng_bit_generator": _DYNAMISM,
    "stablehlo.dynamic_top_k": _DYNAMISM,
    "Sharding": _PARTITIONER,
    "SPMDFullToShardShape": _PARTITIONER,
    "SPMDShardToFullShape": _PARTITIONER,
    "annotate_device_placement": _PARTITIONER,
    "mhlo.topk": _LEGALISED,
    "mhlo.erf": _LEGALISED,
    "mhlo.tan": _LEGALISED,
    **{f"mhlo.{name}": _LEGALISED for name in ("asin", "acos", "atanh", "acosh", "asinh", "sinh", "cosh")},
}
"""The kernels that an exported program may call, each with the reason why it will be there and mean the same."""


_CALLBACK = "xla_ffi_python_{}_callback", "xla_ffi_partitioned_python_{}_callback", "xla_python_{}_callback"

BOUND_TARGETS: Final = frozenset(
    ["InspectSharding", "CustomSPMDPartitioning", *(name.format(kind) for name in _CALLBACK for kind in ("cpu", "gpu"))]
)
"""Kernels that reach into the process that lowered them, by an address or a place in a list: no other can run them."""


def unstable_targets(targets: Iterable[str], disabled: Sequence[DisabledSafetyCheck]) -> list[str]:
    """Those of the kernels that are neither promised nor allowed by the caller."""
    allowed = {check.is_custom_call() for check in disabled}
    return [target for target in targets if target not in STABLE_TARGETS and target not in allowed]


def check_custom_calls(module: Any, disabled: Sequence[DisabledSafetyCheck], name: str) -> None:
    """Refuse a program to be exported that calls kernels without a promise.

    Raises:
      CustomCallError: it does; the message lists them.
    """
    bad = unstable_targets(custom_calls(module), disabled)
    if bad:
        raise CustomCallError(
            f"export of {name}",
            expected="only custom calls that are promised to stay (phalanx.export.STABLE_TARGETS)",
            got=f"calls of {', '.join(bad)}",
            mend="replace these operations (host callbacks cannot leave the process); or, where you vouch for a kernel "
            f"yourself, pass disabled_checks=[DisabledSafetyCheck.custom_call({bad[0]!r})]",
        )


def uncallable_targets(targets: Sequence[str], disabled: Sequence[DisabledSafetyCheck]) -> list[str]:
    """Those of the kernels of a program that must not run: such as would end this process, or any without a promise."""
    return [target for target in targets if target in BOUND_TARGETS] or unstable_targets(targets, disabled)


def check_callable(targets: Sequence[str], disabled: Sequence[DisabledSafetyCheck], name: str) -> None:
    """Refuse to call a program whose kernels must not run.

    Raises:
      CustomCallError: it has such; the message lists them.
    """
    bad = uncallable_targets(targets, disabled)
    if bad:
        raise CustomCallError(
            f"call of exported {name}",
            expected="only custom calls that mean the same in every process",
            got=f"calls of {', '.join(bad)}",
            mend="export it again without them: pass what a host callback computes as an argument",
        )
