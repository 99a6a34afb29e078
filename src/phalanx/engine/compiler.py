"""Compiling: from an MLIR module to an executable on devices, with its shardings, layouts, HLO text and costs.

Builds on `client` and `compilation_cache`; `runtime.compiled_program` calls it.
"""

from __future__ import annotations

import ctypes
import enum
import functools
import re
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxlib import _jax
from jaxlib._jax import LoadedExecutable as LoadedExecutable

from phalanx.engine import client, compilation_cache, custom_call_partitioner, monitoring, runtime_errors
from phalanx.engine.client import Client, Device, DeviceList
from phalanx.engine.error_record import PhalanxError
from phalanx.engine.thread_call import call_in_thread

OptionValue = str | int | bool | float

_OPTION_ERROR = re.compile(r"No such compile option: '([^']+)'|While setting option ([^,\s]+),")


class CompilerEffortLevel(enum.Enum):
    """The effort that XLA takes, as a value of the compiler options "optimization_level" and "memory_fitting_level".

    Higher levels take longer to compile. The numbers are XLA's (https://openxla.org/xla/effort_levels).

    Examples:
      >>> import phalanx
      >>> options = {"optimization_level": CompilerEffortLevel.O1, "memory_fitting_level": "O3"}
      >>> float(phalanx.jit(lambda x: x + 1, compiler_options=options)(1.0))
      2.0
    """

    UNKNOWN = 0  # leaves the choice to XLA
    O0 = 9
    O1 = 19
    O2 = 29
    O3 = 39


_EFFORT_OPTIONS = ("optimization_level", "memory_fitting_level")


class CompilerOptionError(PhalanxError, ValueError, runtime_errors.XlaRuntimeError):
    """XLA does not know a compiler option, or does not accept its value."""


def compile_module(
    module: Any,
    devices: Sequence[Device],
    *,
    propagate_to_outputs: Sequence[bool] = (True,),
    host_callbacks: Sequence[Any] = (),
    options: Mapping[str, OptionValue] | None = None,
    levels: tuple[str, str] = ("UNKNOWN", "O2"),
    is_cacheable: bool = True,
) -> LoadedExecutable:
    """Compile a StableHLO module and load it on devices.

    Args:
      module: the MLIR module, whose public function `main` is the program.
      devices: in partition order.
      propagate_to_outputs: for each result, whether the partitioner may choose its sharding; one entry applies to all.
      host_callbacks: the callables to which the program's Python callbacks refer by position.
      options: XLA's options by name, from the user.
      levels: XLA's effort, a name in `CompilerEffortLevel`, to make the program fast and to make it fit into memory.
      is_cacheable: whether compiling has no side effect, so that a stored executable can take its place.

    Returns:
      The loaded executable.

    Raises:
      CompilerOptionError: XLA does not know an option, or does not accept its value.
    """
    client.check_not_forked()
    compile_options = make_compile_options(devices, propagate_to_outputs, options, levels)
    compile_anew = functools.partial(_compile, module, devices, compile_options, host_callbacks, options or {})
    cache = compilation_cache.settings()
    with monitoring.timed(monitoring.COMPILE, fun_name=_module_name(module)):
        # A stored executable cannot refer to Python functions of another process.
        if cache.directory is None or host_callbacks or not is_cacheable:
            return compile_anew()
        backend = devices[0].client
        return compilation_cache.cached(
            compilation_cache.make_key(module, compile_options, devices),
            cache,
            make=compile_anew,
            dump=backend.serialize_executable,
            revive=lambda stored: backend.deserialize_executable(stored, DeviceList(tuple(devices)), compile_options),
        )


def _module_name(module: Any) -> str:
    attributes = module.operation.attributes
    return str(attributes["sym_name"].value) if "sym_name" in attributes else "main"


def _compile(
    module: Any,
    devices: Sequence[Device],
    compile_options: Any,
    host_callbacks: Sequence[Any],
    options: Mapping[str, OptionValue],
) -> LoadedExecutable:
    callbacks = [list(host_callbacks)] if host_callbacks else []
    compile_it = lambda: backend_compile_and_load(devices[0].client, module, devices, compile_options, *callbacks)
    try:
        # jaxlib 0.12 compiles in the thread that calls it. In the main thread, a signal would wait for the end, or its
        # handler would raise in a callback of the partitioner, and XLA keeps the text of exceptions only.
        is_main = threading.current_thread() is threading.main_thread()
        return call_in_thread(compile_it) if is_main else compile_it()
    except runtime_errors.XlaRuntimeError as error:
        # The exception of a partitioning callback, if one of them made the compilation fail.
        if (cause := runtime_errors.unwrap_callback_error(error)) is not error:
            raise cause from None
        _raise_if_option_error(error, options)
        raise
    except BaseException:
        # A signal handler, such as that of Ctrl-C, raises while another thread compiles, which goes on to read the
        # module. It must never be freed, not even when the interpreter ends. Other exceptions are rare here.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object((module, host_callbacks)))
        raise


def backend_compile_and_load(
    backend: Client, module: Any, devices: Sequence[Device], compile_options: Any, *host_callbacks: Any
) -> LoadedExecutable:
    """Have the client of a platform compile a module; all compilations call this function, which tools may replace."""
    return backend.compile_and_load(module, DeviceList(tuple(devices)), compile_options, *host_callbacks)


