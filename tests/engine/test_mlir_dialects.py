import importlib

import numpy as np
import pytest

from phalanx.engine import mlir, mlir_dialects
from phalanx.engine.mlir import chlo, hlo, ir

TABLES = {
    "stablehlo": {
        **mlir_dialects._STABLEHLO,
        **{k: form.mnemonic for k, form in mlir_dialects._STABLEHLO_FORMS.items()},
    },
    "chlo": mlir_dialects._CHLO,
}


@pytest.mark.parametrize("name", TABLES)
def test_every_operation_has_the_name_of_jaxlibs_class(name):
    module = importlib.import_module(f"jaxlib.mlir.dialects.{name}")
    for class_name, mnemonic in TABLES[name].items():
        assert getattr(module, class_name).OPERATION_NAME == f"{name}.{mnemonic}"
        assert (
            getattr(getattr(mlir_dialects, {"stablehlo": "hlo"}.get(name, name)), class_name).OPERATION_NAME
            == f"{name}.{mnemonic}"
        )
        assert hasattr(module, mnemonic) or hasattr(module, f"{mnemonic}_")


def emitted(build):
    """Print what `build(dialect, x, y, p, i)` adds to a function of two matrices, a mask and a matrix of integers."""
    context = mlir.make_context()
    with context, ir.Location.unknown():
        types = [
            ir.RankedTensorType.get([2, 3], mlir.dtype_to_ir(np.dtype(dtype))) for dtype in ("f4", "f4", "bool", "i4")
        ]
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            main = mlir.func.FuncOp("main", ir.FunctionType.get(types, []))
            with ir.InsertionPoint(main.add_entry_block()):
                build(*main.arguments)
                mlir.func.ReturnOp([])
        return str(module)


def real(name):
    return importlib.import_module(f"jaxlib.mlir.dialects.{name}")


def of(element, *shape):
    return ir.RankedTensorType.get(shape, element)


def less():
    return hlo.ComparisonDirectionAttr.get("LT")


def matrix_product():
    return hlo.DotDimensionNumbers.get(
        lhs_batching_dimensions=[],
        rhs_batching_dimensions=[],
        lhs_contracting_dimensions=[1],
        rhs_contracting_dimensions=[1],
    )


def scalar():
    return mlir.dense_constant(np.zeros((), "f4"))


def reduced(d, x):
    """A reduction, whose region ends as a block of the dialect does."""
    zero = d.constant(scalar())
    reduction = hlo.ReduceOp([of(F32(), 3)], [x], [zero], ir.DenseI64ArrayAttr.get([0]))
    block = reduction.regions[0].blocks.append(of(F32()), of(F32()))
    with ir.InsertionPoint(block):
        d.return_([d.add(*block.arguments)])
    return reduction.result


F32 = ir.F32Type.get
CASES = [
    *[lambda d, x, y, p, i, n=n: getattr(d, n)(x) for n in ("abs", "exponential", "sine", "negate", "is_finite")],
    *[lambda d, x, y, p, i, n=n: getattr(d, n)(x, y) for n in ("add", "maximum", "complex", "atan2", "power")],
    *[lambda d, x, y, p, i, n=n: getattr(d, n)(i, i) for n in ("and_", "or_", "shift_left")],
    lambda d, x, y, p, i: d.not_(i),
    lambda d, x, y, p, i: d.real(d.complex(x, y)),
    lambda d, x, y, p, i: d.select(p, x, y),
    lambda d, x, y, p, i: d.clamp(x, y, x),
    lambda d, x, y, p, i: d.compare(x, y, less()),
    lambda d, x, y, p, i: d.compare(x, y, less(), compare_type=hlo.ComparisonTypeAttr.get("FLOAT")),
    lambda d, x, y, p, i: d.convert(of(ir.F64Type.get(), 2, 3), x),
    lambda d, x, y, p, i: d.bitcast_convert(of(ir.IntegerType.get_signless(32), 2, 3), x),
    lambda d, x, y, p, i: d.reshape(of(F32(), 6), x),
    lambda d, x, y, p, i: d.broadcast_in_dim(of(F32(), 2, 4, 3), x, [0, 2]),
    lambda d, x, y, p, i: d.broadcast_in_dim(of(F32(), 2, 4, 3), x, ir.DenseI64ArrayAttr.get([0, 2])),
    lambda d, x, y, p, i: d.transpose(x, (1, 0)),
    lambda d, x, y, p, i: d.reverse(x, [1]),
    lambda d, x, y, p, i: d.slice(x, [0, 1], [2, 3], [1, 1]),
    lambda d, x, y, p, i: d.pad(x, d.constant(scalar()), [0, 1], [0, 1], [0, 2]),
    lambda d, x, y, p, i: d.concatenate([x, y], 1),
    lambda d, x, y, p, i: d.iota(of(F32(), 4, 5), 1),
    lambda d, x, y, p, i: d.dot_general(of(F32(), 2, 2), x, y, matrix_product()),
    lambda d, x, y, p, i: d.dot_general(
        of(F32(), 2, 2),
        x,
        y,
        matrix_product(),
        precision_config=ir.ArrayAttr.get([hlo.PrecisionAttr.get("HIGHEST")] * 2),
    ),
    lambda d, x, y, p, i: d.AddOp(x, y).result,
    lambda d, x, y, p, i: reduced(d, x),
    lambda d, x, y, p, i: d.exponential(x, loc=ir.Location.name("here")),
]


@pytest.mark.parametrize("case", CASES)
def test_what_is_built_is_what_jaxlib_builds(case):
    ours = emitted(lambda *arguments: case(hlo, *arguments))
    assert ours == emitted(lambda *arguments: case(real("stablehlo"), *arguments))
    assert "stablehlo." in ours


@pytest.mark.parametrize("name", ["erf", "erf_inv", "lgamma", "square"])
def test_chlo_too(name):
    ours = emitted(lambda x, y, p, i: getattr(chlo, name)(x))
    assert ours == emitted(lambda x, y, p, i: getattr(real("chlo"), name)(x))


def test_an_operation_kept_by_a_class_stays_a_function():
    class Keeper:
        operation = hlo.SineOp

    assert "stablehlo.sine" in emitted(lambda x, y, p, i: Keeper().operation(x).result)


def test_what_is_not_in_the_tables_comes_from_jaxlib():
    assert hlo.WhileOp is real("stablehlo").WhileOp
    assert hlo.ComparisonDirectionAttr is real("stablehlo").ComparisonDirectionAttr
    with pytest.raises(AttributeError, match="jaxlib's dialect stablehlo has no NonsenseOp"):
        hlo.NonsenseOp
