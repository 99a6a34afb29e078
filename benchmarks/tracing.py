"""The front end: tracing and lowering of straight-line programs, per operation, with and without transformations.

Each repetition traces a function object that nobody has seen, so no cache can answer for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.harness import Row, Timed, bench

TRACE = Row("trace per operation (geometric mean over lax and numpy spellings)", at_most=0.3)
TRACE_TRANSFORMED = Row("trace of grad, jvp, vmap per operation", at_most=0.3)
LOWER = Row("lower per operation", at_most=0.5)
LENGTH = 200


def repeat(f: Callable[[Any], Any], times: int) -> Callable[[Any], Any]:
    """A new function that applies `f` again and again."""

    def chain(x):
        for _ in range(times):
            x = f(x)
        return x

    return chain


#   name             one operation from f32[4, 4] back to it, perhaps in two turns, of the module
SPELLINGS = {
    "lax_add": lambda xp: lambda x: xp.lax.add(x, x),
    "lax_sin": lambda xp: xp.lax.sin,
    "lax_max": lambda xp: lambda x: xp.lax.max(x, x),
    "lax_reshape": lambda xp: lambda x: xp.lax.reshape(x, (16,) if x.ndim == 2 else (4, 4)),
    "lax_transpose": lambda xp: lambda x: xp.lax.transpose(x, (1, 0)),
    "lax_broadcast_squeeze": lambda xp: (
        lambda x: xp.lax.broadcast_in_dim(x, (1, 4, 4), (1, 2)) if x.ndim == 2 else xp.lax.squeeze(x, (0,))
    ),
    "lax_select": lambda xp: lambda x, mask=np.eye(4, dtype=bool): xp.lax.select(mask, x, x),
    "lax_pad_slice": lambda xp: (
        lambda x: xp.lax.pad(x, 0.0, ((0, 1, 0), (0, 0, 0))) if x.shape[0] == 4 else xp.lax.slice(x, (1, 0), (5, 4))
    ),
    "lax_dynamic_slice": lambda xp: lambda x: xp.lax.dynamic_slice(x, (0, 0), (4, 4)),
    "lax_dot": lambda xp: lambda x: xp.lax.dot(x, x),
    "lax_convert": lambda xp: lambda x: xp.lax.convert_element_type(x, other_float(x.dtype)),
    "operator_add": lambda xp: lambda x: x + x,
    "operator_scalar": lambda xp: lambda x: x * 2.0,
    "numpy_add": lambda xp: lambda x: xp.numpy.add(x, x),
    "numpy_sin": lambda xp: xp.numpy.sin,
    "numpy_sum": lambda xp: lambda x: xp.numpy.sum(x, axis=0, keepdims=True),
    "numpy_mean": lambda xp: lambda x: xp.numpy.mean(x, axis=0, keepdims=True),
    "numpy_maximum": lambda xp: lambda x: xp.numpy.maximum(x, 0.0),
    "numpy_where": lambda xp: lambda x: xp.numpy.where(x > 0, x, 0.0),
    "numpy_reshape": lambda xp: lambda x: xp.numpy.reshape(x, (16,) if x.ndim == 2 else (4, 4)),
    "numpy_transpose": lambda xp: xp.numpy.transpose,
    "numpy_broadcast_to": lambda xp: lambda x: xp.numpy.broadcast_to(x[:1], (4, 4)),
    "numpy_concatenate": lambda xp: lambda x: xp.numpy.concatenate([x[:2], x[2:]]),
    "numpy_matmul": lambda xp: lambda x: x @ x,
    "numpy_einsum": lambda xp: lambda x: xp.numpy.einsum("ij,jk->ik", x, x),
    "numpy_index": lambda xp: lambda x: x[0] + x,
    "numpy_gather": lambda xp: lambda x, rows=np.array([3, 1, 2, 0]): x[rows],
    "numpy_at_set": lambda xp: lambda x: x.at[1].set(0.0),
    "numpy_at_add_gathered": lambda xp: lambda x, rows=np.array([3, 1]): x.at[rows].add(1.0),
    "nn_softmax": lambda xp: lambda x: xp.nn.softmax(x),
    "nn_gelu": lambda xp: lambda x: xp.nn.gelu(x),
}


def other_float(dtype) -> str:
    """Another dtype to convert to, so that no conversion is void."""
    return "bfloat16" if dtype == np.float32 else "float32"


def matrix(xp):
    """The type of the programs' argument."""
    return xp.ShapeDtypeStruct((4, 4), np.float32)


