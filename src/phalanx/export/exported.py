"""`Exported`: a compiled function as a value that can leave the process, be called, and be differentiated.

`export` traces and lowers; the record it gives holds the portable program and all that a caller must know of it. Builds
on the stages of `spmd`, on `lowering` for the program, on `calling` for calls and on `format` for bytes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from phalanx.core import dtypes, effects
from phalanx.core.aval import ShapedArray, ShapeDtypeStruct
from phalanx.core.errors import ArgumentError, ArgumentTypeError, TraceError
from phalanx.core.jaxpr import Jaxpr, run_program
from phalanx.engine import client, mlir, stablehlo
from phalanx.engine.frames import boundaries
from phalanx.export import types
from phalanx.export.checks import DisabledSafetyCheck
from phalanx.export.lowering import lower_portable, solve_inputs
from phalanx.export.solving import Solution
from phalanx.lax import full
from phalanx.runtime.array import ArrayType
from phalanx.runtime.stand_ins import on_devices, on_stand_ins
from phalanx.spmd import jit
from phalanx.spmd.resolution import resolve
from phalanx.symbolic import is_symbolic
from phalanx.transforms import vjp

minimum_supported_calling_convention_version: Final = 1
maximum_supported_calling_convention_version: Final = 1
PLATFORMS: Final = ("cpu", "cuda", "rocm", "tpu")


@boundaries
@dataclass(frozen=True, eq=False)
class Exported:
    """A function exported by `export`, or read from an artifact by `deserialize`.

    Args:
      fun_name: the function's name.
      in_tree, out_tree: the structures of `(args, kwargs)` and of the result.
      in_avals, out_avals: for each leaf its type, with symbolic dimensions where there are any.
      in_shardings, out_shardings: for each leaf a `NamedSharding` over an `AbstractMesh`, an `HloSharding`, or None.
      nr_devices: how many devices split the program.
      platforms: those it was lowered for.
      ordered_effects, unordered_effects: the names of its effects.
      disabled_safety_checks: the checks that its author took upon himself.
      mlir_module_serialized: the program as a portable StableHLO artifact.
      calling_convention_version: how its `main` takes arguments.
      module_kept_var_idx: the numbers of the flat arguments that its `main` takes.
      parameters: the names of the positional parameters, for messages.
      constraints: what was taken as known of the dimension variables, which calls check.

    Examples:
      >>> import phalanx
      >>> from phalanx import export
      >>> exported = export.export(phalanx.jit(lambda x: x + 1))(phalanx.ShapeDtypeStruct((3,), "float32"))
      >>> exported.out_avals
      (ShapedArray(float32[3]),)
    """

    fun_name: str
    in_tree: Any
    in_avals: tuple[ShapedArray, ...]
    out_tree: Any
    out_avals: tuple[ShapedArray, ...]
    in_shardings: tuple[Any, ...]
    out_shardings: tuple[Any, ...]
    nr_devices: int
    platforms: tuple[str, ...]
    ordered_effects: tuple[str, ...]
    unordered_effects: tuple[str, ...]
    disabled_safety_checks: tuple[DisabledSafetyCheck, ...]
    mlir_module_serialized: bytes = field(repr=False)
    calling_convention_version: int
    module_kept_var_idx: tuple[int, ...]
    parameters: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    _get_vjp: Callable[[], Exported] | None = field(default=None, repr=False)

    @property
    def uses_shape_variables(self) -> bool:
        """Whether shapes are symbolic, so that the program takes dimension variables."""
        return any(a.is_symbolic for a in self.in_avals)

    @property
    def uses_global_constants(self) -> bool:
        """Whether the program takes dimension variables or the number of the platform."""
        return self.uses_shape_variables or len(self.platforms) > 1

    @property
    def in_shardings_hlo(self) -> tuple[Any, ...]:
        """For each leaf of the arguments XLA's form of its sharding, or None."""
        return tuple(types.hlo_of(s, a) for s, a in zip(self.in_shardings, self.in_avals, strict=True))

    @property
    def out_shardings_hlo(self) -> tuple[Any, ...]:
        """For each leaf of the result XLA's form of its sharding, or None."""
        return tuple(types.hlo_of(s, a) for s, a in zip(self.out_shardings, self.out_avals, strict=True))

    def in_shardings_jax(self, mesh: Any) -> tuple[Any, ...]:
        """For each leaf of the arguments its sharding over the devices of `mesh`, or None.

        Args:
          mesh: a mesh of as many devices as the program is for.

        Returns:
          A tuple, one entry for each leaf.
        """
        return self._placed(self.in_shardings, mesh)

    def out_shardings_jax(self, mesh: Any) -> tuple[Any, ...]:
        """For each leaf of the result its sharding over the devices of `mesh`, or None.

        Args:
          mesh: a mesh of as many devices as the program is for.

        Returns:
          A tuple, one entry for each leaf.
        """
        return self._placed(self.out_shardings, mesh)

    def _placed(self, shardings: Sequence[Any], mesh: Any) -> tuple[Any, ...]:
        if mesh.size != self.nr_devices:
            raise ArgumentError(
                f"shardings of exported {self.fun_name}, argument mesh",
                expected=f"a mesh of {self.nr_devices} devices",
                got=mesh,
                mend="build one of that many devices",
            )
        return tuple(types.placed(s, mesh) for s in shardings)

    def mlir_module(self) -> str:
        """The program as the text of a StableHLO module.

        Returns:
          The text.
        """
        return str(stablehlo.deserialize(self.mlir_module_serialized, mlir.make_context()))

    def has_vjp(self) -> bool:
        """Whether the function's reverse derivative is there.

        Returns:
          A bool.
        """
        return self._get_vjp is not None

    def vjp(self) -> Exported:
        """The reverse derivative: takes the flat arguments and the flat cotangents of the results.

        Returns:
          An `Exported` with a cotangent for each flat argument, which has the shardings of this one and, where this
          one was not read from a file that ends there, a derivative itself. What has no derivative, such as integers,
          has arrays of False as its cotangents.

        Raises:
          ArgumentError: the artifact was serialized without it.
        """
        if self._get_vjp is None:
            raise ArgumentError(
                f"vjp of exported {self.fun_name}",
                expected="an artifact with its derivative",
                got="one that was serialized without",
                mend="export it again and serialize(vjp_order=1), or more for derivatives of derivatives",
            )
        return self._get_vjp()

    def serialize(self, vjp_order: int = 0) -> bytearray:
        """Write the artifact; docs/export-format.md describes it.

        Args:
          vjp_order: how many orders of the reverse derivative go with it.

        Returns:
          The bytes, for `deserialize`.

        Raises:
          ArgumentError: `vjp_order` is negative, or more than there is.
          TreeSerializationError: the arguments or results are in containers that were not registered.
        """
        from phalanx.export.format import write

        return write(self, vjp_order)

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function on arrays, or on traced values inside `jit`, `grad`, `vmap` and other exports.

        Args:
          *args, **kwargs: the arguments.

        Returns:
          What the function gives.

        Raises:
          TreeError: the arguments have another structure.
          ArgumentTypeError: an argument has another dtype.
          ShapeError: an argument has a shape that the program is not for.
          PlatformError: the program is not for the platform at hand.
          ShardingError: the program is for another number of devices.
        """
        return self._caller(args, kwargs)

    @functools.cached_property
    def _solution(self) -> Solution:
        """The dimension variables, solved for."""
        return solve_inputs(self.in_avals, f"exported {self.fun_name}", lambda i: self._argument_names[i])

    @functools.cached_property
    def _argument_names(self) -> list[str]:
        from phalanx.export.calling import argument_names

        return argument_names(self)

    @functools.cached_property
    def _caller(self) -> Callable[[tuple, dict], Any]:
        from phalanx.export.calling import caller

        return caller(self)

    call_exported = call


def export(
    fun_jit: Callable, *, platforms: Sequence[str] | None = None, disabled_checks: Sequence[DisabledSafetyCheck] = ()
) -> Callable[..., Exported]:
    """Export a compiled function.

    Args:
      fun_jit: a function made by `jit`.
      platforms: those to lower for, of "cpu", "cuda", "rocm" and "tpu"; the default one of this process if not given.
      disabled_checks: safety checks that you take upon yourself.

    Returns:
      A function that takes the same arguments as `fun_jit`, arrays or `ShapeDtypeStruct`s with ints and symbolic
      dimensions (see `symbolic_args_specs`), and gives the `Exported`.

    Raises:
      ArgumentTypeError: `fun_jit` was not made by `jit`.
      ArgumentError: a platform that does not exist.
      CustomCallError: from the returned function, where the program calls kernels without a promise.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> from phalanx import export
      >>> exported = export.export(phalanx.jit(jnp.sin))(phalanx.ShapeDtypeStruct((4,), "float32"))
      >>> again = export.deserialize(exported.serialize())
      >>> again.in_avals, float(again.call(jnp.zeros(4))[0])
      ((ShapedArray(float32[4]),), 0.0)
    """
    maker = getattr(fun_jit, "_jit", None)
    if maker is None:
        raise ArgumentTypeError(
            "export, argument fun_jit",
            expected="a function made by jit",
            got=f"{fun_jit!r} of type {type(fun_jit).__name__}",
            mend="export(phalanx.jit(f))(...)",
        )
    chosen, disabled = _checked_platforms(platforms), _checked_disabled(disabled_checks)

    def exporter(*args: Any, **kwargs: Any) -> Exported:
        traced = maker.trace(*args, **kwargs)
        _check_closed(traced)
        return _export(traced, chosen, disabled)

    return exporter


def default_export_platform() -> str:
    """The platform that `export` lowers for by itself: that of the default devices.

    Returns:
      "cpu" or "cuda".

    Examples:
      >>> default_export_platform() in ("cpu", "cuda")
      True
    """
    return client.platform_name(client.default_backend())


def _checked_platforms(platforms: Sequence[str] | None) -> tuple[str, ...]:
    if platforms is None:
        return (default_export_platform(),)
    if isinstance(platforms, str):
        raise ArgumentTypeError(
            "export, argument platforms",
            expected="a list of names",
            got=f"the name {platforms!r}",
            mend=f"give platforms=[{platforms!r}]",
        )
    chosen = tuple(map(client.platform_name, platforms))
    for platform in chosen:
        if platform not in PLATFORMS or chosen.count(platform) > 1:
            raise ArgumentError(
                "export, argument platforms",
                expected=f"some of {', '.join(PLATFORMS)}, each once",
                got=repr(tuple(platforms)),
                mend="correct the names",
            )
    if not chosen:
        raise ArgumentError("export, argument platforms", expected="one or more", got="none", mend="leave it out")
    return chosen


def _checked_disabled(checks: Any) -> tuple[DisabledSafetyCheck, ...]:
    if isinstance(checks, list | tuple) and all(isinstance(check, DisabledSafetyCheck) for check in checks):
        return tuple(checks)
    raise ArgumentTypeError(
        "export, argument disabled_checks",
        expected="a list of checks",
        got=checks,
        mend="give disabled_checks=[DisabledSafetyCheck.custom_call(name)], or [DisabledSafetyCheck.platform()]",
    )


def _check_closed(traced: Any) -> None:
    if traced.is_open:
        raise TraceError(
            f"export of {traced.fun_name}",
            expected="a function that closes over no traced value",
            got="one that closes over a value of a transformation around it",
            mend="pass that value as an argument",
        )


def _export(
    traced: Any, platforms: tuple[str, ...], disabled: tuple[DisabledSafetyCheck, ...], parameters: Sequence[str] = ()
) -> Exported:
    """Lower a traced function; `parameters` are what its positional parameters are called, where it does not say."""
    name = traced.fun_name
    program, options, call = traced.program, traced.options, traced._call
    held = [ArrayType(t.aval, on_stand_ins(t.sharding), t.committed) for t in traced.argument_types()]
    declared, out_declared = (list(map(on_stand_ins, s)) for s in (options.in_shardings, options.out_shardings))
    devices, in_shardings, _ = resolve(
        program,
        held,
        declared,
        out_declared,
        lambda i: f"export of {name}, argument {call.path(i)}",
        lambda i: f"export of {name}, result{traced.result_path(i)}",
    )
    portable = lower_portable(
        program,
        platforms,
        name=name,
        devices=devices,
        in_shardings=in_shardings,
        out_shardings=out_declared,
        keep_unused=options.keep_unused,
        disabled=disabled,
        names=call.path,
    )
    count = len(devices)
    # What types say of results over Explicit axes is part of the export as much as what the user says.
    out_shardings = [
        on_devices(a.sharding, devices) if s is None else s
        for s, a in zip(out_declared, program.out_avals, strict=True)
    ]
    in_avals, out_avals = (tuple(a.unsharded() for a in avals) for avals in (program.in_avals, program.out_avals))
    called = [call.signature.name_of(call.position(i)) for i in range(len(call.dynamic()[0]))]
    paths = parameters or [call.path(i) for i in range(len(in_avals))]
    results = [f"cotangent of result{traced.result_path(i)}" for i in range(len(out_avals))]
    ordered = effects.ordered(program.effects)
    return Exported(
        fun_name=name,
        in_tree=traced.in_tree,
        in_avals=in_avals,
        out_tree=traced.out_tree,
        out_avals=out_avals,
        in_shardings=tuple(types.stored(s, count, a) for s, a in zip(in_shardings, in_avals, strict=True)),
        out_shardings=tuple(types.stored(s, count, a) for s, a in zip(out_shardings, out_avals, strict=True)),
        nr_devices=count,
        platforms=platforms,
        ordered_effects=tuple(e.name for e in ordered),
        unordered_effects=tuple(sorted(e.name for e in program.effects if not e.ordered)),
        disabled_safety_checks=disabled,
        mlir_module_serialized=portable.artifact,
        calling_convention_version=maximum_supported_calling_convention_version,
        module_kept_var_idx=portable.kept,
        parameters=tuple(parameters or called),
        constraints=tuple(next((d.scope.texts for a in in_avals for d in a.shape if is_symbolic(d)), ())),
        _get_vjp=functools.cache(
            lambda: _export_vjp(name, program, in_shardings, out_shardings, platforms, disabled, [*paths, *results])
        ),
    )


def cotangent_type(aval: ShapedArray) -> ShapedArray:
    """The type of cotangents of `aval` at the border of an artifact, where bits stand for `float0`."""
    if has_derivative(aval):
        return aval.to_tangent().strengthened()
    return ShapedArray(aval.shape, np.dtype(np.bool_))


def has_derivative(aval: ShapedArray) -> bool:
    """Whether values of this type vary continuously."""
    return aval.to_tangent().dtype != dtypes.float0


def _export_vjp(
    name: str,
    program: Jaxpr,
    in_shardings: Sequence[Any],
    out_shardings: Sequence[Any],
    platforms: tuple[str, ...],
    disabled: tuple[DisabledSafetyCheck, ...],
    parameters: Sequence[str],
) -> Exported:
    count = len(program.invars)

    varied = [i for i, a in enumerate(program.in_avals) if has_derivative(a)]
    live = [i for i, a in enumerate(program.out_avals) if has_derivative(a)]

    def backward(*args: Any) -> tuple:
        def forward(*primals: Any) -> tuple:
            given = list(args[:count])
            for i, x in zip(varied, primals, strict=True):
                given[i] = x
            out = run_program(program, *given)
            return tuple(out[i] for i in live)

        pullback = vjp(forward, *(args[i] for i in varied))[1]
        x_bars = iter(pullback(tuple(args[count + i] for i in live)))
        return tuple(next(x_bars) if has_derivative(a) else full(a.shape, False, np.bool_) for a in program.in_avals)

    backward.__name__ = f"{name}_vjp"
    cotangents = [cotangent_type(a) for a in program.out_avals]
    shapes = [
        ShapeDtypeStruct(a.shape, a.dtype, weak_type=a.weak_type, sharding=s)
        for a, s in zip([*program.in_avals, *cotangents], [*in_shardings, *out_shardings], strict=True)
    ]
    traced = jit(backward, out_shardings=tuple(in_shardings)).trace(*shapes)
    return _export(traced, platforms, disabled, parameters)
