"""The program inside an artifact is plain StableHLO: consumers that know nothing of phalanx and XLA give the same numbers.

The reference interpreter of StableHLO comes with jaxlib; IREE, a compiler and runtime of its own, with the extra
`consumers`. Both take programs of static shapes, and IREE some of symbolic ones: what it has no road for is
`stablehlo.dynamic_reshape`. So a symbolic artifact goes to them by way of an export of its `call` for the shapes at hand,
which is what any call does to it first.
"""

import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import export, lax, nn
from phalanx.engine import mlir, stablehlo


def interpret(program, arguments):
    module = stablehlo.deserialize(program, mlir.make_context())
    return stablehlo.interpret(module, arguments)


def compile_with_iree(program, arguments):
    compiler = pytest.importorskip("iree.compiler", reason="needs the extra `consumers`")
    runtime = pytest.importorskip("iree.runtime", reason="needs the extra `consumers`")
    binary = compiler.compile_str(
        program, target_backends=["llvm-cpu"], input_type="stablehlo", extra_args=["--iree-llvmcpu-target-cpu=generic"]
    )
    context = runtime.SystemContext(config=runtime.Config("local-sync"))
    module = runtime.VmModule.copy_buffer(context.instance, binary)
    context.add_vm_module(module)
    out = context.modules[module.name].main(*arguments)
    return [np.asarray(x) for x in (out if isinstance(out, tuple | list) else [out])]


CONSUMERS = {"interpreter": interpret, "iree": compile_with_iree}
DRAW = np.random.RandomState(0)
PARAMS = {name: DRAW.randn(4, 4).astype("f4") for name in "kqv"}
X = DRAW.randn(2, 5, 4).astype("f4")


def attention(params, x):
    """A causal head, whose mask, mean and reshape read the sizes of `x`."""
    q, k, v = (x @ params[name] for name in "qkv")
    scores = jnp.where(jnp.tri(x.shape[1], dtype=bool), jnp.einsum("btd,bsd->bts", q, k) / 2, -1e9)
    y = nn.gelu(nn.softmax(scores, axis=-1) @ v)
    return {"flat": y.reshape(-1, 2), "mean": y.sum() / x.shape[0]}


def chain(params, x):
    """A loop over layers and a choice."""
    h = lax.scan(lambda h, w: (jnp.tanh(h @ w), h.sum()), x, jnp.stack([params[name] for name in "kqv"]))
    return lax.cond(h[1].sum() > 0, lambda y: y * 2, lambda y: y - 1, h[0])


def read(exported, order=0):
    """What another process reads."""
    return export.deserialize(exported.serialize(vjp_order=order))


def symbolic():
    specs = export.symbolic_args_specs((PARAMS, X), (None, "b, t, _"), ["t <= 64"])
    return read(export.export(phalanx.jit(attention))(*specs), 1)


def refined(exported, leaves):
    args, kwargs = phalanx.tree.unflatten(exported.in_tree, leaves)
    return read(export.export(phalanx.jit(exported.call))(*args, **kwargs))


LEAVES = [*PARAMS.values(), X]
BARS = [DRAW.randn(20, 2).astype("f4"), np.float32(3)]
PROGRAMS = {
    "static": lambda: (read(export.export(phalanx.jit(attention))(PARAMS, X)), LEAVES),
    "static derivative": lambda: (read(export.export(phalanx.jit(attention))(PARAMS, X), 1).vjp(), [*LEAVES, *BARS]),
    "loop and branch": lambda: (read(export.export(phalanx.jit(chain))(PARAMS, X)), LEAVES),
    "symbolic": lambda: (refined(symbolic(), LEAVES), LEAVES),
    "symbolic derivative": lambda: (refined(symbolic().vjp(), [*LEAVES, *BARS]), [*LEAVES, *BARS]),
}


@pytest.mark.parametrize("consumer", CONSUMERS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_other_stablehlo_consumers_compute_the_same_results(name, consumer):
    exported, leaves = PROGRAMS[name]()
    taken = [leaves[i] for i in exported.module_kept_var_idx]
    args, kwargs = phalanx.tree.unflatten(exported.in_tree, leaves)
    want = phalanx.tree.leaves(exported.call(*args, **kwargs))
    for got, expected in zip(CONSUMERS[consumer](exported.mlir_module_serialized, taken), want, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
