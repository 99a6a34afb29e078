"""Compiling for devices that are not attached, in a child process that has them as far as XLA needs.

A compiler in a separate process can neither slow this one down nor end it. The partitioner's questions about custom
calls whose partitioning is Python code are answered by this process, which has that code: the child sends each over its
standard output and waits for the answer.

`phalanx.planning` calls `compile_offline`; the child runs `main`.
"""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jaxlib.version
from jaxlib._jax import DeviceList

from phalanx.engine import callbacks, compiler, custom_call_partitioner, custom_call_targets, mlir, stablehlo
from phalanx.engine.child_process import start_child
from phalanx.engine.compile_only_devices import Topology, make_devices
from phalanx.engine.custom_call_partitioner import HloSharding, OpSharding, PartitionedCall
from phalanx.engine.defining_module import public_in
from phalanx.engine.error_record import PhalanxError
from phalanx.engine.mlir import ir

# XLA for CPUs keeps values of bfloat16 as float32 and sends them so, but keeps float16 as it is. A program for
# accelerators, which keep both, is therefore compiled with float16 in the place of bfloat16. Nothing runs it.
_BFLOAT16, _FLOAT16 = (re.compile(rf"(?<=[x<]){name}(?=[>,])") for name in ("bf16", "f16"))
# What an accelerator fuses and runs is computed from the single operations (`planning.accelerator_program`).
_WITHOUT_FUSIONS: dict[str, Any] = {"xla_disable_hlo_passes": "fusion,dot-library-rewriter"}
if jaxlib.version.__version__.startswith("0.10."):
    # Newer versions have no other emitter. This one makes no kernel for each operation, in less than half of the time.
    _WITHOUT_FUSIONS["xla_cpu_use_fusion_emitters"] = False
_ERROR = re.compile(r"[\w.]*(Error|Exception|Interrupt)\b")
_FLOAT16_IN_HLO = re.compile(r"\bf16(?=\[)")

Split = Callable[[str, str, Sequence[HloSharding], Sequence[HloSharding]], PartitionedCall]


@public_in("phalanx.planning")
class OfflineCompileError(PhalanxError, RuntimeError):
    """The compiler for devices that are not attached failed.

    Args:
      where, expected, got, fix: as in `PhalanxError`.

    Examples:
      >>> issubclass(OfflineCompileError, RuntimeError)
      True
    """


class OfflineProgram(NamedTuple):
    """What a compiler says about a program.

    Args:
      text: the optimized HLO in the order in which it is run, as one device runs it.
      memory: the bytes of one device, by the names of jaxlib's `CompiledMemoryStats`.
      compiler: the compiler and its version, such as "XLA for CPUs, jaxlib 0.12.0".
    """

    text: str
    memory: Mapping[str, int]
    compiler: str


def compile_offline(
    module: Any,
    topology: Topology,
    num_partitions: int,
    split: Split,
    targets: Sequence[str],
    *,
    propagate_to_outputs: Sequence[bool],
    num_callbacks: int = 0,
    options: Mapping[str, Any] | None = None,
    on_start: Callable[[subprocess.Popen[bytes]], object] | None = None,
    on_inspection: Callable[[int, HloSharding], object] | None = None,
) -> OfflineProgram:
    """Compile a module for devices that need not be attached.

    Args:
      module: the MLIR module, lowered for the platform of the devices.
      topology: the devices.
      num_partitions: the number of devices.
      split: answers the partitioner's questions: takes the target of a custom call, its configuration, and the
        shardings of its operands and results.
      targets: the targets of such calls.
      propagate_to_outputs: as in `compiler.compile_module`.
      num_callbacks: the number of Python callbacks of the program.
      options: XLA's options by name.
      on_start: called with the child process, which another thread may end.
      on_inspection: called with the number of each `callbacks.emit_sharding_inspection` of the module, in order, and
        with the sharding that the partitioner chooses. An exception ends the compilation.

    Returns:
      The compiled program.

    Raises:
      OfflineCompileError: the compiler failed; the error has its last words.
    """
    code, is_replaced = _encode(module, topology.stands_in)
    order = {
        "length": len(code),
        "topology": topology,
        "num_partitions": num_partitions,
        "targets": list(targets),
        "propagate_to_outputs": list(propagate_to_outputs),
        "num_callbacks": num_callbacks,
        "options": dict(options or {}),
    }
    with tempfile.TemporaryFile() as said, start_child(__name__, stderr=said) as child:
        if on_start is not None:
            on_start(child)
        try:
            child.stdin.write(json.dumps(order).encode() + b"\n" + code)  # type: ignore[union-attr]
            child.stdin.flush()  # type: ignore[union-attr]
            for line in child.stdout:  # type: ignore[union-attr]
                message = json.loads(line)
                if "program" in message:
                    program = OfflineProgram(**message["program"])
                    return program._replace(text=_FLOAT16_IN_HLO.sub("bf16", program.text)) if is_replaced else program
                if "inspection" in message:
                    assert on_inspection is not None, "the module was lowered with this callback"
                    on_inspection(message["inspection"], _read_sharding(message["sharding"]))
                    continue
                answer = split(*_read_question(message))
                if topology.stands_in:
                    answer = answer._replace(module=_BFLOAT16.sub("f16", answer.module))
                child.stdin.write(_format_answer(answer) + b"\n")  # type: ignore[union-attr]
                child.stdin.flush()  # type: ignore[union-attr]
        except BrokenPipeError:
            pass  # The child has ended; its standard error says why.
        finally:
            child.kill()
        said.seek(0)
        words = _find_error(said.read().decode(errors="replace"))
    raise OfflineCompileError(
        "compiling for devices that are not attached",
        expected="a program that XLA compiles",
        got=words or "an end of the compiler without a message",
        fix="compile the function for fewer, attached devices, which gives XLA's complete message",
    )


