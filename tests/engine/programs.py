"""Small programs and shardings for the tests of the engine, which stands below `core` and has neither."""

import numpy as np

from phalanx.engine import buffers, client, compiler, custom_call_partitioner, mlir


class Aval:
    def __init__(self, shape, dtype):
        self.shape, self.dtype, self.weak_type = tuple(shape), np.dtype(dtype), False
        self.ndim, self.size = len(self.shape), int(np.prod(shape))


class Along(buffers.ShardingBase):
    """An array split evenly along its first dimension, or whole on one device."""

    memory_kind = None
    is_fully_replicated = False
    is_fully_addressable = True

    def __init__(self, devices):
        super().__init__()
        self.devices = list(devices)
        self._list = client.DeviceList(tuple(devices))

    # A property of the class, because jax, once imported, gives the base class one that has no setter.
    @property
    def _internal_device_list(self):
        return self._list

    @property
    def device_set(self):
        return set(self.devices)

    def _to_xla_hlo_sharding(self, ndim):
        if len(self.devices) == 1:
            return custom_call_partitioner.HloSharding.replicate()
        return custom_call_partitioner.HloSharding.iota_tile([len(self.devices)] + [1] * (ndim - 1))


class Whole(Along):
    """A copy of the whole array on each device."""

    is_fully_replicated = True

    def _to_xla_hlo_sharding(self, ndim):
        return custom_call_partitioner.HloSharding.replicate()


def put(value, device=None):
    value = np.asarray(value)
    device = device or client.devices("cpu")[0]
    return buffers.put_array(value, Aval(value.shape, value.dtype), Along([device]), device)


def parse(text, context=None):
    with context or mlir.make_context(), mlir.ir.Location.unknown():
        return mlir.ir.Module.parse(text)


def compiled(text, num_devices=1, **options):
    devices = client.devices("cpu")[:num_devices]
    return compiler.compile_module(parse(text), devices, **options)


def run(executable, arguments, avals, devices=None):
    devices = devices or client.devices("cpu")[:1]
    handlers = [buffers.result_handler(aval, Along(devices)) for aval in avals]
    return executable.execute_sharded(list(arguments)).consume_with_handlers(handlers)


ADD_ONE = """
module @add_one {
  func.func public @main(%x: tensor<8xf32>) -> tensor<8xf32> {
    %one = stablehlo.constant dense<1.0> : tensor<8xf32>
    %y = stablehlo.add %x, %one : tensor<8xf32>
    return %y : tensor<8xf32>
  }
}
"""
