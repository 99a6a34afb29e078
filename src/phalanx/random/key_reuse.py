"""Reused random keys: with the option `debug_key_reuse`, a typed key that is drawn from or split twice is an error.

A program tells which of its inputs it uses up; the uses inside it are checked once, and what calls of programs use up
is remembered of the arrays themselves. Takes its seat in `runtime.dispatch`, which calls it where programs run.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

from phalanx.core import source
from phalanx.core.dtypes import KeyDtype
from phalanx.core.errors import PhalanxError, met_by
from phalanx.core.jaxpr import Eqn, Jaxpr, derivation, subprograms
from phalanx.lax.branches import cond_p
from phalanx.lax.scan_primitive import scan_p
from phalanx.lax.while_primitive import while_each_p, while_p
from phalanx.runtime.array import Array
from phalanx.runtime.dispatch import keys as seat

# By identity: the keys that have been used up and are still held, and what did it.
_used: dict[int, tuple[weakref.ref, str]] = {}


@met_by(
    "key = phalanx.random.key(0)",
    "with phalanx.debug_key_reuse(True): phalanx.random.normal(key), phalanx.random.normal(key)",
    expected="a key that is drawn from or split once",
)
class KeyReuseError(PhalanxError, RuntimeError):
    """A random key was used twice where that is checked."""


class Uses(NamedTuple):
    """What a program, or an equation, does to keys.

    takes: for each input, whether it is used up.
    passes: for each result, whether it is a key that was used up inside.
    """

    takes: list[bool]
    passes: list[bool]


def use_keys(program: Jaxpr, args: Sequence[Any]) -> None:
    """Remember which keys a call of a program uses up.

    Args:
      program: the program.
      args: the arrays that it is called with.

    Raises:
      KeyReuseError: one was used up before, or the program uses one twice.
    """
    takes = program_uses(program).takes
    for x, taken in zip((*program.consts, *args), takes, strict=True):
        if not taken or type(x) is not Array:
            continue
        held = _used.get(id(x))
        if held is not None and held[0]() is x:
            raise _error(f"an argument of {program.debug_name}, which uses it up", held[1])
        _used[id(x)] = weakref.ref(x, functools.partial(_forget, id(x))), program.debug_name


def _forget(key: int, _: weakref.ref) -> None:
    _used.pop(key, None)


@derivation
def program_uses(program: Jaxpr) -> Uses:
    """What a program does to the keys among its constants and inputs.

    Raises:
      KeyReuseError: it uses one twice.
    """
    used: dict[Any, str] = {}  # by variable: where
    for eqn in program.eqns:
        uses = _equation_uses(eqn)
        where = source.summary(eqn.source)
        for v, taken in zip(eqn.invars, uses.takes, strict=True):
            if taken and v in used:
                raise _error(f"a key that {eqn.primitive.name} uses at {where}", used[v])
            if taken:
                used[v] = where
        for v, is_used in zip(eqn.outvars, _passed(eqn, uses, used), strict=True):
            if is_used:
                used[v] = where
    return Uses([v in used for v in (*program.constvars, *program.invars)], [v in used for v in program.outvars])


def _passed(eqn: Eqn, uses: Uses, used: dict) -> list[bool]:
    """Which results are keys that were used up: those of a program say so, and parts of a used key are used."""
    keys = [v for v in eqn.invars if _is_key(v)]
    if eqn.primitive.holds_program or eqn.primitive.key_use is not None or not keys:
        return uses.passes
    return [_is_key(v) and all(k in used for k in keys) for v in eqn.outvars]


def _is_key(atom: Any) -> bool:
    return isinstance(atom.aval.dtype, KeyDtype)


def _equation_uses(eqn: Eqn) -> Uses:
    params, key_use = eqn.params, eqn.primitive.key_use
    keys = [_is_key(v) for v in eqn.invars]
    if not any(keys):
        return Uses([False] * len(keys), [False] * len(eqn.outvars))
    if key_use is not None:
        return Uses([k and key_use == "used up" for k in keys], [False] * len(eqn.outvars))
    if eqn.primitive is scan_p:
        return _scan_uses(eqn, program_uses(params["jaxpr"]), params["layout"])
    if eqn.primitive is cond_p:
        each = [program_uses(b) for b in params["branches"]]
        takes, passes = ([any(flags) for flags in zip(*kind, strict=True)] for kind in zip(*each, strict=True))
        return Uses([False, *takes], passes)
    if eqn.primitive in (while_p, while_each_p):
        return _while_uses(eqn, program_uses(params["cond"]), program_uses(params["body"]))
    for program in subprograms(params):
        if len(program.invars) == len(keys) and len(program.outvars) == len(eqn.outvars):
            return program_uses(program)
    return Uses([False] * len(keys), [False] * len(eqn.outvars))


def _scan_uses(eqn: Eqn, body: Uses, layout: Any) -> Uses:
    consts, num_carry = layout.num_consts, layout.num_carry
    if layout.length != 1:
        carried = zip(body.takes[consts : consts + num_carry], body.passes, strict=False)
        if any(body.takes[:consts]) or any(taken and passed for taken, passed in carried):
            raise _again(eqn)
    return body


def _while_uses(eqn: Eqn, cond: Uses, body: Uses) -> Uses:
    in_cond, in_body = eqn.params["num_cond_consts"], eqn.params["num_body_consts"]
    carried = zip(body.takes[in_body:], body.passes, strict=True)
    if any(cond.takes) or any(body.takes[:in_body]) or any(taken and passed for taken, passed in carried):
        raise _again(eqn)
    return Uses([*cond.takes[:in_cond], *body.takes], body.passes)


def _again(eqn: Eqn) -> KeyReuseError:
    return _error(f"a key that each iteration of {eqn.primitive.name} uses anew", source.summary(eqn.source))


def _error(got: str, before: str) -> KeyReuseError:
    return KeyReuseError(
        "random key",
        expected="a key that is drawn from or split once",
        got=f"{got}; it was used before by {before}",
        mend="split it first, `key, subkey = random.split(key)`, and use each of the new keys once",
    )


seat.take(use_keys=use_keys)
