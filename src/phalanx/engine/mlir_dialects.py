"""MLIR operations under the names of jaxlib's bindings, built in half the time.

MLIR's generic constructor is twice as fast as jaxlib's generated classes and does not need them to be loaded; there are
hundreds, and a small program uses ten. Operations that are not in the tables below come from the generated classes,
which are loaded on first use. `mlir` exports the dialects to the other packages.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from jaxlib.mlir import ir

_create = ir.Operation.create


class Form(NamedTuple):
    """The arguments of an operation's builder, in this order; result types that are not passed are inferred.

    Args:
      mnemonic: the operation's name in its dialect.
      num_types: the number of result types.
      num_operands: the number of operands; None for one sequence of operands.
      arrays: names of attributes that are arrays of integers.
      attributes: names of further attributes.
      options: names of attributes that may be passed by keyword.
      is_last: whether it is a terminator, which ends a block and has no result.
    """

    mnemonic: str
    num_types: int = 0
    num_operands: int | None = 1
    arrays: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    is_last: bool = False


class Dialect:
    """The operations, types and attributes of a dialect, as attributes of one object.

    `dialect.AddOp(x, y)` returns the operation, `dialect.add(x, y)` its result.

    Args:
      name: the dialect's name, which is also that of its module in jaxlib's bindings.
      operands_only: mnemonics of operations with only operands and one result, by class name.
      forms: the other operations in the tables, by class name.
    """

    def __init__(self, name: str, operands_only: dict[str, str], forms: dict[str, Form]) -> None:
        self._name = name
        operations: dict[str, Operation] = {
            **{mnemonic: Operation(name, class_name, mnemonic) for class_name, mnemonic in operands_only.items()},
            **{form.mnemonic: FormedOperation(name, class_name, form) for class_name, form in forms.items()},
        }
        for mnemonic, operation in operations.items():
            setattr(self, operation.class_name, operation)
            setattr(self, f"{mnemonic}_" if mnemonic in _PYTHON_WORDS else mnemonic, operation.value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        for module in _modules(self._name):
            if hasattr(module, name):
                # Kept on the object, so that this method runs once for each name.
                found = getattr(module, name)
                setattr(self, name, found)
                return found
        raise AttributeError(f"jaxlib's dialect {self._name} has no {name}")


_PYTHON_WORDS = ("and", "or", "not", "return")


def _modules(dialect: str) -> Iterator[Any]:
    """Load jaxlib's modules of a dialect one after the other: types and attributes first, then operations."""
    if dialect != "mhlo":  # has no module of types
        yield importlib.import_module(f"jaxlib.mlir._mlir_libs._{dialect}")
    yield importlib.import_module(f"jaxlib.mlir.dialects.{dialect}")


class Operation:
    """An operation with only operands and one result; calling it emits the operation.

    Args:
      dialect: the dialect's name.
      class_name: the name of jaxlib's class, which is called with the same arguments.
      mnemonic: the operation's name in the dialect.
    """

    def __init__(self, dialect: str, class_name: str, mnemonic: str) -> None:
        self.dialect = dialect
        self.class_name = class_name
        self.OPERATION_NAME = f"{dialect}.{mnemonic}"

    def __call__(self, *operands: Any, **options: Any) -> Any:
        if options:
            return self._build_with_class(operands, options)
        return _create(self.OPERATION_NAME, operands=operands, infer_type=True)

    def value(self, *arguments: Any, **options: Any) -> Any:
        """Emit the operation and return its result; the operation itself if it has no result."""
        operation = self(*arguments, **options)
        return operation.result if len(operation.results) == 1 else operation

    def _build_with_class(self, arguments: tuple, options: dict[str, Any]) -> Any:
        """Build the operation with jaxlib's class, which supports all forms of arguments."""
        module = importlib.import_module(f"jaxlib.mlir.dialects.{self.dialect}")
        return getattr(module, self.class_name)(*arguments, **options)


class FormedOperation(Operation):
    """An operation with attributes or result types as arguments.

    Args:
      dialect: the dialect's name.
      class_name: the name of jaxlib's class, which is called with the same arguments.
      form: its arguments.
    """

    def __init__(self, dialect: str, class_name: str, form: Form) -> None:
        super().__init__(dialect, class_name, form.mnemonic)
        self.form = form
        self.num_before = form.num_types + (1 if form.num_operands is None else form.num_operands)
        self.num_arguments = self.num_before + len(form.arrays) + len(form.attributes)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        form, num_types, num_before = self.form, self.form.num_types, self.num_before
        # Rare forms of the arguments are left to jaxlib's class, which checks them.
        if len(arguments) != self.num_arguments or not options.keys() <= set(form.options):
            return self._build_with_class(arguments, options)
        operands = list(arguments[num_types] if form.num_operands is None else arguments[num_types:num_before])
        attributes = {name: value for name, value in options.items() if value is not None}
        for name, value in zip(form.arrays, arguments[num_before:]):
            attributes[name] = value if isinstance(value, ir.Attribute) else ir.DenseI64ArrayAttr.get(list(value))
        for name, value in zip(form.attributes, arguments[num_before + len(form.arrays) :]):
            attributes[name] = value if isinstance(value, ir.Attribute) else i64(value)
        if num_types or form.is_last:
            return _create(
                self.OPERATION_NAME, results=list(arguments[:num_types]), operands=operands, attributes=attributes
            )
        return _create(self.OPERATION_NAME, operands=operands, attributes=attributes, infer_type=True)


