"""Errors are records: their text, their built-in bases, and their way through pickle."""

import copy
import pickle

import numpy as np
import pytest
from tests.processes import run_python

import phalanx
import phalanx.numpy as jnp
from phalanx import errors, lax, nnx


def test_the_text_shows_the_four_fields():
    error = errors.ShapeError("lax.add operand y", expected="f32[3]", got="f32[4]", fix="pass equal shapes")
    assert str(error) == "lax.add operand y: expected f32[3], got f32[4].\n  Fix: pass equal shapes."
    assert (error.where, error.expected, error.got, error.fix) == (
        "lax.add operand y",
        "f32[3]",
        "f32[4]",
        "pass equal shapes",
    )


def test_libraries_raise_the_classes_with_a_text_alone():
    error = errors.TypePromotionError("int4 and float8 do not mix")
    assert str(error) == str(pickle.loads(pickle.dumps(error))) == "int4 and float8 do not mix"
    assert str(errors.ConcretizationTypeError(3)) == "3"


@pytest.mark.parametrize(
    "cls",
    [
        errors.ConcretizationTypeError,
        errors.TracerArrayConversionError,
        errors.TracerBoolConversionError,
        errors.TracerIntegerConversionError,
        errors.NonConcreteBooleanIndexError,
    ],
)
def test_libraries_raise_the_classes_with_a_traced_array(cls):
    found = []

    def f(x):
        found.extend([str(x), cls(x)])
        return x

    phalanx.jit(f)(1.0)
    text, error = found
    assert str(error) == str(pickle.loads(pickle.dumps(error))) == text


def test_libraries_say_what_a_traced_array_was_needed_for():
    error = errors.ConcretizationTypeError(3, "the size of a range")
    assert str(error) == str(copy.copy(error)) == "3: the size of a range"


def test_a_value_is_shown_as_the_user_would_write_it():
    error = errors.ArgumentError("f", expected="a positive size", got=(1, "a"), fix="pass one.")
    assert str(error) == "f: expected a positive size, got (1, 'a').\n  Fix: pass one."


@pytest.mark.parametrize(
    ("cls", "builtins"),
    [
        (errors.ShapeError, (TypeError, ValueError)),
        (errors.DTypeError, (TypeError,)),
        (errors.TreeError, (ValueError,)),
        (errors.AxisError, (ValueError,)),
        (errors.UnboundAxisError, (NameError, errors.AxisError)),
        (errors.ShardingError, (ValueError,)),
        (errors.ArgumentError, (ValueError,)),
        (errors.ArgumentTypeError, (TypeError,)),
        (errors.TraceError, (TypeError,)),
        (errors.KeyReuseError, (RuntimeError,)),
        (errors.InconclusiveDimensionOperation, (ValueError,)),
        (errors.ConcretizationTypeError, (TypeError,)),
        (errors.TracerBoolConversionError, (errors.ConcretizationTypeError,)),
        (errors.TracerArrayConversionError, (errors.ConcretizationTypeError,)),
        (errors.TracerIntegerConversionError, (errors.ConcretizationTypeError,)),
        (errors.NonConcreteBooleanIndexError, (IndexError,)),
        (errors.UnexpectedTracerError, (TypeError,)),
    ],
)
def test_each_class_is_a_record_and_a_builtin(cls, builtins):
    error = cls("f", expected="a", got="b", fix="c")
    assert isinstance(error, errors.PhalanxError)
    assert all(isinstance(error, builtin) for builtin in builtins)
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(twin) is cls
        assert str(twin) == str(error)


