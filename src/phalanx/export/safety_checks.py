"""Safety checks of export: the kernels that a portable program may call, and how a check is disabled.

StableHLO guarantees the meaning of its own operations over time. A custom call names a kernel outside of StableHLO,
with no such guarantee unless the kernel's owner gives one. `STABLE_TARGETS` lists the kernels with a guarantee, each
with the reason. Builds on the engine; `portable_lowering` checks programs at export, `module_linking` and
`verification` when they are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from phalanx.core import Jaxpr, PhalanxError, iterate_jaxprs
from phalanx.core.source_info import find_user_frame
from phalanx.engine.stablehlo import custom_calls
from phalanx.lax.callback import host_callback_p
from phalanx.lax.ffi_call import ffi_call_p
from phalanx.lax.sharding.inspect_sharding import inspect_sharding_p


class CustomCallError(PhalanxError, ValueError):
    """A program to export calls kernels with no stability guarantee.

    Args:
      where, expected, got, fix: as in `PhalanxError`.

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
      where, expected, got, fix: as in `PhalanxError`.

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
    """A safety check to disable at export; made by `platform` and `custom_call`.

    Args:
      text: the name of the check in artifacts.

    Examples:
      >>> DisabledSafetyCheck.custom_call("my_kernel")
      DisabledSafetyCheck(text='custom_call:my_kernel')
    """

    text: str

    @classmethod
    def platform(cls) -> DisabledSafetyCheck:
        """Allow calls on platforms that the program was not exported for.

        Returns:
          The check.
        """
        return cls("platform")

    @classmethod
    def custom_call(cls, target_name: str) -> DisabledSafetyCheck:
        """Allow custom calls of a kernel, which must be available wherever the program runs.

        Args:
          target_name: the name of the kernel.

        Returns:
          The check.
        """
        return cls(f"custom_call:{target_name}")

    def is_custom_call(self) -> str | None:
        """The name of the kernel that this check allows, or None for another kind of check.

        Returns:
          The name, or None.
        """
        kind, _, target = self.text.partition(":")
        return target if kind == "custom_call" else None


_LAPACK = "jaxlib keeps the names of its typed LAPACK kernels; new attributes have defaults"
_SOLVER = "jaxlib keeps the names of its typed GPU solver kernels"
_DYNAMISM = "part of StableHLO's symbolic shapes: shape refinement rewrites it to plain operations"
_PARTITIONER = "a marker that the partitioner removes; XLA keeps reading old ones"
_LEGALIZED = "an operation of CHLO or MHLO, which XLA expands on every platform"

# Each LAPACK routine has one kernel for each of the four dtypes, by LAPACK's letters s, d, c and z.
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
    "mhlo.topk": _LEGALIZED,
    "mhlo.erf": _LEGALIZED,
    "mhlo.tan": _LEGALIZED,
    **{f"mhlo.{name}": _LEGALIZED for name in ("asin", "acos", "atanh", "acosh", "asinh", "sinh", "cosh")},
}
"""The custom-call targets that an exported program may call, each with the reason why it is stable."""


_CALLBACK = "xla_ffi_python_{}_callback", "xla_ffi_partitioned_python_{}_callback", "xla_python_{}_callback"

BOUND_TARGETS: Final = frozenset(
    ["InspectSharding", "CustomSPMDPartitioning", *(name.format(kind) for name in _CALLBACK for kind in ("cpu", "gpu"))]
)
"""Targets that refer to Python objects of the exporting process by address or index; no other process can run them."""


def unstable_targets(targets: Iterable[str], disabled: Sequence[DisabledSafetyCheck]) -> list[str]:
    """The targets that are neither stable nor allowed by a disabled check."""
    allowed = {check.is_custom_call() for check in disabled}
    return [target for target in targets if target not in STABLE_TARGETS and target not in allowed]


def format_line(traceback: Any) -> str:
    """The user's line, without the folders of the exporting machine."""
    frame = find_user_frame(traceback)
    return "an unknown line" if frame is None else f"{Path(frame.file_name).name}:{frame.line_num}"


def check_custom_calls(module: Any, program: Jaxpr, disabled: Sequence[DisabledSafetyCheck], name: str) -> None:
    """Refuse to export a program that calls unstable kernels.

    Raises:
      CustomCallError: the program calls such kernels; the message lists them, and the lines that call them.
    """
    bad = unstable_targets(custom_calls(module), disabled)
    if bad:
        equations = [eqn for jaxpr in iterate_jaxprs(program) for eqn in jaxpr.eqns]
        lines = [
            format_line(eqn.source)
            for eqn in equations
            if eqn.primitive in (host_callback_p, inspect_sharding_p)
            or (eqn.primitive is ffi_call_p and eqn.params["target"] in bad)
        ]
        kept = [target for target in bad if target not in BOUND_TARGETS]
        raise CustomCallError(
            f"export of {name}",
            expected="only custom calls with a stability guarantee (phalanx.export.STABLE_TARGETS)",
            got=f"calls of {', '.join(bad)}" + (f" at {', '.join(dict.fromkeys(lines))}" if lines else ""),
            fix="replace these operations (host callbacks cannot leave the process), or, for a kernel that you keep "
            f"available, pass disabled_checks=[DisabledSafetyCheck.custom_call({kept[0]!r})]"
            if kept
            else "remove these operations, which need this process, or pass what they compute as an argument",
        )


def uncallable_targets(targets: Sequence[str], disabled: Sequence[DisabledSafetyCheck]) -> list[str]:
    """The kernels that must not run here: kernels that need the exporting process, or else the unstable ones."""
    # `BOUND_TARGETS` ignore `disabled`: allowing such a kernel by name cannot make it work in another process.
    return [target for target in targets if target in BOUND_TARGETS] or unstable_targets(targets, disabled)


def check_callable(targets: Sequence[str], disabled: Sequence[DisabledSafetyCheck], name: str) -> None:
    """Refuse to call a program with kernels that must not run in this process.

    Raises:
      CustomCallError: the program calls such kernels; the message lists them.
    """
    bad = uncallable_targets(targets, disabled)
    if bad:
        raise CustomCallError(
            f"call of exported {name}",
            expected="only custom calls that every process can run",
            got=f"calls of {', '.join(bad)}",
            fix="export it again without them: pass what a host callback computes as an argument",
        )