def _find_error(said: str) -> str:
    """The error at the end of what a child printed, which may have several lines, or else the last line."""
    lines = said.strip().splitlines()
    errors = [n for n, line in enumerate(lines) if _ERROR.match(line)]
    return " ".join(lines[errors[-1] if errors else -1 :])


def _encode(module: Any, without_bfloat16: bool) -> tuple[bytes, bool]:
    """A module for the child, and whether each float16 in it stands for bfloat16."""
    if without_bfloat16:
        text = module.operation.get_asm(enable_debug_info=True)
        if _BFLOAT16.search(text):
            return _BFLOAT16.sub("f16", text).encode(), not _FLOAT16.search(text)
    code = io.BytesIO()
    module.operation.write_bytecode(code)
    return code.getvalue(), False


def _read_question(message: Mapping[str, Any]) -> tuple[str, str, list[HloSharding], list[HloSharding]]:
    return (
        message["target"],
        message["config"],
        *(list(map(_read_sharding, message[s])) for s in ("operands", "results")),
    )


def _format_answer(answer: PartitionedCall) -> bytes:
    shardings = {s: list(map(_format_sharding, getattr(answer, s))) for s in ("operands", "results")}
    return json.dumps({"module": answer.module, **shardings}).encode()


def _format_sharding(sharding: HloSharding) -> str:
    return sharding.to_proto().SerializeToString().hex()


def _read_sharding(text: str) -> HloSharding:
    proto = OpSharding()
    proto.ParseFromString(bytes.fromhex(text))
    return HloSharding.from_proto(proto)


class _Parent:
    """The other end of the child's pipes."""

    def __init__(self) -> None:
        # What libraries print to the standard output must not come between the messages.
        self._out = os.fdopen(os.dup(1), "wb")
        os.dup2(2, 1)
        self._lock = threading.Lock()

    def send(self, message: Mapping[str, Any]) -> None:
        self._out.write(json.dumps(message).encode() + b"\n")
        self._out.flush()

    def report(self, number: int, sharding: HloSharding) -> None:
        """Report the sharding that the partitioner chooses for a value."""
        with self._lock:
            self.send({"inspection": number, "sharding": _format_sharding(sharding)})

    def ask(
        self, target: str, config: str, operands: Sequence[HloSharding], results: Sequence[HloSharding]
    ) -> PartitionedCall:
        """Ask how a call is partitioned."""
        shardings = {"operands": list(map(_format_sharding, operands)), "results": list(map(_format_sharding, results))}
        with self._lock:
            self.send({"target": target, "config": config, **shardings})
            answer = json.loads(sys.stdin.buffer.readline())
        return PartitionedCall(answer["module"], *(list(map(_read_sharding, answer[s])) for s in shardings))


def main() -> None:
    """Serve `compile_offline` in the child."""
    parent = _Parent()
    order = json.loads(sys.stdin.buffer.readline())
    topology = Topology(*order["topology"])
    devices, name = make_devices(topology, order["num_partitions"])
    if topology.platform in custom_call_partitioner.PLATFORMS:
        for target in order["targets"]:
            custom_call_partitioner.register(
                target, topology.platform, lambda *question, target=target: parent.ask(target, *question)
            )
    module = ir.Module.parse(sys.stdin.buffer.read(order["length"]), mlir.make_context())
    kept_alive = callbacks.redirect_sharding_inspections(module, parent.report)
    known = custom_call_targets.known_targets(topology.platform)
    for target in stablehlo.custom_calls(module):
        if target in known:
            custom_call_targets.require(target, topology.platform)
    options = (_WITHOUT_FUSIONS if topology.stands_in else {}) | order["options"]
    options = compiler.make_compile_options(devices, order["propagate_to_outputs"], options)
    if topology.platform == "cpu":
        functions = [[_not_called] * n] if (n := order["num_callbacks"]) else []
        executable = compiler.backend_compile_and_load(devices[0].client, module, devices, options, *functions)
    else:
        executable = devices[0].client.compile(module, DeviceList(tuple(devices)), options)
    del kept_alive
    stats = compiler.memory_stats(executable)
    memory = {name: n for name in dir(stats) if isinstance(n := getattr(stats, name), int) and not name.startswith("_")}
    parent.send({"program": {"text": compiler.hlo_text(executable), "memory": memory, "compiler": name}})
    os._exit(0)  # without destructors, which would wait for the threads of all devices


def _not_called(*_: Any) -> Any:
    raise NotImplementedError("a program that is compiled offline is not run")
