"""A process calls a program with an argument that it has deleted, and then launches what the other one launches."""

import numpy as np

import phalanx
import phalanx.numpy as jnp
from phalanx.sharding import Mesh, NamedSharding, P


@phalanx.jit
def f(x):
    return x + jnp.sum(x)


def main():
    phalanx.distributed.initialize(stuck_timeout_seconds=60)
    rows = NamedSharding(Mesh(np.array(phalanx.devices()), ("x",)), P("x"))
    x, deleted = (phalanx.device_put(np.ones(2, np.float32), rows) for _ in range(2))
    f(x).block_until_ready()
    if phalanx.process_index() == 0:
        deleted.delete()
        try:
            f(deleted)
        except phalanx.errors.DeletedArrayError as error:
            print(str(error).splitlines()[0], flush=True)
    phalanx.jit(lambda x: x * jnp.mean(x) + 1)(x).block_until_ready()  # is another launch of the same number
    print(phalanx.jit(lambda x: x + jnp.mean(x))(x).addressable_data(0).tolist(), flush=True)


if __name__ == "__main__":
    main()
