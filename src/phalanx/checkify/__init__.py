"""Run-time checks as values: `checkify` turns a function that may fail into one that also returns an `Error`.

Compiled programs cannot raise Python exceptions. `checkify` interprets the jaxpr of a function and adds results that
tell whether a `check` failed, or, on request, where a NaN, a division by zero or an out-of-bounds index appeared first.

`error_value` has the `Error` with its sites, `check_primitive` the checks that users write, `operation_checks` the
checks of operations, and `functionalization` the interpreter with a rule for each kind of call. Users import the
package as `phalanx.experimental.checkify`.
"""

from phalanx.checkify.check_primitive import check as check, check_error as check_error, debug_check as debug_check
from phalanx.checkify.error_value import (
    Error as Error,
    ErrorCategory as ErrorCategory,
    JaxRuntimeError as JaxRuntimeError,
    all_checks as all_checks,
    automatic_checks as automatic_checks,
    div_checks as div_checks,
    float_checks as float_checks,
    index_checks as index_checks,
    init_error as init_error,
    nan_checks as nan_checks,
    user_checks as user_checks,
)
from phalanx.checkify.functionalization import checkify as checkify
from phalanx.engine.public_namespace import publish as _publish

__getattr__, __dir__ = _publish(globals())
