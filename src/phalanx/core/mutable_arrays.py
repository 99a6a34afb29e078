"""Mutable array references: `new_ref(x)` makes a reference, whose value is read and replaced by indexing.

A reference belongs to the trace in which it was made (none while operations are evaluated eagerly) and holds its value
there: an array or a tracer, which each write replaces. Arrays stay immutable, so derivatives, batching and staging see
operations on values, as if the program had passed them along by hand.

A function that is traced to a jaxpr may use references from outside, its own arguments among them. They are inputs of
the jaxpr, and the accesses are equations, `get` and `set`; `ref_discharge` turns them into values before lowering.
"""

from __future__ import annotations

import _thread
import atexit
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from phalanx.core.aval import AbstractRef, ShapedArray, get_aval
from phalanx.core.config import state
from phalanx.core.effects import Effects, read_effect, write_effect
from phalanx.core.error_classes import ArgumentTypeError, RefError
from phalanx.core.primitive import Primitive, Undefined
from phalanx.core.promotion import promote_pair
from phalanx.core.source_info import current_traceback, format_source
from phalanx.core.tangent import Zero, vector_space
from phalanx.core.trace import StagedTracer, Tracer, leak_error, tracer_types
from phalanx.engine.callbacks import in_callback
from phalanx.engine.client import check_not_forked
from phalanx.engine.traceback_filtering import api_boundary_class
from phalanx.tree import register_pytree_node, tree_flatten, tree_leaves, tree_unflatten

if TYPE_CHECKING:
    from phalanx.typing import ArrayLike

Index = Any  # an index in x[...]
Change = Callable[[Any, Any], Any]
R = TypeVar("R")


@api_boundary_class
class RefLike:
    """Base of references and of parts of them: the methods that read and write by index."""

    __slots__ = ()

    def get(self, idx: Index = ...) -> Any:
        """The selected elements; see `phalanx.ref.get`."""
        return get(self, idx)

    def set(self, value: ArrayLike, idx: Index = ...) -> None:
        """Replace the selected elements; see `phalanx.ref.set`."""
        set_(self, idx, value)

    def swap(self, value: ArrayLike, idx: Index = ...) -> Any:
        """Replace the selected elements and return the former ones; see `phalanx.ref.swap`."""
        return swap(self, idx, value)

    def addupdate(self, x: ArrayLike, idx: Index = ...) -> None:
        """Add to the selected elements; see `phalanx.ref.addupdate`."""
        addupdate(self, idx, x)

    def __getitem__(self, index: Index) -> Any:
        return get(self, index)

    def __setitem__(self, index: Index, value: ArrayLike) -> None:
        set_(self, index, value)


class Ref(RefLike):
    """A mutable array: a reference to an array that can be replaced, in whole or in part.

    References are made by `new_ref`. `ref[index]` reads and `ref[index] = value` writes, with the indices of NumPy;
    `ref[...]` is the whole value. A reference is no array: to compute with it, read it.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> ref = phalanx.new_ref(jnp.zeros(3))
      >>> ref[1] += 2.0
      >>> ref
      Ref([0., 2., 0.], dtype=float32)
    """

    __slots__ = ()

    aval: Any

    shape = property(attrgetter("aval.shape"))
    dtype = property(attrgetter("aval.dtype"))
    ndim = property(attrgetter("aval.ndim"))
    size = property(attrgetter("aval.size"))
    weak_type = property(attrgetter("aval.weak_type"))

    @property
    def at(self) -> _At:
        """Parts of the array as references: `ref.at[1:3][0]` reads and writes element 1."""
        return _At(self, ())

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a reference to an array of rank 0")
        return self.shape[0]

    __iter__ = None  # Python would call `__getitem__` until an index is out of range, which none is.
    __hash__ = object.__hash__  # a reference is compared by identity
    __eq__ = object.__eq__
    __ne__ = object.__ne__


