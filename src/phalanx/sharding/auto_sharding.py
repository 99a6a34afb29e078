"""`AUTO`: the mark of arguments and results of `jit` whose shardings are left to the system."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from phalanx.core import ArgumentError, ArgumentTypeError
from phalanx.sharding.mesh import AbstractMesh, Mesh


@dataclasses.dataclass(frozen=True)
class AutoSharding:
    """A sharding that is chosen when the function is lowered, for the least time of a run. Users write `AUTO`.

    Args:
      mesh: the mesh, whose axes are Auto; by default that of the other shardings, or the one in context.
      target: the machine to choose for, as in `phalanx.plan`; by default the attached one.
      memory: the bytes that one device may need; by default the memory of the machine.
      time_limit: seconds of the search, after which the best shardings so far are taken; compiling them takes its own
        time.

    Raises:
      ArgumentTypeError: `mesh` is not a mesh.
      ArgumentError: `memory` or `time_limit` is not positive.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> from phalanx.sharding import AUTO, Mesh, P
      >>> mesh = Mesh(phalanx.devices()[:2], ("x",))
      >>> f = phalanx.jit(jnp.matmul, in_shardings=AUTO(mesh), out_shardings=AUTO(mesh))
      >>> w = phalanx.ShapeDtypeStruct((1024, 1024), "float32")
      >>> compiled = f.lower(phalanx.ShapeDtypeStruct((4096, 1024), "float32"), w).compile()
      >>> [sharding.spec for sharding in compiled.input_shardings[0]], compiled.output_shardings.spec
      ([P('x',), P()], P('x',))
    """

    mesh: Mesh | AbstractMesh | None = None
    target: Any = None
    memory: float | None = None
    time_limit: float = 30.0

    def __post_init__(self) -> None:
        if self.mesh is not None and not isinstance(self.mesh, Mesh | AbstractMesh):
            raise ArgumentTypeError(
                "AUTO, argument mesh",
                expected="a Mesh or an AbstractMesh",
                got=self.mesh,
                fix="pass a mesh, or write AUTO without arguments for the mesh in context",
            )
        for name in ("memory", "time_limit"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ArgumentError(
                    f"AUTO, argument {name}",
                    expected="a positive number",
                    got=repr(value),
                    fix="pass bytes, such as memory=80e9" if name == "memory" else "pass seconds, such as 30",
                )

    def __call__(self, mesh: Mesh | AbstractMesh | None = None, **options: Any) -> AutoSharding:
        """The same mark over a mesh.

        Args:
          mesh: the mesh.
          **options: `target`, `memory` or `time_limit`.

        Returns:
          The mark.
        """
        return dataclasses.replace(self, mesh=self.mesh if mesh is None else mesh, **options)

    def __repr__(self) -> str:
        changed = [
            f"{f.name}={value!r}" for f in dataclasses.fields(self) if (value := getattr(self, f.name)) != f.default
        ]
        return f"AUTO({', '.join(changed)})" if changed else "AUTO"


AUTO: Final = AutoSharding()
"""Leaves the shardings of arguments or results to the system."""
