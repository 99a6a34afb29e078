"""The exceptions that users meet, under their module name."""

from phalanx.core.errors import *  # noqa: F403  # the module is a list of names and nothing else
from phalanx.engine.failures import XlaRuntimeError as JaxRuntimeError  # noqa: F401  # as programs of the field catch it
