"""`while_loop`: a loop that runs while a condition holds.

The condition and the body are traced for the types of the carry (`loop_carry`) and bound to the primitive of
`while_primitive`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from phalanx.core import (
    ArgumentTypeError,
    ShapedArray,
    check_function,
    format_code_position,
    is_varying,
    state,
    union_varying,
    widen_varying,
)
from phalanx.lax.control_flow.control_flow_tracing import stage_body
from phalanx.lax.control_flow.loop_carry import check_carry, promote_carry
from phalanx.lax.control_flow.python_control_flow import runs_in_python, while_in_python
from phalanx.lax.control_flow.while_primitive import while_p
from phalanx.tree import PyTreeDef, tree_flatten, tree_unflatten, treedef_is_leaf
from phalanx.typing import ArrayLike, PyTree


def while_loop(
    cond_fun: Callable[[PyTree], ArrayLike], body_fun: Callable[[PyTree], PyTree], init_val: PyTree
) -> PyTree:
    """Repeat a function while a condition holds.

    Args:
      cond_fun: from the carry to a boolean scalar.
      body_fun: from the carry to the next carry, of the same structure and types.
      init_val: the initial carry, a pytree.

    Returns:
      The first carry for which the condition is false. A `while_loop` cannot be differentiated in reverse mode.

    Raises:
      ArgumentTypeError: the condition does not return a boolean scalar, or the body changes the types of the carry.
      TreeError: the body changes the structure of the carry.

    Examples:
      >>> import phalanx
      >>> int(phalanx.lax.while_loop(lambda x: x < 10, lambda x: 2 * x, 1))
      16
    """
    for name, fun in (("cond_fun", cond_fun), ("body_fun", body_fun)):
        check_function(f"while_loop, argument {name}", fun)
    label = lambda path: f"while_loop, result{path} of body_fun = {format_code_position(body_fun)}"
    return bind_while(cond_fun, body_fun, init_val, label)


def bind_while(
    cond_fun: Callable[[PyTree], ArrayLike],
    body_fun: Callable[[PyTree], PyTree],
    init_val: PyTree,
    result_label: Callable[[str], str],
    num_counters: int = 0,
) -> PyTree:
    """Trace a condition and a body and bind `while_p`.

    Args:
      cond_fun, body_fun, init_val: as in `while_loop`.
      result_label: names a place in the user's part of the returned carry, for errors.
      num_counters: how many scalars are carried in front of the user's part.
    """
    if state.context.disable_jit and runs_in_python(goes_on := cond_fun(init_val)):
        return while_in_python(cond_fun, body_fun, init_val, goes_on)
    flat, tree = tree_flatten(init_val)
    in_tree = tree_flatten((init_val,))[1]

    def make(avals: Sequence[ShapedArray]) -> tuple:
        body = stage_body(body_fun, in_tree, avals, "while_loop body")
        after = body.jaxpr.out_avals
        if not is_varying(avals, after):
            return body, after
        # Devices whose conditions differ run different numbers of iterations, so every value that the body changes
        # varies over the axes that the condition varies over.
        axes = union_varying(
            stage_body(cond_fun, in_tree, widen_varying(avals, after), "while_loop condition").jaxpr.out_avals
        )
        carried = zip(body.jaxpr.invars[len(body.consts) :], body.jaxpr.outvars, strict=True)
        unchanged = [v_in is v_out for v_in, v_out in carried]
        widened = [a if same else a.with_varying(a.varying | axes) for a, same in zip(after, unchanged, strict=True)]
        return body, widened

    flat, avals, (body, after) = promote_carry(flat, make)
    label = lambda path: f"init_val{path}"
    check_carry(result_label, label, (tree, avals), (body.out_tree, after), num_counters)
    # The condition is traced last, for the final types of the carry.
    cond = stage_body(cond_fun, in_tree, avals, "while_loop condition")
    _check_predicate(cond_fun, cond.jaxpr.out_avals, cond.out_tree)
    out = while_p(
        *cond.consts,
        *body.consts,
        *flat,
        cond=cond.jaxpr,
        body=body.jaxpr,
        num_cond_consts=len(cond.consts),
        num_body_consts=len(body.consts),
    )
    return tree_unflatten(tree, out)


def _check_predicate(cond_fun: Callable, avals: Sequence[ShapedArray], tree: PyTreeDef) -> None:
    """Refuse a condition that does not return one boolean scalar."""
    if not treedef_is_leaf(tree) or avals[0].shape != () or avals[0].dtype != np.bool_:
        types = ", ".join(a.str_short() for a in avals) or "no arrays"
        container = type(tree_unflatten(tree, avals)).__name__
        raise ArgumentTypeError(
            f"while_loop, the result of cond_fun = {format_code_position(cond_fun)}",
            expected="a boolean scalar",
            got=types if treedef_is_leaf(tree) else f"a {container} of {types}",
            fix="return a comparison, or reduce the result with .any() or .all()",
        )
