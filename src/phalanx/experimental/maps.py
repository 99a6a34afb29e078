"""`phalanx.experimental.maps`: the names by which older programs import meshes and `xmap`."""

from phalanx.engine.frames import guard as _guard
from phalanx.interpreters.pxla import thread_resources as thread_resources
from phalanx.sharding import Mesh as Mesh
from phalanx.spmd.xmap import SerialLoop as SerialLoop
from phalanx.spmd.xmap import serial_loop as serial_loop
from phalanx.spmd.xmap import xmap as xmap

mesh = Mesh  # `with mesh(devices, names):`, its first spelling

_guard(globals())