class RefCell(Ref):
    """A reference in the trace that it belongs to, with its value."""

    __slots__ = ("__weakref__", "_made", "_trace", "_value", "aval", "is_shared", "is_view", "is_written", "turn")

    def __init__(self, trace: Any, value: Any, is_view: bool = False):
        self._trace, self._value = trace, value
        self.is_view = is_view  # whether its final value is written back into a reference of an outer trace
        self.aval = AbstractRef(get_aval(value))
        self.is_written = False
        # Whether an array may have the same buffer, which must then not be reused.
        self.is_shared = True
        self._made = None if trace is None else current_traceback()
        self.turn = _thread.RLock() if trace is None else None  # only one thread traces

    @property
    def is_open(self) -> bool:
        """Whether it belongs to a trace, so that a jaxpr that closes over it cannot be used by another trace."""
        return self._trace is not None

    def origin(self) -> str | None:
        """The source line that made the reference, if it is known."""
        return None if self._made is None else format_source(self._made)

    @property
    def value(self) -> Any:
        """The value in the trace of the reference."""
        if self._value is None:
            raise RefError(
                "access to a reference",
                expected="one that is in use",
                got=f"{self.aval.str_short()}, which was invalidated by freeze or free_ref",
                fix="keep the array that freeze returned, or make a new reference with new_ref",
            )
        return self._value

    @value.setter
    def value(self, value: Any) -> None:
        self._value, self.is_written, self.is_shared = value, True, True

    def own(self) -> None:
        """State that no array has the buffer of the value, which was computed for the reference."""
        self.is_shared = False

    def take(self) -> Any:
        """The final value; the reference cannot be used afterwards."""
        value, self._value = self.value, None
        return value

    def in_current_trace(self) -> bool:
        """Whether the current trace is that of the reference."""
        if self._trace is not None and not self._trace.alive:
            made = f"made at {self.origin()} during the tracing of {self._trace.name or 'fn'}"
            raise RefError(
                "access to a reference",
                expected="one of the current computation",
                got=f"{self.aval.str_short()}, {made}",
                fix="make the reference outside of the transformed function, or return its value instead",
            )
        return self._trace is state.trace

    sharding = property(lambda self: self.value.sharding)
    format = property(lambda self: self.value.format)
    committed = property(lambda self: getattr(self.value, "committed", False))
    is_fully_replicated = property(lambda self: self.value.is_fully_replicated)
    is_fully_addressable = property(lambda self: self.value.is_fully_addressable)

    def unsafe_buffer_pointer(self) -> int:
        """The address of the array's data."""
        return self.value.unsafe_buffer_pointer()

    def block_until_ready(self) -> RefCell:
        """Wait until the value is computed."""
        self.value.block_until_ready()
        return self

    def __repr__(self) -> str:
        if self._value is None:
            return f"Ref<{self.aval.inner_aval.str_short()}, invalidated>"
        if self._trace is not None:
            return f"Ref<{self.aval.inner_aval.str_short()}>"
        return f"Ref{repr(self._value).removeprefix('Array')}"

    def __reduce__(self) -> Any:
        raise TypeError("a mutable array reference cannot be pickled; pickle its value, ref[...]")


# The number of threads that Python code has started and that go on, those of callbacks not among them.
count_threads = _thread._count


def in_turn(refs: Sequence[Any], access: Callable[[], R]) -> R:
    """Access references, which belong to no trace, while no other thread does.

    A call of a compiled function reads references, runs, and writes its results back, and gives their former buffers to
    the program. It takes no turn in a callback: the thread whose turn it is may wait for the run that calls back.

    Args:
      refs: the references.
      access: what to do with them.

    Returns:
      Its result.
    """
    if not count_threads() or in_callback() or _is_ending:
        return access()
    check_not_forked()  # The parent may have held the locks.
    if len(refs) == 1:
        with refs[0].turn:
            return access()
    with ExitStack() as turns:
        for ref in sorted(refs, key=id):  # in one order, so that no two threads wait for each other
            turns.enter_context(ref.turn)
        return access()


