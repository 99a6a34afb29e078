"""Options of `debug.print` and `debug.callback` in a call of their own, callbacks under vmap, and NaNs in calls."""

import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx.core.error_classes import ArgumentError, ArgumentTypeError
from phalanx.sharding import PartitionSpec as P


def test_options_may_be_given_in_a_call_of_their_own(capsys):
    seen = []
    phalanx.jit(lambda x: phalanx.debug.callback(ordered=True)(lambda v, w: seen.append((int(v), w)), x, w="text"))(3)
    phalanx.jit(lambda x: phalanx.debug.print(ordered=True)("x: {x}", x=x))(42)
    phalanx.effects_barrier()
    assert seen == [(3, "text")]
    assert capsys.readouterr().out == "x: 42\n"
    with pytest.raises(ArgumentTypeError) as e:
        phalanx.debug.print(ordered=True, a=42)
    assert str(e.value) == (
        "debug.print: expected only options in a call without a function or format, got 1 more; debug_print received "
        "unexpected arguments in the two-call form.\n"
        "  Fix: pass them in the second call: debug.print(ordered=True)(..., *args)."
    )
    # An option in the second call is a value to format.
    for builtin, form in ((KeyError, "{y}"), (IndexError, "{} {}")):
        with pytest.raises(builtin, match="expected a format string that matches the arguments"):
            phalanx.debug.print(form, 1)
    with pytest.raises(ArgumentError, match="unused arguments: partitioned"):
        phalanx.debug.print(ordered=True)("{a}", a=1, partitioned=True)


def test_an_ordered_print_takes_the_examples_in_order(capsys):
    phalanx.vmap(lambda x: phalanx.debug.print("{}", x, ordered=True))(jnp.arange(3))
    phalanx.effects_barrier()
    assert capsys.readouterr().out == "0\n1\n2\n"


def test_declared_results_of_callbacks():
    wide = np.zeros(())
    with pytest.raises(ArgumentError) as e:
        phalanx.jit(lambda: phalanx.pure_callback(lambda: 1.0, wide))()
    assert str(e.value) == (
        "pure_callback, argument result_shape_dtypes: expected 32-bit types, since enable_x64 is off and "
        "result_shape_dtypes cannot specify 64-bit types, got float64.\n  Fix: declare float32, or set enable_x64."
    )
    # Only the leaves of the result are compared with the declaration.
    number = phalanx.ShapeDtypeStruct((), np.float32)
    out = phalanx.jit(lambda x: phalanx.pure_callback(lambda x: {"y": ([x],)}, {"y": number}, x))(2.0)
    assert float(out["y"]) == 2.0
    with pytest.raises(RuntimeError, match="the declared structure"):
        phalanx.pure_callback(lambda x: (x, x), number, 1.0)


def test_debug_nans_looks_into_eager_calls():
    mesh = phalanx.make_mesh((2,), ("x",))
    mapped = phalanx.shard_map(lambda x: 0.0 / x, mesh=mesh, in_specs=P("x"), out_specs=P("x"))
    pull_back = phalanx.vjp(phalanx.pmap(lambda x: jnp.log(x**2)), jnp.zeros(1))[1]
    with phalanx.debug_nans(True):
        assert mapped(jnp.ones(2)).tolist() == [0.0, 0.0]
        with pytest.raises(FloatingPointError, match=r"invalid value \(nan\) encountered in "):
            mapped(jnp.array([1.0, 0.0]))
        with pytest.raises(FloatingPointError, match=r"invalid value \(nan\) encountered in "):
            pull_back(jnp.ones(1))
