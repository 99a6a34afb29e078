"""Operations on concrete arrays, one call at a time, and eager derivatives and vectorisation of small functions."""

from __future__ import annotations

import numpy as np

from benchmarks.harness import Row, bench

EAGER = Row("eager operations (geometric mean)", at_most=0.6, none_above=1.1)
TRANSFORMED = Row("eager grad and vmap of small functions", at_most=0.4)


def operands(xp):
    """Small arrays, so that the overhead around the engine dominates."""
    jnp = xp.numpy
    return jnp.arange(12.0).reshape(4, 3), jnp.array([2, 0, 1, 2]), jnp.array([True, False, True, False])[:, None]


#   name               the operation, of a 4x3 array, an index array, a mask and the module
EAGER_OPERATIONS = {
    "add": lambda x, idx, mask, xp: lambda: x + x,
    "add_numpy": lambda x, idx, mask, xp: lambda: xp.numpy.add(x, x),
    "add_lax": lambda x, idx, mask, xp: lambda: xp.lax.add(x, x),
    "add_python_scalar": lambda x, idx, mask, xp: lambda: x + 1.0,
    "add_integer_array": lambda x, idx, mask, xp: lambda: x[:, 0] + idx,
    "multiply_numpy_scalar": lambda x, idx, mask, xp: lambda s=np.float32(2): x * s,
    "compare": lambda x, idx, mask, xp: lambda: x > 2,
    "sin": lambda x, idx, mask, xp: lambda: xp.numpy.sin(x),
    "sum": lambda x, idx, mask, xp: lambda: xp.numpy.sum(x, axis=0),
    "mean": lambda x, idx, mask, xp: lambda: x.mean(),
    "matmul": lambda x, idx, mask, xp: lambda: x @ x.T,
    "index": lambda x, idx, mask, xp: lambda: x[0],
    "slice": lambda x, idx, mask, xp: lambda: x[1:3],
    "gather": lambda x, idx, mask, xp: lambda: x[idx],
    "at_set": lambda x, idx, mask, xp: lambda: x.at[0].set(1.0),
    "at_set_gathered": lambda x, idx, mask, xp: lambda: x.at[idx].set(1.0),
    "reshape": lambda x, idx, mask, xp: lambda: x.reshape(3, 4),
    "transpose": lambda x, idx, mask, xp: lambda: x.T,
    "where": lambda x, idx, mask, xp: lambda: xp.numpy.where(mask, x, 0.0),
    "concatenate": lambda x, idx, mask, xp: lambda: xp.numpy.concatenate([x, x]),
    "stack": lambda x, idx, mask, xp: lambda: xp.numpy.stack([x, x]),
    "zeros": lambda x, idx, mask, xp: lambda: xp.numpy.zeros((4, 3)),
    "array": lambda x, idx, mask, xp: lambda host=np.ones((4, 3), np.float32): xp.numpy.asarray(host),
    "astype": lambda x, idx, mask, xp: lambda: x.astype("int32"),
    "float": lambda x, idx, mask, xp: lambda scalar=x.sum(): float(scalar),
}

for _name, _make in EAGER_OPERATIONS.items():
    bench(unit="us", row=EAGER, name=_name)(lambda xp, make=_make: make(*operands(xp), xp))


@bench(unit="us", row=EAGER)
def random_split(xp):
    """Split a typed key."""
    key = xp.random.key(0)
    return lambda: xp.random.split(key)


@bench(unit="us", row=EAGER)
def random_split_raw(xp):
    """Split a key of the older, raw kind."""
    key = xp.random.PRNGKey(0)
    return lambda: xp.random.split(key)


@bench(unit="us", row=EAGER)
def random_normal(xp):
    """Draw numbers."""
    key = xp.random.key(0)
    return lambda: xp.random.normal(key, (4, 3))


def small_loss(xp):
    """A function of a few operations, with a reduction."""
    jnp = xp.numpy
    return lambda x: jnp.sum(jnp.tanh(x) * x + 1.0)


@bench(unit="us", row=TRANSFORMED)
def grad_of_a_scalar_function(xp):
    """Two operations on a number."""
    return lambda: xp.grad(lambda x: xp.numpy.sin(x) * x)(1.5)


@bench(unit="us", row=TRANSFORMED)
def grad_of_a_small_loss(xp):
    """Four operations on an array."""
    f, x = small_loss(xp), xp.numpy.arange(6.0)
    return lambda: xp.grad(f)(x)


@bench(unit="us", row=TRANSFORMED)
def grad_of_a_linear_model(xp):
    """A matrix product and a squared error."""
    jnp = xp.numpy
    w, x, y = jnp.ones((3, 2)), jnp.ones((4, 3)), jnp.ones((4, 2))
    f = lambda w: jnp.mean((x @ w - y) ** 2)
    return lambda: xp.value_and_grad(f)(w)


@bench(unit="us", row=TRANSFORMED)
def vmap_of_a_small_function(xp):
    """Three elementwise operations."""
    jnp = xp.numpy
    f, x = (lambda x: jnp.sin(x) * 2.0 + x), jnp.arange(6.0)
    return lambda: xp.vmap(f)(x)


@bench(unit="us", row=TRANSFORMED)
def vmap_of_a_small_loss(xp):
    """Elementwise operations and a reduction."""
    f, x = small_loss(xp), xp.numpy.arange(12.0).reshape(4, 3)
    return lambda: xp.vmap(f)(x)


@bench(unit="us", row=TRANSFORMED)
def vmap_of_a_product(xp):
    """A matrix product that becomes a batched one."""
    jnp = xp.numpy
    a, b = jnp.ones((4, 3, 2)), jnp.ones((2, 5))
    return lambda: xp.vmap(jnp.matmul, in_axes=(0, None))(a, b)
