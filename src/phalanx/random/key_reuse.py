"""Detection of reused random keys: under the option `debug_key_reuse`, consuming a typed key twice is an error.

A key is consumed when it is drawn from or split. `jaxpr_uses` computes once for each jaxpr which of its inputs are
consumed, and raises if one is consumed twice inside. `use_keys`, which `runtime.compiled_program` calls before a jaxpr
runs, records the consumed arrays by identity.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

from phalanx.core import (
    Eqn,
    Jaxpr,
    KeyDtype,
    Literal,
    PhalanxError,
    Var,
    cached_on_jaxpr,
    example,
    inner_jaxprs,
    source_info,
)
from phalanx.lax.control_flow.cond import cond_p
from phalanx.lax.control_flow.scan_primitive import ScanLayout, scan_p
from phalanx.lax.control_flow.while_loop import while_each_p, while_p
from phalanx.runtime import Array, run_checks

# By id of the array: the consumed keys that are still alive, and the name of the jaxpr that consumed them. The weak
# references tell a live key from a new array at the address of a dead one.
_used: dict[int, tuple[weakref.ref, str]] = {}


@example(
    "key = phalanx.random.key(0)",
    "with phalanx.debug_key_reuse(True): phalanx.random.normal(key), phalanx.random.normal(key)",
    expected="a key that is drawn from or split once",
)
class KeyReuseError(PhalanxError, RuntimeError):
    """A random key was consumed twice under the option `debug_key_reuse`."""


class Uses(NamedTuple):
    """The effect of a jaxpr, or of an equation, on keys.

    Args:
      takes: for each input, whether it is consumed.
      passes: for each result, whether it is a key that was consumed inside.
    """

    takes: list[bool]
    passes: list[bool]


def use_keys(jaxpr: Jaxpr, args: Sequence[Any]) -> None:
    """Record the keys that a call of a jaxpr consumes.

    Args:
      jaxpr: the jaxpr.
      args: the arrays that it is called with.

    Raises:
      KeyReuseError: a key was consumed before, or the jaxpr consumes one twice.
    """
    takes = jaxpr_uses(jaxpr).takes
    for x, taken in zip((*jaxpr.consts, *args), takes, strict=True):
        if not taken or type(x) is not Array:
            continue
        held = _used.get(id(x))
        if held is not None and held[0]() is x:
            raise _error(f"an argument of {jaxpr.debug_name}, which consumes it", held[1])
        _used[id(x)] = weakref.ref(x, functools.partial(_forget, id(x))), jaxpr.debug_name


def _forget(key: int, _: weakref.ref) -> None:
    _used.pop(key, None)


@cached_on_jaxpr
def jaxpr_uses(jaxpr: Jaxpr) -> Uses:
    """Compute the effect of a jaxpr on the keys among its constants and inputs.

    Raises:
      KeyReuseError: it consumes a key twice.
    """
    used: dict[Var, str] = {}  # the source line at which each variable was consumed
    for eqn in jaxpr.eqns:
        uses = _equation_uses(eqn)
        where = source_info.format_source(eqn.source)
        for v, taken in zip(eqn.invars, uses.takes, strict=True):
            if taken and v in used:
                raise _error(f"a key that {eqn.primitive.name} uses at {where}", used[v])
            if taken:
                used[v] = where
        used |= {v: where for v, is_used in zip(eqn.outvars, _passed(eqn, uses, used), strict=True) if is_used}
    return Uses([v in used for v in (*jaxpr.constvars, *jaxpr.invars)], [v in used for v in jaxpr.outvars])


def _passed(eqn: Eqn, uses: Uses, used: dict) -> list[bool]:
    """Whether each result is a consumed key. A part of a consumed key is consumed as well."""
    keys = [v for v in eqn.invars if _is_key(v)]
    if eqn.primitive.call_like or eqn.primitive.consumes_keys is not None or not keys:
        return uses.passes
    return [_is_key(v) and all(k in used for k in keys) for v in eqn.outvars]


def _is_key(atom: Var | Literal) -> bool:
    return isinstance(atom.aval.dtype, KeyDtype)


def _equation_uses(eqn: Eqn) -> Uses:
    params, consumes_keys = eqn.params, eqn.primitive.consumes_keys
    keys = [_is_key(v) for v in eqn.invars]
    if not any(keys):
        return Uses([False] * len(keys), [False] * len(eqn.outvars))
    if consumes_keys is not None:
        return Uses([k and consumes_keys for k in keys], [False] * len(eqn.outvars))
    if eqn.primitive is scan_p:
        return _scan_uses(eqn, jaxpr_uses(params["jaxpr"]), params["layout"])
    if eqn.primitive is cond_p:
        each = [jaxpr_uses(b) for b in params["branches"]]
        takes, passes = ([any(flags) for flags in zip(*kind, strict=True)] for kind in zip(*each, strict=True))
        return Uses([False, *takes], passes)
    if eqn.primitive in (while_p, while_each_p):
        return _while_uses(eqn, jaxpr_uses(params["cond_jaxpr"]), jaxpr_uses(params["body_jaxpr"]))
    for jaxpr in inner_jaxprs(params):
        if len(jaxpr.invars) == len(keys) and len(jaxpr.outvars) == len(eqn.outvars):
            return jaxpr_uses(jaxpr)
    return Uses([False] * len(keys), [False] * len(eqn.outvars))


def _scan_uses(eqn: Eqn, body: Uses, layout: ScanLayout) -> Uses:
    consts, num_carry = layout.num_consts, layout.num_carry
    if layout.length != 1:
        carried = zip(body.takes[consts : consts + num_carry], body.passes, strict=False)
        if any(body.takes[:consts]) or any(taken and passed for taken, passed in carried):
            raise _loop_error(eqn)
    return body


def _while_uses(eqn: Eqn, cond: Uses, body: Uses) -> Uses:
    in_cond, in_body = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
    carried = zip(body.takes[in_body:], body.passes, strict=True)
    if any(cond.takes) or any(body.takes[:in_body]) or any(taken and passed for taken, passed in carried):
        raise _loop_error(eqn)
    return Uses([*cond.takes[:in_cond], *body.takes], body.passes)


def _loop_error(eqn: Eqn) -> KeyReuseError:
    return _error(f"a key that each iteration of {eqn.primitive.name} uses anew", source_info.format_source(eqn.source))


def _error(got: str, before: str) -> KeyReuseError:
    return KeyReuseError(
        "random key",
        expected="a key that is drawn from or split once",
        got=f"{got}; it was used before by {before}",
        fix="split it first, `key, subkey = random.split(key)`, and use each of the new keys once",
    )


run_checks.provide(use_keys=use_keys)