_is_ending = False


@atexit.register
def _end_turns() -> None:
    global _is_ending
    _is_ending = True  # Daemon threads may have been stopped in their turn.


class StagedRef(Ref, StagedTracer):
    """A reference from outside of a function that is being traced to a jaxpr: an input of the jaxpr."""

    __slots__ = ()

    __repr__ = StagedTracer.__repr__


tracer_types[AbstractRef] = StagedRef
REF_TYPES: Final = frozenset((RefCell, StagedRef))


class _RefAccess(Primitive):
    """Base of the operations on a whole reference."""

    typed_sharding_rule = True
    sharding_rule = Undefined("references are replaced by values before a jaxpr is partitioned")
    lower = Undefined("references are replaced by values before a jaxpr is lowered")

    def __call__(self, ref: Any, *args: Any) -> Any:
        if type(ref) is RefCell and ref.in_current_trace():
            return self.access(ref, *args)
        if state.trace is None:
            raise leak_error(ref)
        return state.trace.process(self, (ref, *args), {})

    bind = __call__

    def access(self, ref: RefCell, *args: Any) -> Any:
        """Access a reference of the current trace."""
        raise NotImplementedError  # defined by both operations


class ReadRef(_RefAccess, name="get"):
    """The value of a reference."""

    def abstract_eval(self, ref: AbstractRef) -> ShapedArray:
        return ref.inner_aval

    def effects(self, *avals: Any) -> Effects:
        return frozenset((read_effect,))

    def access(self, ref: RefCell) -> Any:
        return ref.value

    jvp = Undefined("the reference has no tangent")
    batch = Undefined("the reference is not mapped")


class WriteRef(_RefAccess, name="set", multiple=True):
    """Replace the value of a reference."""

    def abstract_eval(self, ref: AbstractRef, value: ShapedArray) -> list[Any]:
        return []

    def effects(self, *avals: Any) -> Effects:
        return frozenset((write_effect,))

    def __call__(self, ref: Any, value: Any) -> Any:
        check_not_batched(ref)
        return super().__call__(ref, value)

    bind = __call__

    def access(self, ref: RefCell, value: Any) -> list[Any]:
        _ = ref.value  # which must not be invalidated
        ref.value = value
        return []

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
        if type(tangents[1]) is not Zero:
            raise RefError(
                "write to a reference in a differentiated function",
                expected="a value without a derivative, since the reference was made outside of the function",
                got=f"a differentiated value for {get_aval(primals[0]).str_short()}",
                fix="write lax.stop_gradient(value). Move the array reference into the function, or make it a "
                "differentiated argument of vjp, to differentiate through it",
            )
        return self(*primals), []

    batch = Undefined("a mapped function does not write references from outside")


read_p, write_p = ReadRef(), WriteRef()


def check_not_batched(ref: Any) -> None:
    """Refuse a write to a reference from outside of a function under `vmap`: the examples would write in no order."""
    trace = state.trace
    if trace is not None and trace.is_batched and ref._trace is not trace:
        raise RefError(
            "write to a reference under vmap",
            expected="a reference for each example",
            got=f"an unbatched array reference, {ref.aval.str_short()}, which all examples share",
            fix="pass the reference to the mapped function as an argument with a dimension in in_axes, or return the "
            "values instead",
        )


# Reading and writing by index


def _check_ref(operation: str, ref: Any) -> None:
    if not isinstance(ref, RefLike):
        raise ArgumentTypeError(
            f"{operation}, argument ref",
            expected="a mutable array reference",
            got=f"a {type(ref).__name__}",
            fix="make a reference with phalanx.new_ref(x)",
        )


def _is_whole(index: Index) -> bool:
    return index is ... or index is None or (type(index) is tuple and all(i is ... for i in index))


