"""Calls of jaxprs as primitives that users define: each has a name, and every transformation transforms its jaxpr."""

from __future__ import annotations

from typing import Any

from phalanx import core
from phalanx.extend.rule_tables import primitive_transposes
from phalanx.extend.user_primitive import Primitive
from phalanx.transforms.call_primitives import PartialEvalCall


class UserCall(PartialEvalCall):
    """A call of the jaxpr in the parameter `call_jaxpr`; its other parameters are the user's and stay as they are.

    Args:
      name: the name in printed jaxprs.
    """

    program = "call_jaxpr"
    call_primitive = True

    def __init__(self, name: str):
        self.name = name
        super().__init__()

    def _register(self) -> None:
        """Not in the table of primitives by name, where it could take the place of another one."""

    def lower(self, ctx: Any, *operands: Any, call_jaxpr: core.Jaxpr, **params: Any) -> list[Any]:
        return ctx.call(call_jaxpr, operands, self.name)


def create_call_primitive(name: str) -> core.Primitive:
    """Make a primitive that calls the jaxpr in its parameter `call_jaxpr`, under every transformation.

    Args:
      name: the name in printed jaxprs, and of the function in compiled programs.

    Returns:
      The primitive; `bind(*operands, call_jaxpr=jaxpr, **params)` returns the list of the results of the jaxpr.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> block_p = create_call_primitive("block")
      >>> program = phalanx.make_jaxpr(jnp.sin)(1.0)
      >>> f = lambda x: block_p.bind(x, call_jaxpr=program)[0]
      >>> bool(phalanx.grad(f)(0.0) == 1.0), len(phalanx.make_jaxpr(f)(0.0).eqns)
      (True, 1)
    """
    return UserCall(name)


def register_call_primitive_rules(prim: Primitive, name: str | None = None, transpose_rule: Any = None) -> None:
    """Give a primitive that a program defines the rules of a call of its parameter `call_jaxpr`.

    Args:
      prim: the primitive.
      name: the name of the function in compiled programs; by default that of the primitive.
      transpose_rule: a transpose rule in place of the one of calls.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> from phalanx.extend.core import Primitive
      >>> block_p = Primitive("block")
      >>> register_call_primitive_rules(block_p)
      >>> program = phalanx.make_jaxpr(jnp.sin)(1.0)
      >>> float(phalanx.grad(lambda x: block_p.bind(x, call_jaxpr=program)[0])(0.0))
      1.0
    """
    call = UserCall(name or prim.name)
    prim.multiple_results = prim.call_like = True
    for rule in _RULES:
        setattr(prim, rule, getattr(call, rule))
    prim.def_impl(call.bind)
    prim.def_effectful_abstract_eval(lambda *avals, call_jaxpr, **_: (call_jaxpr.out_avals, call_jaxpr.effects))
    if transpose_rule is not None:
        primitive_transposes[prim] = transpose_rule


_RULES = "sharding_rule lower jvp transpose batch_axis linearize partial_eval partial_eval_eqn dce".split()

call_p = UserCall("call")
closed_call_p = UserCall("closed_call")
