"""For tests of users' programs: what a compiled function communicates, and the check that it is nothing else.

Builds on `spmd.communication`. Called by tests, ours too; nothing else in the package imports it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from phalanx.core.errors import ArgumentError, PhalanxError
from phalanx.engine.frames import guard as _guard
from phalanx.engine.hlo_text import KINDS
from phalanx.spmd.communication import Collective as Collective
from phalanx.spmd.communication import Collectives as Collectives
from phalanx.spmd.communication import collectives_of
from phalanx.spmd.jit import jit
from phalanx.spmd.stages import Compiled, Lowered, Traced


class CommunicationError(PhalanxError, AssertionError):
    """A compiled function communicates what it may not, or not what it should.

    Args:
      where, expected, got, mend: as in `PhalanxError`.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> try:
      ...     assert_collectives(jnp.sin, jnp.ones(2), required=["all-reduce"])
      ... except CommunicationError as error:
      ...     print(type(error).__name__)
      CommunicationError
    """


def collectives(f: Callable | Compiled | Lowered | Traced, *args: Any, **kwargs: Any) -> Collectives:
    """List what a compiled function communicates among devices.

    Args:
      f: a function, compiled here if it is not by `jit` already, or one of its stages.
      *args, **kwargs: what it would be called with, arrays or `ShapeDtypeStruct`s with shardings; none for a stage.

    Returns:
      A tuple of `Collective` records with kind, bytes on one device, mesh axes, source line, groups and loops; it
      prints as one line for each.

    Raises:
      ArgumentError: arguments are given for a stage, which was made for arguments already.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> mesh = phalanx.make_mesh((1,), ("data",))
      >>> x = phalanx.device_put(jnp.ones((8, 4)), phalanx.NamedSharding(mesh, phalanx.P("data")))
      >>> collectives(jnp.sum, x)
      no collectives
    """
    stage: Any = f
    if isinstance(f, Compiled | Lowered | Traced):
        if args or kwargs:
            raise ArgumentError(
                "collectives",
                expected="a stage alone, or a function with its arguments",
                got=f"a {type(f).__name__} stage and {len(args) + len(kwargs)} arguments",
                mend="leave the arguments out: the stage knows those it was made for",
            )
    else:
        stage = (f if hasattr(f, "lower") else jit(f)).lower(*args, **kwargs)
    if isinstance(stage, Traced):
        stage = stage.lower()
    return collectives_of((stage if isinstance(stage, Compiled) else stage.compile()).program)


def assert_collectives(
    f: Callable | Compiled | Lowered | Traced,
    *args: Any,
    allowed: Mapping[str, Any] | Iterable[str] = (),
    required: Iterable[str] = (),
    **kwargs: Any,
) -> Collectives:
    """Refuse a compiled function that communicates what it may not.

    Args:
      f: as for `collectives`.
      *args, **kwargs: as for `collectives`.
      allowed: the kinds that the function may use, such as `("all-reduce",)`; or for each kind the mesh axes that it
        may use it over, `{"all-reduce": ("data",)}`, None for any. Nothing is allowed unless said so.
      required: kinds that the function must use.

    Returns:
      What the function communicates.

    Raises:
      CommunicationError: it communicates something else, which the message lists with bytes, axes and lines.
      ArgumentError: there is no such kind.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> assert_collectives(jnp.sum, jnp.ones((8, 4)), allowed={"all-reduce": ("data",)})
      no collectives
    """
    axes = dict(allowed) if isinstance(allowed, Mapping) else dict.fromkeys(allowed)
    required = tuple(required)
    for kind in (*axes, *required):
        if kind not in KINDS:
            raise ArgumentError(
                "assert_collectives",
                expected=f"kinds out of {', '.join(KINDS)}",
                got=repr(kind),
                mend="use XLA's names",
            )
    found = collectives(f, *args, **kwargs)
    wrong = [c for c in found if not _is_allowed(c, axes)]
    missing = [kind for kind in required if kind not in found.kinds]
    if wrong or missing:
        lacks = [f"no {kind}" for kind in missing]
        raise CommunicationError(
            getattr(f, "__name__", "the program"),
            expected=_described(axes, required),
            got="; ".join([*map(str, wrong), *lacks]),
            mend="shard the operands of these lines along dimensions that they treat alike, or allow the kinds meant",
        )
    return found


def _is_allowed(c: Collective, allowed: Mapping[str, Any]) -> bool:
    if c.kind not in allowed:
        return False
    over = allowed[c.kind]
    over = (over,) if isinstance(over, str) else over
    return over is None or (c.axes is not None and set(c.axes) <= set(over))


def _described(allowed: Mapping[str, Any], required: tuple[str, ...]) -> str:
    each = [kind if over is None else f"{kind} over {over!r}" for kind, over in allowed.items()]
    text = "a program with no communication" + (f" but {', '.join(each)}" if each else "")
    return text + (f", and with {', '.join(required)}" if required else "")


_guard(globals())
