"""Types that `vmap` maps by functions of the user (`interpreters.batching.register_vmappable`)."""

import numpy as np
import pytest
from phalanx.interpreters import batching

import phalanx
import phalanx.numpy as jnp


class Table:
    """Columns with a note; the columns are the examples, and it is no pytree."""

    def __init__(self, columns, note):
        self.columns, self.note = columns, note


def to_elt(map_part, get_index, table, spec):
    return Table(map_part(table.columns, spec), table.note)


def from_elt(join, size, element, spec):
    return Table(join(size, element.columns, spec), element.note)


@pytest.fixture(autouse=True)
def _registered():
    batching.register_vmappable(Table, int, int, to_elt, from_elt, None)
    yield
    batching.unregister_vmappable(Table)


COLUMNS = np.arange(6.0, dtype=np.float32).reshape(2, 3)


def test_arguments_and_results_are_mapped_by_the_functions():
    def step(table, scale):
        assert table.columns.shape == (2,)
        return {"scaled": Table(table.columns * scale, table.note), "sum": table.columns.sum()}

    mapped = phalanx.vmap(step, in_axes=(1, 0), out_axes={"scaled": -1, "sum": 0})
    result = mapped(Table(COLUMNS, "kept"), jnp.arange(3.0))
    assert result["scaled"].note == "kept"
    np.testing.assert_array_equal(result["scaled"].columns, COLUMNS * np.arange(3.0))
    np.testing.assert_array_equal(result["sum"], COLUMNS.sum(0))


def test_negative_axes_count_from_the_end():
    mapped = phalanx.vmap(lambda table: table.columns.sum(), in_axes=-1, axis_size=3)
    np.testing.assert_array_equal(mapped(Table(COLUMNS, "")), COLUMNS.sum(0))


def test_a_result_of_the_type_needs_no_argument_of_it_and_shared_values_none():
    made = phalanx.vmap(lambda x: Table(x, "new"))(jnp.arange(3.0))
    np.testing.assert_array_equal(made.columns, [0, 1, 2])
    shared = phalanx.vmap(lambda table, x: table.columns[0, 0] + x, in_axes=(None, 0))
    np.testing.assert_array_equal(shared(Table(COLUMNS + 5, ""), jnp.arange(2.0)), [5, 6])


def test_operations_inside_of_the_functions_are_traced():
    batching.register_vmappable(
        Table,
        int,
        int,
        lambda map_part, get_index, table, spec: map_part(table.columns + 1, spec) * get_index(),
        from_elt,
        None,
    )
    f = phalanx.jit(lambda x: phalanx.vmap(lambda column: column.sum(), axis_size=3, in_axes=1)(Table(x, "")))
    np.testing.assert_array_equal(f(COLUMNS), (COLUMNS + 1).sum(0) * np.arange(3))
    gradient = phalanx.grad(lambda x: f(x).sum())(COLUMNS)
    np.testing.assert_array_equal(gradient, [[0, 1, 2], [0, 1, 2]])


def test_specs_of_another_type_choose_the_dimension_by_name():
    class Named:
        def __init__(self, names, data):
            self.names, self.data = names, data

    class Over:
        def __init__(self, name):
            self.name = name

    def named_to_elt(map_part, get_index, value, spec):
        dim = value.names.index(spec.name)
        return Named([n for n in value.names if n != spec.name], map_part(value.data, dim))

    def named_from_elt(join, size, element, spec):
        return Named([*element.names, spec.name], join(size, element.data, len(element.names)))

    batching.register_vmappable(Named, Over, int, named_to_elt, named_from_elt, None)
    try:
        mapped = phalanx.vmap(lambda x: Named(x.names, x.data**2), in_axes=Over("j"), out_axes=Over("j"), axis_size=3)
        result = mapped(Named(["i", "j"], jnp.asarray(COLUMNS)))
        assert result.names == ["i", "j"]
        np.testing.assert_array_equal(result.data, COLUMNS**2)
    finally:
        batching.unregister_vmappable(Named)


def test_the_mapped_dimension_of_a_shape_counts_with_the_others():
    class Sized(Table):
        shape = property(lambda self: self.columns.shape)

    batching.register_vmappable(Sized, int, int, to_elt, from_elt, None)
    try:
        assert phalanx.vmap(lambda table: table.columns.sum())(Sized(COLUMNS, "")).shape == (2,)
        with pytest.raises(ValueError, match="mapped dimensions of one size"):
            phalanx.vmap(lambda table, x: x)(Sized(COLUMNS, ""), jnp.arange(3.0))
    finally:
        batching.unregister_vmappable(Sized)


def test_registering_what_is_no_class_is_an_error():
    with pytest.raises(TypeError, match=r"argument data_type: expected a class, got 3"):
        batching.register_vmappable(3, int, int, to_elt, from_elt, None)