def get(ref: RefLike, idx: Index = None) -> Any:
    """Read elements of a reference: the same as `ref[idx]`.

    Args:
      ref: the reference.
      idx: any index of NumPy; None is the whole array.

    Returns:
      The elements, as an array.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> int(get(phalanx.new_ref(jnp.arange(3)), 2))
      2
    """
    if type(ref) is RefCell:
        if count_threads() and ref.turn is not None and state.trace is None:
            return in_turn((ref,), lambda: _get(ref, idx))
        return _get(ref, idx)
    _check_ref("get", ref)
    if isinstance(ref, RefView):
        return _select(get(ref.ref), (*ref.indices, idx))
    value = read_p(ref)
    return value if _is_whole(idx) else value[idx]


def _get(ref: RefCell, idx: Index) -> Any:
    value = read_p(ref)
    part = value if _is_whole(idx) else value[idx]
    if part is value:
        ref.is_shared = True
    return part


def set_(ref: RefLike, idx: Index, value: ArrayLike) -> None:
    """Write elements of a reference: the same as `ref[idx] = value`.

    Args:
      ref: the reference.
      idx: any index of NumPy; None is the whole array.
      value: scalar or array that broadcasts to the selected elements.

    Raises:
      RefError: the dtype of the value is another one, and not weakly typed; or it does not broadcast.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> ref = phalanx.new_ref(jnp.arange(3))
      >>> set_(ref, 0, 5)
      >>> ref
      Ref([5, 1, 2], dtype=int32)
    """
    _check_ref("set", ref)
    _update(ref, idx, _as_element(ref, value), lambda at, x: at.set(x), lambda old, x: x)


def swap(ref: RefLike, idx: Index, value: ArrayLike) -> Any:
    """Write elements of a reference, and return the elements before.

    Args:
      ref: the reference.
      idx: any index of NumPy; None is the whole array.
      value: scalar or array that broadcasts to the selected elements.

    Returns:
      The former elements.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> int(swap(phalanx.new_ref(jnp.arange(3)), 2, 7))
      2
    """
    before = get(ref, idx)
    set_(ref, idx, value)
    return before


def addupdate(ref: RefLike, idx: Index, x: ArrayLike) -> None:
    """Add to elements of a reference: the same as `ref[idx] += x`, but an index that occurs twice counts twice.

    Args:
      ref: the reference.
      idx: any index of NumPy; None is the whole array.
      x: scalar or array that broadcasts to the selected elements.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> ref = phalanx.new_ref(jnp.zeros(3))
      >>> addupdate(ref, jnp.array([1, 1]), 2.0)
      >>> ref
      Ref([0., 4., 0.], dtype=float32)
    """
    _check_ref("addupdate", ref)
    _update(ref, idx, _as_element(ref, x), lambda at, x: at.add(x), vector_space.add)


def _update(ref: Any, idx: Index, x: Any, change: Change, change_whole: Change) -> None:
    """Replace the value of a reference by one in which the elements at an index are changed."""
    base, indices = (ref.ref, (*ref.indices, idx)) if isinstance(ref, RefView) else (ref, (idx,))
    parts = [i for i in indices if not _is_whole(i)]

    def update() -> None:
        write_p(base, _change(read_p(base), parts, x, change, change_whole))

    if state.trace is None and type(base) is RefCell and base.turn is not None:
        in_turn((base,), update)
    else:
        update()


def _change(value: Any, indices: Sequence[Index], x: Any, change: Change, change_whole: Change) -> Any:
    """A value with the elements changed that are selected by one index after the other."""
    if not indices:
        shape = value.shape
        if get_aval(x).shape != shape:
            x = _broadcast(x, shape)
        return change_whole(value, x)
    if len(indices) == 1:
        return change(value.at[indices[0]], x)
    part = _change(value[indices[0]], indices[1:], x, change, change_whole)
    return value.at[indices[0]].set(part)


def _select(value: Any, indices: Sequence[Index]) -> Any:
    for index in indices:
        value = value if _is_whole(index) else value[index]
    return value


