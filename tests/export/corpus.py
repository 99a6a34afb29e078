"""The corpus: artifacts of every kind as one version of phalanx writes them, with inputs and results beside them.

`python -m tests.export.corpus v1` writes the files of the running version into tests/data/export/; the files of released
versions are never written again. `v1-mesh_axes`, `v1-equations` and `v1-named` are of one function, from the steps in which
the first version came. `tests/export/test_corpus.py` reads and runs them all.
"""

import sys
from pathlib import Path

import numpy as np

import phalanx
import phalanx.numpy as jnp
from phalanx import export, lax, random
from phalanx.sharding import NamedSharding, PartitionSpec as P

DATA = Path(__file__).parents[1] / "data" / "export"


def programs():
    """Name, exported program, order of derivatives, and example arguments."""
    x = np.arange(12, dtype="f4").reshape(3, 4) / 10
    y = np.linspace(-1, 1, 8, dtype="f4").reshape(4, 2)

    def network(params, x):
        return {"out": jnp.tanh(x @ params["w"]).sum(0), "parts": [x.max(), (x > 0).sum()]}

    yield "trees", export.export(phalanx.jit(network))({"w": y}, x), 2, ({"w": y}, x)
    specs = export.symbolic_args_specs((x, y), ("b, n", "n, _"), ["b >= 2", "n <= 64", "mod(n, 2) == 0"])
    shapes = phalanx.jit(lambda x, y: ((x @ y).reshape(-1), x.reshape(x.shape[0], -1, 2).sum(1) / x.shape[1]))
    yield "shapes", export.export(shapes)(*specs), 1, (x, y)
    solve = phalanx.jit(lambda a, b: lax.linalg.triangular_solve(a @ a.T + jnp.eye(3), b, left_side=True, lower=True))
    yield "platforms", export.export(solve, platforms=["cuda", "cpu"])(x[:, :3], x), 0, (x[:, :3], x)
    key = np.asarray(random.key_data(random.key(7)))
    draw = phalanx.jit(lambda words: random.uniform(random.wrap_key_data(words), (3,)))
    yield "random", export.export(draw)(key), 0, (key,)
    mesh = phalanx.make_mesh((4, 2), ("data", "model"))
    rows, whole = NamedSharding(mesh, P("data", "model")), NamedSharding(mesh, P())
    product = phalanx.jit(lambda a, b: a @ b, in_shardings=(rows, whole), out_shardings=rows)
    square = np.arange(64, dtype="f4").reshape(8, 8)
    yield "mesh", export.export(product)(square, square), 1, (square, square)


def place(exported, leaves):
    """The arguments where the program wants them."""
    if exported.nr_devices == 1:
        return leaves
    mesh = phalanx.make_mesh((exported.nr_devices,), ("devices",))
    placed = zip(leaves, exported.in_shardings_jax(mesh), strict=True)
    return [phalanx.device_put(x, s) for x, s in placed]


def main(version):
    """Write the corpus of one version."""
    for name, exported, order, args in programs():
        leaves = [np.asarray(x) for x in phalanx.tree.leaves(args)]
        positional, named = phalanx.tree.unflatten(exported.in_tree, place(exported, leaves))
        out = [np.asarray(x) for x in phalanx.tree.leaves(exported.call(*positional, **named))]
        (DATA / f"{version}-{name}.phalanx").write_bytes(exported.serialize(vjp_order=order))
        arrays = {f"in{i}": x for i, x in enumerate(leaves)} | {f"out{i}": x for i, x in enumerate(out)}
        np.savez_compressed(DATA / f"{version}-{name}.npz", **arrays)


if __name__ == "__main__":
    main(sys.argv[1])
