"""Arrays from other libraries without a copy, under the module name that the field knows."""

from phalanx.numpy import from_dlpack as from_dlpack
