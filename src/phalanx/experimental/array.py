"""`phalanx.experimental.array`: the names by which programs of 2022 import the one array and its makers."""

from phalanx.runtime.array import Array as Array
from phalanx.spmd.placement import make_array_from_callback as make_array_from_callback
from phalanx.spmd.placement import make_array_from_single_device_arrays as make_array_from_single_device_arrays