for _name, _make in SPELLINGS.items():

    @bench(unit="us/op", row=TRACE, name=f"trace_{_name}")
    def trace_spelling(xp, make=_make):
        """Trace a chain of one spelling."""
        f, x = make(xp), matrix(xp)
        return Timed(lambda: xp.jit(repeat(f, LENGTH)).trace(x) and None, ops=LENGTH)


#   name         the function whose program is traced, of a chain
TRANSFORMATIONS = {
    "grad": lambda xp, f: xp.grad(lambda x: xp.numpy.sum(f(x))),
    "jvp": lambda xp, f: lambda x: xp.jvp(f, (x,), (x,)),
    "vmap": lambda xp, f: xp.vmap(f),
}
TRANSFORMED = {
    "sin": lambda xp: xp.lax.sin,
    "tanh": lambda xp: xp.lax.tanh,
    "multiply": lambda xp: lambda x: xp.lax.mul(x, x),
    "numpy_scalar": lambda xp: lambda x: xp.numpy.multiply(x, 2.0),
    "transpose": lambda xp: lambda x: x.T,
    "matmul": lambda xp: lambda x: x @ x,
}

for _name, _transform in TRANSFORMATIONS.items():
    for _spelling, _make in TRANSFORMED.items():

        @bench(unit="us/op", row=TRACE_TRANSFORMED, name=f"trace_{_name}_of_{_spelling}")
        def trace_transformed(xp, transform=_transform, make=_make, batched=_name == "vmap"):
            """Trace the transformed program of a chain; per operation of the chain."""
            f = make(xp)
            x = xp.ShapeDtypeStruct((2, 4, 4), np.float32) if batched else matrix(xp)
            return Timed(lambda: xp.jit(transform(xp, repeat(f, LENGTH))).trace(x) and None, ops=LENGTH)


LOWERED = ("lax_add", "lax_sin", "lax_reshape", "lax_transpose", "lax_pad_slice", "lax_dot", "lax_select", "numpy_sum")

for _name in LOWERED:

    @bench(unit="us/op", row=LOWER, name=f"lower_{_name}")
    def lower_spelling(xp, make=SPELLINGS[_name]):
        """Lower a chain that was traced off the clock."""
        f, x = make(xp), matrix(xp)
        return Timed(lambda traced: traced.lower() and None, lambda: xp.jit(repeat(f, LENGTH)).trace(x), LENGTH)


CHAINS = (2_000, 16_000, 100_000)


@bench(unit="us/op", at_most=0.3, sizes=CHAINS, linear=True)
def trace_a_chain(xp, size):
    """Trace a long straight line."""
    return Timed(lambda: xp.make_jaxpr(repeat(xp.lax.sin, size))(1.0) and None, ops=size)


@bench(unit="us/op", at_most=0.5, sizes=CHAINS, linear=True)
def lower_a_chain(xp, size):
    """Lower a long straight line."""
    make = lambda: xp.jit(repeat(xp.lax.sin, size)).trace(1.0)
    return Timed(lambda traced: traced.lower() and None, make, size)


@bench(unit="us/op", sizes=CHAINS, linear=True, at_most=0.6)
def print_a_chain(xp, size):
    """Print the program of a long straight line."""
    jaxpr = xp.make_jaxpr(repeat(xp.lax.sin, size))(1.0)
    return Timed(lambda: str(jaxpr) and None, ops=size)


@bench(unit="us/op", sizes=CHAINS[:2], linear=True, at_most=0.3)
def trace_grad_of_a_chain(xp, size):
    """Differentiate a long straight line."""
    return Timed(lambda: xp.make_jaxpr(xp.grad(repeat(xp.lax.sin, size)))(1.0) and None, ops=size)