def _raise_if_option_error(error: BaseException, options: Mapping[str, OptionValue]) -> None:
    """Raise a `CompilerOptionError` if XLA's error is about an option that the user set."""
    found = _OPTION_ERROR.search(str(error))
    name = (found[1] or found[2]) if found else ""
    if name in options:
        raise CompilerOptionError(
            f"compiler_options[{name!r}]",
            expected="an option that XLA knows, with a value of its type",
            got=f"{options[name]!r} ({str(error).removeprefix('INVALID_ARGUMENT: ')})",
            fix=f"check the spelling of {name!r} among XLA's flags, or leave the option out",
        ) from error


def make_compile_options(
    devices: Sequence[Device],
    propagate_to_outputs: Sequence[bool],
    options: Mapping[str, OptionValue] | None,
    levels: tuple[str, str] = ("UNKNOWN", "O2"),
) -> Any:
    """Make jaxlib's compile options; the arguments are as in `compile_module`."""
    ids = np.array([[device.id for device in devices]], np.int32)  # one replica, all devices are its partitions
    compile_options = _jax.CompileOptions()
    compile_options.profile_version = -1  # XLA's value for "use no recorded profile"
    build = compile_options.executable_build_options
    for part in (compile_options, build):
        part.num_replicas, part.num_partitions = ids.shape
        part.device_assignment = _jax.DeviceAssignment.create(ids)
    build.use_spmd_partitioning = True
    build.use_auto_spmd_partitioning = False
    build.use_shardy_partitioner = True
    # A list of one entry applies to all results; an empty one, of a program without results, is an error in XLA.
    build.allow_spmd_sharding_propagation_to_output = list(propagate_to_outputs) or [True]
    build.allow_spmd_sharding_propagation_to_parameters = [True]
    build.debug_options.xla_detailed_logging = False
    flags = dict(zip(_EFFORT_OPTIONS, levels, strict=True)) | dict(options or {})
    for name in _EFFORT_OPTIONS:
        setattr(build, name, _effort(name, flags.pop(name)))
    if flags:
        compile_options.env_option_overrides = [(name, _option_value(name, value)) for name, value in flags.items()]
    return compile_options


def _effort(name: str, value: Any) -> int:
    """The number of an effort level that is given as a member, its name or its number."""
    for level in CompilerEffortLevel:
        if value in (level, level.name, level.value):
            return level.value
    raise CompilerOptionError(
        f"compiler_options[{name!r}]",
        expected=f"a CompilerEffortLevel, or the name of one: {', '.join(CompilerEffortLevel.__members__)}",
        got=repr(value),
        fix="pass 'O2' for XLA's default effort",
    )


def _option_value(name: str, value: OptionValue) -> OptionValue:
    if isinstance(value, (str, bool, int, float)):
        return value
    raise CompilerOptionError(
        f"compiler_options[{name!r}]",
        expected="a str, bool, int or float",
        got=value,
        fix=f"convert it, for example with str({value!r})",
    )


def serialize_executable(executable: LoadedExecutable) -> bytes:
    """The machine code of an executable, for devices of the same kind and the same version of XLA."""
    return executable.client.serialize_executable(executable)


def load_executable(code: bytes, devices: Sequence[Device], num_results: int) -> LoadedExecutable:
    """Load the machine code of a program with that many results on devices, given in partition order."""
    options = make_compile_options(devices, [True] * num_results, None)
    return devices[0].client.deserialize_executable(code, DeviceList(tuple(devices)), options)


def executable_shardings(executable: LoadedExecutable) -> tuple[list[Any] | None, list[Any] | None]:
    """The shardings of the parameters and results that the compiler chose.

    Args:
      executable: a loaded executable.

    Returns:
      Two lists of `HloSharding`; each is None if XLA has none, as for a program on one device.
    """
    return _hlo_shardings(executable.get_parameter_shardings()), _hlo_shardings(executable.get_output_shardings())


def _hlo_shardings(protos: list[Any] | None) -> list[Any] | None:
    return None if protos is None else [custom_call_partitioner.HloSharding.from_proto(proto) for proto in protos]


def executable_layouts(executable: LoadedExecutable) -> tuple[list[Any], list[Any]]:
    """The layouts of the parameters and of the results, as jaxlib's `PjRtLayout`s."""
    return executable.get_parameter_layouts(), executable.get_output_layouts()


_ALIAS = re.compile(r"\}: \((\d+), ")


def aliased_parameters(executable: LoadedExecutable) -> set[int]:
    """The numbers of the parameters whose buffers the executable reuses for results.

    Only the text has them, in its first line: `input_output_alias={ {0}: (2, {}, may-alias) }`.
    """
    aliases = executable.hlo_modules()[0].to_string().partition("\n")[0].partition("input_output_alias={ ")[2]
    return set(map(int, _ALIAS.findall(aliases.partition(" }, ")[0])))


def hlo_text(executable: LoadedExecutable) -> str:
    """Format the compiled program: HLO after all passes, as one device runs it."""
    return "\n\n".join(module.to_string() for module in executable.hlo_modules())


def cost_analysis(executable: LoadedExecutable) -> dict[str, Any]:
    """XLA's estimate of the compiled program's work, by name ("flops", "bytes accessed", ...)."""
    return executable.cost_analysis()


def memory_stats(executable: LoadedExecutable) -> Any:
    """The memory that one device needs for the executable, as jaxlib's `CompiledMemoryStats`."""
    return executable.get_compiled_memory_stats()
