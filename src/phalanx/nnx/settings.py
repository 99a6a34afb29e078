"""Settings of `nnx` that take effect at once, for a `with` block, or for the calls of a decorated function.

The values are options of `phalanx.config`, so that they belong to the running thread or asyncio task. `graph_mode`,
`variable` and `sharding.logical_axis_rules` declare the settings.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from phalanx.core import current_scope, enter_block, leave_block, set_without_block, state_extra

F = TypeVar("F", bound=Callable)


class OptionValues:
    """Values of options that are set on construction, and inside a `with` block for that block only.

    Args:
      **values: the values by the names of the options.
    """

    def __init__(self, **values: Any):
        self._values = values
        self._outer = {name: set_without_block(name, value) for name, value in values.items()}

    def _undo(self) -> None:
        for name, value in self._outer.items():
            set_without_block(name, value)
        self._outer = {}

    def __enter__(self) -> None:
        self._undo()
        enter_block(self, self._values)

    def __exit__(self, *_: object) -> None:
        leave_block(self)

    def __call__(self, f: F) -> F:
        # The values were set when the decorator was made, and hold for the calls of `f` only.
        self._undo()

        @functools.wraps(f)
        def call(*args: Any, **kwargs: Any) -> Any:
            with state_extra(**self._values):
                return f(*args, **kwargs)

        return call  # type: ignore[return-value]


class Setting(OptionValues):
    """One option that is true or false.

    Args:
      value: its value.
    """

    _option: ClassVar[str]

    def __init__(self, value: bool, /):
        super().__init__(**{self._option: bool(value)})

    @classmethod
    def current_value(cls) -> bool:
        """The value in the running code."""
        return current_scope().read(cls._option)
