"""Lowering of a jaxpr to a whole MLIR module, whose parameters carry shardings, donations and kinds of memory.

Builds on `lowering`; `compiled_program` compiles the modules, and custom partitioning makes modules for single shards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from phalanx.core import Jaxpr, pause_collector, physical_aval
from phalanx.engine import mlir
from phalanx.engine.mlir import i32, ir
from phalanx.runtime.lowering import emit_function, to_symbol
from phalanx.runtime.memory_kinds import annotate_memories
from phalanx.runtime.module_context import ModuleContext
from phalanx.runtime.reshard_lowering import SLICED_FROM
from phalanx.runtime.shardy import sdy_sharding


def lower_jaxpr_to_module(
    program: Jaxpr,
    platform: str,
    *,
    num_partitions: int = 1,
    name: str = "main",
    in_shardings: Sequence[Any] | None = None,
    out_shardings: Sequence[Any] | None = None,
    donated: Sequence[int] = (),
    devices: Sequence[Any] | None = None,
    memories: tuple[Sequence[str | None], Sequence[str | None]] = ((), ()),
    is_attached: bool = True,
    manual: Any = None,
    slice_threshold: int = SLICED_FROM,
) -> ModuleContext:
    """Lower a jaxpr without constants to a module with one public function, `main`.

    Args:
      program: the jaxpr.
      platform: the platform that will run it.
      num_partitions: the number of devices that share it.
      name: the module's name, shown by profilers.
      in_shardings, out_shardings: for each parameter and result a sharding, or None to leave it to the partitioner.
      donated: numbers of the parameters whose buffers may be reused.
      devices: in partition order.
      memories: the kinds of memory of the parameters and of the results; None for the default one.
      is_attached: whether this process can run the module.
      manual: for a jaxpr that each device of a mesh runs, the mesh and its manual axes, which collectives read.
      slice_threshold: size in bytes of a device's shard from which resharding inside the program works in slices.
    """
    with pause_collector(), mlir.make_context(), ir.Location.unknown():
        module = ModuleContext((platform,), num_partitions, is_attached=is_attached, slice_threshold=slice_threshold)
        module.device_assignment, module.manual = devices, manual
        module.module.operation.attributes["sym_name"] = ir.StringAttr.get(to_symbol(f"jit_{name}"))
        module.module.operation.attributes["mhlo.num_partitions"] = i32(num_partitions)
        module.module.operation.attributes["mhlo.num_replicas"] = i32(1)
        module.memories = memories[1]
        parameters = sharding_attributes(module, program.invars, in_shardings)
        function = emit_function(
            module,
            program,
            "main",
            is_public=True,
            in_shardings=in_shardings or (),
            out_shardings=out_shardings or (),
            stays_in_memory=[True] * len(program.invars),
        )
        if donated or in_shardings is not None or any(memories[0]):
            shared = _match_donations(program, donated, in_shardings is not None)
            _annotate_parameters(function, annotate_memories(parameters, memories[0]), shared)
        if out_shardings is not None or any(memories[1]):
            results = sharding_attributes(module, program.outvars, out_shardings)
            function.attributes["res_attrs"] = make_dict_array(annotate_memories(results, memories[1]))
    return module


def sharding_attributes(module: ModuleContext, variables: Sequence[Any], shardings: Any) -> list[dict]:
    """The attributes by which parameters or results say their shardings, as far as they have any."""
    shardings = shardings if shardings is not None else [None] * len(variables)
    return [
        {} if s is None else {"sdy.sharding": sdy_sharding(module, s, physical_aval(v.aval).ndim)}
        for v, s in zip(variables, shardings, strict=True)
    ]


def make_dict_array(attributes: Sequence[dict]) -> Any:
    """What `arg_attrs` and `res_attrs` of a function take: a dictionary for each parameter or result."""
    return ir.ArrayAttr.get([ir.DictAttr.get(a) for a in attributes])


def _annotate_parameters(function: Any, attributes: Sequence[dict], shared: dict[int, int | None]) -> None:
    for i, result in shared.items():
        if result is None:
            attributes[i]["jax.buffer_donor"] = ir.BoolAttr.get(True)
        else:
            attributes[i]["tf.aliasing_output"] = i32(result)
    function.attributes["arg_attrs"] = make_dict_array(attributes)


def _match_donations(program: Jaxpr, donated: Sequence[int], partitioned: bool) -> dict[int, int | None]:
    """Pair donated parameters with results of the same type; None leaves the choice to the compiler."""
    # With several partitions a parameter and a result of one type may have different shardings, so only XLA can pair
    # them.
    if partitioned:
        return dict.fromkeys(donated)
    free: dict[Any, list[int]] = {}
    for i, v in enumerate(program.outvars):
        free.setdefault((v.aval.shape, v.aval.dtype), []).append(i)
    pairs: dict[int, int | None] = {}
    for i in donated:
        aval = program.invars[i].aval
        candidates = free.get((aval.shape, aval.dtype))
        if candidates:
            pairs[i] = candidates.pop(0)
    return pairs
