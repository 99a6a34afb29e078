"""The plan of a program: a record of what it needs, sends and takes on each device of a mesh."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields as dataclass_fields
from typing import Any

from phalanx.planning.plan_page import format_page
from phalanx.planning.plan_report import format_plan
from phalanx.planning.planned_arrays import PlannedArray
from phalanx.planning.planned_memory import PlannedMemory
from phalanx.planning.timing import TimeEstimate
from phalanx.spmd.communication import Collectives


@dataclass(frozen=True)
class Plan:
    """What a program needs, sends and takes on each device of a mesh. The printed form is a report.

    Args:
      name: the name of the function.
      mesh: the size of each mesh axis by name; empty if the program has no mesh.
      arrays: the arguments that the program reads and its results, with their shardings.
      num_devices: the number of devices.
      target: the name of the machine; None if there is none.
      compiler: the compiler that answered.
      notes: how its answer was corrected for the target.
      memory: the memory of one device.
      collectives: the communication.
      time: the estimated time of one run; None without a target.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> from phalanx.sharding import AbstractMesh, P
      >>> w = phalanx.ShapeDtypeStruct((1024, 1024), "float32")
      >>> found = phalanx.plan(jnp.tanh, w, mesh=AbstractMesh((16,), ("x",)), in_shardings=P("x"))
      >>> found.memory.peak
      524288
    """

    name: str
    mesh: dict[Any, int]
    arrays: tuple[PlannedArray, ...]
    num_devices: int
    target: str | None
    compiler: str
    notes: tuple[str, ...]
    memory: PlannedMemory
    collectives: Collectives
    time: TimeEstimate | None

    def __str__(self) -> str:
        return format_plan(self)

    def to_json(self) -> str:
        """The plan as JSON, with the version of its form.

        Returns:
          The text: an object with the fields of the plan and, under "version", the number 2.

        Examples:
          >>> import json, phalanx, phalanx.numpy as jnp
          >>> found = json.loads(phalanx.plan(jnp.tanh, phalanx.ShapeDtypeStruct((8,), "float32")).to_json())
          >>> found["version"], found["memory"]["peak"]
          (2, 64)
        """
        memory = {**asdict(self.memory), "peak": self.memory.peak, "excess": self.memory.excess}
        time = None if self.time is None else {**asdict(self.time), "step": self.time.step}
        collectives = [{**c._asdict(), "executions": c.executions} for c in self.collectives]
        fields = {f.name: getattr(self, f.name) for f in dataclass_fields(self)}
        arrays = [asdict(a) for a in self.arrays]
        known = {"memory": memory, "time": time, "collectives": collectives, "arrays": arrays}
        return json.dumps({"version": 2, **fields, **known, "mesh": {str(k): n for k, n in self.mesh.items()}})

    def to_html(self) -> str:
        """The plan as one HTML page, which needs no other file.

        Returns:
          The text: the mesh, the shardings and the memory over the program as pictures, and tables that sort by their
          columns.

        Examples:
          >>> import phalanx, phalanx.numpy as jnp
          >>> phalanx.plan(jnp.tanh, phalanx.ShapeDtypeStruct((8,), "float32")).to_html()[:15]
          '<!DOCTYPE html>'
        """
        return format_page(self)
