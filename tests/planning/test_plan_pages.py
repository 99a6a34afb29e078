"""The pages of plans before and after AUTO, which `make plans` writes."""

from __future__ import annotations

from types import SimpleNamespace

from tools.plan_pages import PLACES, Place, format_section

import phalanx
import phalanx.numpy as jnp
from phalanx.planning.machines import HOST
from phalanx.sharding import AbstractMesh, P


def test_a_section_draws_the_larger_plan_as_the_full_bar():
    x, mesh = phalanx.ShapeDtypeStruct((512, 512), "float32"), AbstractMesh((4, 2), ("data", "model"))
    before, after = (
        phalanx.plan(jnp.tanh, x, mesh=mesh, in_shardings=spec, target=HOST) for spec in (P(), P(("data", "model")))
    )
    choice = SimpleNamespace(plan=after, name="solved", to_code=lambda: "in_shardings=(P('<data>'),)")
    page = format_section("cpu", Place("8 CPU devices", (4, 2), "cpu", PLACES["cpu"].config), before, choice)
    assert '<td class=before>2.1 MB<div class=bar style="width:100.0%"></div>' in page
    assert '<td class=after>262 kB<div class=bar style="width:12.5%"></div>' in page
    assert "<a href=cpu_after.html>after: AUTO, which took solved</a>" in page
    assert "P(&#x27;&lt;data&gt;&#x27;)" in page
    assert page.count("<td") == page.count("</td>") == 6