def _broadcast(x: Any, shape: tuple[Any, ...]) -> Any:
    have = get_aval(x).shape
    trailing = shape[len(shape) - len(have) :]
    if len(have) > len(shape) or any(a not in (1, b) for a, b in zip(have, trailing, strict=True)):
        raise RefError(
            "write to a reference",
            expected=f"a value that broadcasts to shape {list(shape)}",
            got=f"shape {list(have)}",
            fix="reshape the value, or select the elements to write by an index",
        )
    return vector_space.broadcast_to(x, shape)


def _as_element(ref: Any, x: Any) -> Any:
    """A value to write, in the dtype of the reference."""
    if isinstance(x, RefLike):
        raise RefError(
            "write to a reference",
            expected="an array",
            got="a mutable array reference; references cannot refer to references",
            fix="read the value first: write other[...] instead of other",
        )
    aval, dtype = get_aval(x), ref.dtype
    if aval.dtype == dtype and not aval.weak_type:
        return x
    if aval.dtype == dtype or (aval.weak_type and promote_pair(dtype, False, aval.dtype, True)[0] == dtype):
        return vector_space.as_type(x, dtype, False)
    raise RefError(
        "write to a reference",
        expected=f"a value of dtype {dtype}",
        got=aval.str_short(),
        fix=f"convert the value with .astype({str(dtype)!r}), or make the reference with dtype {aval.dtype}",
    )


@api_boundary_class
class RefView(RefLike):
    """A part of a reference, selected by one index after another; reads and writes go to the reference.

    Functions that are transformed take the reference as their argument: a view is a pytree of it and of traced indices.
    """

    __slots__ = ("indices", "ref")

    def __init__(self, ref: Ref, indices: tuple[Any, ...]):
        self.ref, self.indices = ref, indices

    dtype = property(lambda self: self.ref.dtype)
    shape = property(lambda self: get(self).shape)
    ndim = property(lambda self: len(self.shape))

    @property
    def at(self) -> _At:
        """Parts of this part."""
        return _At(self.ref, self.indices)

    def __repr__(self) -> str:
        return f"{self.ref!r}.at{''.join(f'[{i}]' for i in self.indices)}"


# What stands for an index that is an array, or for a slice, in the structure of a view as a pytree.
_ARRAY, _SLICE = object(), object()


def _flatten_view(view: RefView) -> tuple[tuple[Any, ...], Any]:
    """The reference and the traced parts of the indices; the other parts belong to the structure."""
    parts, tree = tree_flatten(view.indices, is_leaf=lambda x: x is None)
    traced = [hasattr(part, "aval") or isinstance(part, np.ndarray) for part in parts]
    # Slices cannot be hashed before Python 3.12.
    fixed = [(_SLICE, part.start, part.stop, part.step) if isinstance(part, slice) else part for part in parts]
    structure = [_ARRAY if t else part for part, t in zip(fixed, traced, strict=True)]
    return (view.ref, *[part for part, t in zip(parts, traced, strict=True) if t]), (tree, tuple(structure))


def _unflatten_view(structure: Any, children: Sequence[Any]) -> RefView:
    (tree, parts), (ref, *arrays) = structure, children
    rest = iter(arrays)
    # A tuple among the parts is a slice, since tuples of indices are nodes of the tree.
    restored = [slice(*part[1:]) if type(part) is tuple else next(rest) if part is _ARRAY else part for part in parts]
    return RefView(ref, tree_unflatten(tree, restored))


register_pytree_node(RefView, _flatten_view, _unflatten_view)


def check_no_views(where: str, args: Any) -> None:
    """Refuse views of references among the arguments of a mapped function; axes count its dimensions.

    Raises:
      RefError: an argument is a view.
    """
    for x in tree_leaves(args, is_leaf=lambda x: isinstance(x, RefView)):
        if isinstance(x, RefView):
            raise RefError(
                where,
                expected="arrays and references",
                got=f"a view of a reference, {x!r}",
                fix="pass the reference, and take the view inside of the function",
            )


