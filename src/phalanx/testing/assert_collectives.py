"""`collectives` and `assert_collectives`: list and check the communication of compiled functions in tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from phalanx.core import ArgumentError, PhalanxError
from phalanx.engine.hlo_collectives import KINDS
from phalanx.engine.traceback_filtering import guard_namespace as _guard
from phalanx.spmd.communication import Collective as Collective, Collectives as Collectives, list_collectives
from phalanx.spmd.communication_causes import CAUSES
from phalanx.spmd.jit import jit
from phalanx.spmd.stages import Compiled, Lowered, Traced


class CommunicationError(PhalanxError, AssertionError):
    """A compiled function has collectives that are not allowed, or lacks required ones.

    Args:
      where, expected, got, fix: as in `PhalanxError`.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> try:
      ...     assert_collectives(jnp.sin, jnp.ones(2), required=["all-reduce"])
      ... except CommunicationError as error:
      ...     print(type(error).__name__)
      CommunicationError
    """


def collectives(f: Callable | Compiled | Lowered | Traced, *args: Any, **kwargs: Any) -> Collectives:
    """List the collectives of a compiled function.

    Args:
      f: a function, which is compiled with `jit` if necessary, or a stage of compilation.
      *args, **kwargs: arguments of the function: arrays, or `ShapeDtypeStruct`s with shardings. None for a stage.

    Returns:
      A tuple of `Collective` records with kind, bytes on one device, mesh axes, source line, groups and loops. The
      printed form has one line per collective.

    Raises:
      ArgumentError: `f` is a stage and there are arguments.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> mesh = phalanx.make_mesh((1,), ("data",))
      >>> x = phalanx.device_put(jnp.ones((8, 4)), phalanx.NamedSharding(mesh, phalanx.P("data")))
      >>> collectives(jnp.sum, x)
      no collectives
    """
    if isinstance(f, Compiled | Lowered | Traced) and (args or kwargs):
        raise ArgumentError(
            "collectives",
            expected="a stage alone, or a function with its arguments",
            got=f"a {type(f).__name__} stage and {len(args) + len(kwargs)} arguments",
            fix="leave the arguments out: a stage is compiled for fixed types of arguments",
        )
    stage: Any = f
    if not isinstance(f, Compiled | Lowered):
        # A function of `jit` keeps its options, as a traced stage does; any other callable is compiled with the
        # defaults.
        stage = (f if hasattr(f, "lower") else jit(f)).lower(*args, **kwargs)
    return list_collectives((stage if isinstance(stage, Compiled) else stage.compile()).program)


def assert_collectives(
    f: Callable | Compiled | Lowered | Traced,
    *args: Any,
    allowed: Mapping[str, Any] | Iterable[str] = (),
    required: Iterable[str] = (),
    **kwargs: Any,
) -> Collectives:
    """Check that a compiled function has only the allowed collectives, and all of the required ones.

    Args:
      f: as for `collectives`.
      *args, **kwargs: as for `collectives`.
      allowed: the allowed kinds, such as `("all-reduce",)`, and causes, such as `("asked", "implied")`; or a dict from
        these to the mesh axes along which they are allowed, such as `{"all-reduce": ("data",)}`, with None for any
        axes. By default no collective is allowed.
      required: kinds and causes of which at least one collective must exist.

    Returns:
      The collectives of the function.

    Raises:
      CommunicationError: a collective is not allowed, or a required one is missing; the message lists bytes, axes and
        source lines.
      ArgumentError: an unknown kind or cause.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> assert_collectives(jnp.sum, jnp.ones((8, 4)), allowed={"all-reduce": ("data",)})
      no collectives
    """
    axes = dict(allowed) if isinstance(allowed, Mapping) else dict.fromkeys(allowed)
    required = tuple(required)
    for kind in (*axes, *required):
        if kind not in (*KINDS, *CAUSES):
            raise ArgumentError(
                "assert_collectives",
                expected=f"names among {', '.join((*KINDS, *CAUSES))}",
                got=repr(kind),
                fix=f"replace {kind!r} by the name of a collective in XLA, or by a cause",
            )
    found = collectives(f, *args, **kwargs)
    # All violations are collected first, so that one failure shows the complete list.
    wrong = [c for c in found if not _is_allowed(c, axes)]
    missing = [kind for kind in required if not any(kind in (c.kind, c.cause) for c in found)]
    if wrong or missing:
        raise CommunicationError(
            getattr(f, "__name__", "the program"),
            expected=_describe_expected(axes, required),
            got="; ".join([*map(str, wrong), *(f"no {kind}" for kind in missing)]),
            fix="shard the operands of these lines along dimensions that need no communication, or add the kinds or "
            "causes to `allowed`",
        )
    return found


def _is_allowed(c: Collective, allowed: Mapping[str, Any]) -> bool:
    for over in (allowed[name] for name in (c.kind, c.cause) if name in allowed):
        over = (over,) if isinstance(over, str) else over
        if over is None or (c.axes is not None and set(c.axes) <= set(over)):
            return True
    return False


def _describe_expected(allowed: Mapping[str, Any], required: tuple[str, ...]) -> str:
    each = [kind if over is None else f"{kind} over {over!r}" for kind, over in allowed.items()]
    but, also = f" but {', '.join(each)}" if each else "", f", and with {', '.join(required)}" if required else ""
    return f"a program with no communication{but}{also}"


_guard(globals())