def i32(value: int) -> ir.Attribute:
    """A 32-bit integer attribute."""
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(32), value)


def i64(value: int) -> ir.Attribute:
    """A 64-bit integer attribute."""
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)


_STABLEHLO = {
    "AbsOp": "abs",
    "AddOp": "add",
    "AndOp": "and",
    "Atan2Op": "atan2",
    "CbrtOp": "cbrt",
    "CeilOp": "ceil",
    "ClampOp": "clamp",
    "ClzOp": "count_leading_zeros",
    "ComplexOp": "complex",
    "CosineOp": "cosine",
    "DivOp": "divide",
    "ExpOp": "exponential",
    "Expm1Op": "exponential_minus_one",
    "FloorOp": "floor",
    "ImagOp": "imag",
    "IsFiniteOp": "is_finite",
    "Log1pOp": "log_plus_one",
    "LogOp": "log",
    "LogisticOp": "logistic",
    "MaxOp": "maximum",
    "MinOp": "minimum",
    "MulOp": "multiply",
    "NegOp": "negate",
    "NotOp": "not",
    "OrOp": "or",
    "PopulationCountOp": "popcnt",
    "PowOp": "power",
    "RealOp": "real",
    "RemOp": "remainder",
    "RoundNearestEvenOp": "round_nearest_even",
    "RoundOp": "round_nearest_afz",
    "RsqrtOp": "rsqrt",
    "SelectOp": "select",
    "ShiftLeftOp": "shift_left",
    "ShiftRightArithmeticOp": "shift_right_arithmetic",
    "ShiftRightLogicalOp": "shift_right_logical",
    "SignOp": "sign",
    "SineOp": "sine",
    "SqrtOp": "sqrt",
    "SubtractOp": "subtract",
    "TanOp": "tan",
    "TanhOp": "tanh",
    "XorOp": "xor",
}

_STABLEHLO_FORMS = {
    "BitcastConvertOp": Form("bitcast_convert", num_types=1),
    "BroadcastInDimOp": Form("broadcast_in_dim", num_types=1, arrays=("broadcast_dimensions",)),
    "CompareOp": Form("compare", num_operands=2, attributes=("comparison_direction",), options=("compare_type",)),
    "ConcatenateOp": Form("concatenate", num_operands=None, attributes=("dimension",)),
    "ConstantOp": Form("constant", num_operands=0, attributes=("value",)),
    "ConvertOp": Form("convert", num_types=1),
    "DotGeneralOp": Form(
        "dot_general",
        num_types=1,
        num_operands=2,
        attributes=("dot_dimension_numbers",),
        options=("precision_config", "algorithm"),
    ),
    "IotaOp": Form("iota", num_types=1, num_operands=0, attributes=("iota_dimension",)),
    "PadOp": Form("pad", num_operands=2, arrays=("edge_padding_low", "edge_padding_high", "interior_padding")),
    "ReshapeOp": Form("reshape", num_types=1),
    "ReturnOp": Form("return", num_operands=None, is_last=True),
    "ReverseOp": Form("reverse", arrays=("dimensions",)),
    "SliceOp": Form("slice", arrays=("start_indices", "limit_indices", "strides")),
    "TransposeOp": Form("transpose", arrays=("permutation",)),
}

_CHLO = {
    "AcosOp": "acos",
    "AcoshOp": "acosh",
    "AsinOp": "asin",
    "AsinhOp": "asinh",
    "AtanOp": "atan",
    "AtanhOp": "atanh",
    "BesselI1eOp": "bessel_i1e",
    "CoshOp": "cosh",
    "DigammaOp": "digamma",
    "ErfInvOp": "erf_inv",
    "ErfOp": "erf",
    "ErfcOp": "erfc",
    "LgammaOp": "lgamma",
    "NextAfterOp": "next_after",
    "PolygammaOp": "polygamma",
    "SinhOp": "sinh",
    "SquareOp": "square",
    "ZetaOp": "zeta",
}

hlo = Dialect("stablehlo", _STABLEHLO, _STABLEHLO_FORMS)
chlo = Dialect("chlo", _CHLO, {})
sdy = Dialect("sdy", {}, {})
mhlo = Dialect("mhlo", {}, {})
