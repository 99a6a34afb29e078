"""`print_environment_info`: versions, devices and settings of the process, for bug reports."""

from __future__ import annotations

import os
import platform
import sys
from importlib import metadata

from phalanx.engine import cache_sizes, client


def print_environment_info(return_string: bool = False) -> str | None:
    """Print the versions of packages, the devices, the environment variables, and the sizes of caches.

    Args:
      return_string: whether to return the text instead of printing it.

    Returns:
      The text if `return_string`, else None.

    Examples:
      >>> print_environment_info(return_string=True).split(":")[0]
      'phalanx'
    """
    text = "\n".join(
        [
            *(f"{name}: {_version(name)}" for name in ("phalanx", "jaxlib", "numpy", "scipy", "ml_dtypes")),
            f"python: {sys.version.splitlines()[0]}",
            f"system: {platform.platform()}, {os.cpu_count()} cores",
            f"process: {client.process_index()} of {client.process_count()}",
            f"devices: {client.device_count()} on {client.default_backend()}, {client.devices()[0].device_kind}",
            *(
                f"{k}={v}"
                for k, v in sorted(os.environ.items())
                if k.startswith(("PHALANX_", "JAX_", "XLA_", "CUDA_", "NVIDIA_"))
            ),
            *(f"cache {k}: {n.entries} entries, {n.misses} misses" for k, n in cache_sizes().items() if n.entries),
        ]
    )
    if return_string:
        return text
    sys.stdout.write(text + "\n")
    return None


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return getattr(sys.modules.get(name), "__version__", "not installed as a package")
