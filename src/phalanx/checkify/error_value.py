"""`Error`: whether a check failed, which one, and the values for its message, as a pytree of arrays.

Each check in a program is a `CheckSite` with a number. An error carries the number of the first site that failed (0 for
none) and the payloads, which are the arrays that messages show. Payloads of equal shapes and dtypes share their arrays,
since only one site is the first to fail. The sites are static: they are part of the tree structure.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from phalanx.core import ShapedArray, format_source, get_aval, is_extended, vector_space
from phalanx.lax import ne, select
from phalanx.numpy import argmax, reshape, take
from phalanx.tree import register_pytree_node_class


class CheckException(Exception):
    """Base of the exceptions of failed checks; the subclasses are the categories of errors."""


class FailedCheckError(CheckException):
    """A `check` of the user failed."""


class NaNError(CheckException):
    """An operation on floating-point numbers returned a NaN."""


class DivisionByZeroError(CheckException):
    """The divisor of a division or of a remainder was zero."""


class OOBError(CheckException):
    """An index was out of bounds."""


class BatchedError(CheckException):
    """Failures of a mapped function, by the mapped index."""


class JaxRuntimeError(ValueError):
    """A check failed; `Error.throw`, and a `check` outside of compiled functions, raise it.

    Examples:
      >>> from phalanx.experimental import checkify
      >>> checkify.check(False, "no {}", 1)
      Traceback (most recent call last):
        ...
      phalanx.checkify.JaxRuntimeError: no 1 (`check` failed)
    """


ErrorCategory = type[CheckException]

user_checks: Final = frozenset({FailedCheckError})
nan_checks: Final = frozenset({NaNError})
index_checks: Final = frozenset({OOBError})
div_checks: Final = frozenset({DivisionByZeroError})
float_checks: Final = nan_checks | div_checks
automatic_checks: Final = float_checks | index_checks
all_checks: Final = automatic_checks | user_checks

# The shapes and dtypes of the arrays of a payload.
Signature = tuple[tuple[tuple[int, ...], Any], ...]
_numbers = itertools.count(1)


class CheckSite:
    """A check in a program.

    Args:
      category: the exception of its failures.
      message: from the payload to the text of the exception.
      source: the traceback of the line, or None.
    """

    __slots__ = ("category", "message", "number", "source")

    def __init__(self, category: ErrorCategory, message: Callable[..., str], source: Any):
        self.category = category
        self.message = message
        self.number = next(_numbers)
        self.source = source

    def exception(self, payload: Sequence[Any]) -> CheckException:
        """The exception of a failure with this payload."""
        found = self.category(self.message(*payload))
        if self.source is not None:
            found.add_note(f"The check is at {format_source(self.source)}.")
        return found


class ErrorKind(NamedTuple):
    """The static part of an error: which sites may fail, and the payloads.

    Args:
      sites: the sites, in the order of their numbers, each with the signature of its payload.
    """

    sites: tuple[tuple[CheckSite, Signature], ...] = ()

    def __repr__(self) -> str:
        return " | ".join(sorted({site.category.__name__ for site, _ in self.sites})) or "none"

    @property
    def signatures(self) -> list[Signature]:
        """The different signatures, in a fixed order."""
        return sorted({signature for _, signature in self.sites}, key=str)

    @property
    def num_leaves(self) -> int:
        """The number of arrays of an error of this kind."""
        return 1 + sum(map(len, self.signatures))

    def union(self, *others: ErrorKind) -> ErrorKind:
        """The kind of an error that comes from one of these kinds."""
        sites = {site: signature for kind in (self, *others) for site, signature in kind.sites}
        return ErrorKind(tuple(sorted(sites.items(), key=lambda item: item[0].number)))

    def unflatten(self, leaves: Sequence[Any]) -> Error:
        """The error with these arrays, in the order of `Error.leaves`."""
        rest = iter(leaves)
        code = next(rest)
        return Error(code, {s: tuple(itertools.islice(rest, len(s))) for s in self.signatures}, self)


@register_pytree_node_class
class Error:
    """The outcome of the checks of a function, the first result of a function that `checkify` returns.

    It is a pytree of arrays, so that it may be returned from compiled and mapped functions; over the rows of a mapped
    function it holds an outcome for each.

    Args:
      code: the number of the site that failed first, 0 for none: int32[*mapped].
      payloads: for each signature the arrays that messages show.
      kind: the sites that may fail.

    Examples:
      >>> import phalanx
      >>> from phalanx.experimental import checkify
      >>> def f(x):
      ...     checkify.check(x > 0, "{} is not positive", x)
      >>> err, _ = phalanx.jit(checkify.checkify(f))(-1.0)
      >>> err.get()
      '-1.0 is not positive (`check` failed)'
    """

    __slots__ = ("code", "kind", "payloads")

    def __init__(self, code: Any, payloads: dict[Signature, tuple[Any, ...]], kind: ErrorKind):
        self.code = code
        self.payloads = payloads
        self.kind = kind

    @classmethod
    def at(cls, site: CheckSite, failed: Any, payload: Sequence[Any] = ()) -> Error:
        """The error of one site: `failed` is bool[], the payload is for its message."""
        avals = [get_aval(x) for x in payload]
        signature = tuple([(a.shape, a.dtype) for a in avals])
        code = select(failed, np.int32(site.number), np.int32(0))
        return cls(code, {signature: tuple(payload)}, ErrorKind(((site, signature),)))

    def leaves(self) -> list[Any]:
        """The code and the payloads, flat."""
        return [self.code, *(x for s in self.kind.signatures for x in self.payloads[s])]

    def then(self, later: Error) -> Error:
        """The first failure of this error and of a later one."""
        if not later.kind.sites or not self.kind.sites:
            return self if self.kind.sites else later
        kind = self.kind.union(later.kind)
        mine, others = self.of_kind(kind).leaves(), later.of_kind(kind).leaves()
        failed = ne(self.code, np.int32(0))
        return kind.unflatten([x if x is y else select(failed, x, y) for x, y in zip(mine, others, strict=True)])

    def of_kind(self, kind: ErrorKind) -> Error:
        """The same error as one of a larger kind, with zeros for the payloads that it lacks."""
        empty = {s: [vector_space.zeros(ShapedArray(*each)) for each in s] for s in kind.signatures}
        return Error(self.code, {s: tuple(self.payloads.get(s, empty[s])) for s in empty}, kind)

    def first_row(self) -> Error:
        """The error of the first failing row of a mapped error; the error itself if it is not mapped."""
        ndim = np.ndim(self.code)
        if ndim == 0:
            return self
        rows = [reshape(x, (-1, *np.shape(x)[ndim:])) for x in self.leaves()]
        row = argmax(ne(rows[0], np.int32(0)))
        return self.kind.unflatten([take(x, row, axis=0) for x in rows])

    def restrict(self, categories: frozenset[ErrorCategory]) -> Error:
        """The error without failures of other categories."""
        kind = ErrorKind(tuple([entry for entry in self.kind.sites if entry[0].category in categories]))
        if len(kind.sites) == len(self.kind.sites):
            return self
        if not kind.sites:
            return init_error
        code: Any = np.int32(0)
        for site, _ in kind.sites:
            code = select(ne(self.code, np.int32(site.number)), code, self.code)
        return Error(code, {s: self.payloads[s] for s in kind.signatures}, kind)

    def get(self) -> str | None:
        """The message of the failure, or None if all checks passed."""
        found = self.get_exception()
        return None if found is None else str(found)

    def get_exception(self) -> CheckException | None:
        """The exception of the failure, or None if all checks passed."""
        failures = dict(self._failures())
        if not failures:
            return None
        if np.ndim(self.code) == 0:
            return failures[()]
        return BatchedError("\n".join(f"at mapped index {', '.join(map(str, i))}: {e}" for i, e in failures.items()))

    def throw(self) -> None:
        """Raise the failure, if there is one; `check_error` does the same under transformations.

        Raises:
          JaxRuntimeError: a check failed.
        """
        found = self.get_exception()
        if found is not None:
            raise JaxRuntimeError(str(found)) from found

    def _failures(self) -> Iterator[tuple[tuple[int, ...], CheckException]]:
        """The mapped indices that failed, each with its exception."""
        code = np.asarray(self.code)
        sites = {site.number: (site, signature) for site, signature in self.kind.sites}
        for index in np.ndindex(*code.shape):
            if code[index]:
                site, signature = sites[int(code[index])]
                # On the host, since an index into a sharded array would need a sharding of its own.
                host = [x if is_extended(get_aval(x).dtype) else np.asarray(x) for x in self.payloads[signature]]
                yield index, site.exception([x[index] for x in host])

    def __repr__(self) -> str:
        return f"Error({self.get()})"

    def tree_flatten(self) -> tuple[list[Any], ErrorKind]:
        """The children and the static part of the pytree."""
        return self.leaves(), self.kind

    @classmethod
    def tree_unflatten(cls, kind: ErrorKind, leaves: Sequence[Any]) -> Error:
        """Build the error from the results of `tree_flatten`."""
        return kind.unflatten(leaves)


init_error: Final = Error(np.int32(0), {}, ErrorKind())