def test_the_texts_about_traced_values():
    tracer, origin = "bool[] traced by jit of f", "model.py:12 in f"
    got = "got bool[] traced by jit of f, made at model.py:12 in f.\n"
    assert str(errors.TracerBoolConversionError.of(tracer, origin)) == (
        "conversion of a traced value to bool, by if, while, and, or, not, or bool(): "
        f"expected a value that is known while tracing, {got}"
        "  Fix: choose with phalanx.numpy.where, lax.cond or lax.while_loop, "
        "or mark the argument it comes from as static (static_argnums or static_argnames)."
    )
    assert str(errors.ConcretizationTypeError.of(tracer, origin, use="float")) == (
        f"conversion of a traced value to float: expected a value that is known while tracing, {got}"
        "  Fix: keep the computation in phalanx.numpy, or mark the argument it comes from as static "
        "(static_argnums or static_argnames)."
    )
    assert str(errors.TracerArrayConversionError.of(tracer, origin)) == (
        f"conversion of a traced value to a NumPy array: expected a value that is known while tracing, {got}"
        "  Fix: call the phalanx.numpy function instead of the numpy one, index a phalanx array instead of a numpy "
        "one, or go to the host with pure_callback."
    )
    assert str(errors.TracerIntegerConversionError.of(tracer, origin)) == (
        "conversion of a traced value to an integer, by a size, a range or an index into a Python sequence: "
        f"expected a value that is known while tracing, {got}"
        "  Fix: mark the argument it comes from as static (static_argnums or static_argnames), "
        "turn the sequence into an array, or loop with lax.fori_loop."
    )
    assert str(errors.NonConcreteBooleanIndexError.of(tracer, origin)) == (
        "indexing with a boolean mask: expected a mask that is known while tracing, "
        f"since the result's shape depends on its values, {got}"
        "  Fix: use phalanx.numpy.where(mask, x, other), or phalanx.numpy.nonzero(mask, size=...)."
    )
    assert str(errors.UnexpectedTracerError.of("f32[] traced by jit", origin, function="f")) == (
        "use of a leaked tracer: expected a value of the current computation, since the tracing of f has ended, "
        "got f32[] traced by jit, made at model.py:12 in f.\n"
        "  Fix: return the value from the transformed function instead of storing it in a global, an attribute or a "
        "closure; phalanx.checking_leaks() finds the line that stores it."
    )


def test_an_array_of_more_bytes_than_xla_can_count_is_refused_with_the_users_line():
    text = run_python(
        """
        import phalanx, phalanx.numpy as jnp
        for make in (
            lambda: jnp.zeros((1 << 31, 1 << 31)),
            lambda: jnp.ones((1 << 63,)),
            lambda: jnp.arange(1 << 62),
            lambda: jnp.broadcast_to(1.0, (1 << 33, 1 << 33)).sum(),
            lambda: jnp.pad(jnp.ones(3), 1 << 62),
            lambda: phalanx.jit(lambda: jnp.zeros((1 << 40, 1 << 40)))(),
            lambda: jnp.zeros((1 << 31, 1 << 31), "int4"),
        ):
            try:
                make()
            except phalanx.errors.ShapeError as error:
                print(error, error.__traceback__.tb_next.tb_lineno)
        """
    )
    for count, line in enumerate(text.splitlines()[::2]):
        unit, name = {2: ("bytes", "int32"), 6: ("bits", "int4")}.get(count, ("bytes", "float32"))
        assert line.startswith(f"shape: expected less than 2**63 {unit}, which are {2**61} elements of {name}, got (")
    fix = "  Fix: check the computation of the sizes, or process the data in parts."
    assert text.splitlines()[1::2] == [f"{fix} {line}" for line in range(4, 11)]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: phalanx.sharding.Mesh(np.arange(8), ("a",)),
            "Mesh, argument devices: expected an array of devices, got one with np.int64(0).\n"
            "  Fix: pass np.array(phalanx.devices()).reshape((8,)), or make_mesh((8,), names).",
        ),
        (lambda: phalanx.named_scope(3), "named_scope, argument name: expected a string, got 3.\n  Fix: pass '3'."),
        (
            lambda: lax.scan(lambda c, _: (c, None), 1.0, None, length=-2),
            "scan, argument length: expected a number of iterations of at least 0, got -2.\n"
            "  Fix: check the computation of the length.",
        ),
        (
            lambda: lax.pad(jnp.ones(3), 0.0, [(1, 1)]),
            "lax.pad padding_config: expected (low, high, interior) for each dimension of f32[3], got ((1, 1),).\n"
            "  Fix: pass 1 tuples of three numbers, (0, 0, 0) for a dimension without padding.",
        ),
        (
            lambda: nnx.Linear(-3, 4, rngs=nnx.Rngs(0)),
            "nn.initializers.variance_scaling shape: expected sizes of at least 0, got (-3, 4).\n"
            "  Fix: check the number of features -3.",
        ),
        (
            lambda: nnx.Conv(3, 4, (3,), rngs=nnx.Rngs(0))(jnp.ones(3)),
            "nnx.Conv, inputs: expected 1 spatial dimensions before the features, as in kernel_size, got shape (3,).\n"
            "  Fix: reshape the inputs to (*batch, *spatial, features).",
        ),
    ],
)
def test_small_mistakes_are_named(make, text):
    with pytest.raises(errors.PhalanxError) as error:
        make()
    assert str(error.value) == text