class _At:
    """The value of `ref.at`: indexing it gives a view."""

    __slots__ = ("indices", "ref")

    def __init__(self, ref: Ref, indices: tuple[Any, ...]):
        self.ref, self.indices = ref, indices

    def __getitem__(self, index: Index) -> RefView:
        return RefView(self.ref, (*self.indices, index))


# Making and ending references


def new_ref(init_val: ArrayLike, *, memory_space: Any = None, kind: str | None = None, pin: bool = False) -> Any:
    """Make a mutable array.

    Args:
      init_val: the initial value, an array or scalar.
      memory_space: accepted for compatibility; None, since the memory is that of the initial value.
      kind: accepted for compatibility; not read: writes are never repeated by rematerialization.
      pin: accepted for compatibility; not read.

    Returns:
      The reference.

    Raises:
      RefError: `init_val` is a reference, or a `memory_space` is given.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> count = phalanx.new_ref(0)
      >>> @phalanx.jit
      ... def tick():
      ...     count[...] += 1
      >>> tick()
      >>> tick()
      >>> count
      Ref(2, dtype=int32)
    """
    if isinstance(init_val, RefLike):
        raise RefError(
            "new_ref, argument init_val",
            expected="an array or scalar",
            got="a mutable array reference; references cannot refer to references",
            fix="pass its value, ref[...]",
        )
    if memory_space is not None:
        raise RefError(
            "new_ref, argument memory_space",
            expected="None: the memory is that of the initial value",
            got=repr(memory_space),
            fix="place the initial value with phalanx.device_put",
        )
    aval = get_aval(init_val)
    is_array = isinstance(init_val, Tracer) or hasattr(init_val, "_type")
    if not is_array or aval.weak_type:
        init_val = vector_space.as_type(init_val, aval.dtype, False)
    return RefCell(state.trace, init_val)


def empty_ref(ty: Any, memory_space: Any = None, pin: bool = False) -> Ref:
    """Make a mutable array of a type, without an initial value: it holds zeros.

    Args:
      ty: an object with a shape and a dtype, such as a `ShapeDtypeStruct`.
      memory_space, pin: as in `new_ref`.

    Returns:
      The reference.

    Examples:
      >>> import phalanx
      >>> empty_ref(phalanx.ShapeDtypeStruct((2,), "float32"))
      Ref([0., 0.], dtype=float32)
    """
    aval = ty if isinstance(ty, ShapedArray) else getattr(ty, "aval", None) or ShapedArray(ty.shape, ty.dtype)
    return new_ref(vector_space.zeros(aval.strip_weak_type()), memory_space=memory_space, pin=pin)


def freeze(ref: Ref) -> Any:
    """The final value of a reference, which cannot be used afterwards.

    Args:
      ref: a reference made in the same function.

    Returns:
      The array.

    Raises:
      RefError: the reference comes from outside of a traced function.

    Examples:
      >>> import phalanx
      >>> float(phalanx.freeze(phalanx.new_ref(1.0)))
      1.0
    """
    _check_ref("freeze", ref)
    if type(ref) is not RefCell or not ref.in_current_trace():
        raise RefError(
            "freeze, argument ref",
            expected="a reference that was made in the function that freezes it",
            got=f"{ref.aval.str_short()} from outside of the function that is traced",
            fix="freeze it where it was made, and read its value, ref[...], here",
        )
    return ref.take()


def free_ref(ref: Ref) -> None:
    """Invalidate a reference: using it afterwards is an error, and its memory can be reused.

    Args:
      ref: a reference made in the same function.

    Examples:
      >>> import phalanx
      >>> ref = phalanx.new_ref(1.0)
      >>> phalanx.free_ref(ref)
      >>> ref
      Ref<f32[], invalidated>
    """
    freeze(ref)
