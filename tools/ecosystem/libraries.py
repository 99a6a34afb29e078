"""The libraries that `make ecosystem` runs, each in its current release on PyPI.

Libraries are installed without their requirements, because these name jax; what else they need is listed here.
"""

from __future__ import annotations

from typing import NamedTuple


class Library(NamedTuple):
    """A library that imports jax.

    Attributes:
      name: its name on PyPI.
      module: the module that programs import.
      requires: the packages that it needs, beside jax and the other libraries.
      tests: the folder of its tests in its source distribution; empty if the distribution has none.
      environ: environment variables that its tests read, as `NAME=value` separated by spaces.
    """

    name: str
    module: str
    requires: str = ""
    tests: str = ""
    environ: str = ""


LIBRARIES = (
    Library("optax", "optax", "absl-py", "optax"),
    Library("chex", "chex", "absl-py toolz typing_extensions", "chex"),
    Library("equinox", "equinox", "wadler_lindig typing_extensions"),
    Library("diffrax", "diffrax"),
    Library("lineax", "lineax"),
    Library("optimistix", "optimistix"),
    Library("distrax", "distrax", "mock", "distrax"),
    Library("dm-haiku", "haiku", "jmp tabulate dm-tree cloudpickle dill", "haiku"),
    Library("flax", "flax.linen", "msgpack pyyaml rich treescope", "tests/linen"),
    Library("rlax", "rlax", "dm-env", "rlax"),
    Library("mctx", "mctx", "dm-tree", "mctx"),
    Library("numpyro", "numpyro", "multipledispatch tqdm", "test"),
    Library("blackjax", "blackjax", "fastprogress", "tests"),
    Library("jaxopt", "jaxopt"),
    Library("penzai", "penzai.pz", "ordered-set treescope", "tests"),
    Library("jraph", "jraph", "", "jraph"),
    Library("einops", "einops", "", "einops/tests", "EINOPS_TEST_BACKENDS=numpy,jax"),
    Library("jaxtyping", "jaxtyping", "wadler_lindig beartype"),
    Library("safetensors", "safetensors.flax"),
    Library(
        "orbax-checkpoint",
        "orbax.checkpoint",
        "absl-py etils[epath,epy] typing_extensions msgpack prometheus-client pyyaml tensorstore aiofiles protobuf "
        "humanize simplejson psutil uvloop",
    ),
    Library("tfp-nightly", "tensorflow_probability.substrates.jax", "decorator gast cloudpickle dm-tree six absl-py"),
)

# Programs are named after the module that they use; these modules have another name than that.
PREFIXES = {"linen": "flax", "haiku": "dm-haiku", "orbax": "orbax-checkpoint", "tfp": "tfp-nightly"}
