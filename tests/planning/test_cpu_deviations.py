"""What XLA for CPUs sends in place of what other compilers would send."""

from __future__ import annotations

import pytest

from phalanx.engine.hlo_collectives import find_communication
from phalanx.engine.hlo_parser import HloModule
from phalanx.planning.cpu_deviations import CompiledForCpus

FUSIONS = """
%widen (w: bf16[8,4]) -> f32[8,4] {
  %w = bf16[8,4]{1,0} parameter(0)
  ROOT %wide = f32[8,4]{1,0} convert(%w)
}

%part (n: f32[8,4], i: s32[]) -> bf16[2,4] {
  %n = f32[8,4]{1,0} parameter(0)
  %i = s32[] parameter(1)
  %h = bf16[8,4]{1,0} convert(%n)
  %z = s32[] constant(0)
  ROOT %s = bf16[2,4]{1,0} dynamic-slice(%h, %i, %z), dynamic_slice_sizes={2,4}
}

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = f32[] add(%a, %b)
}
"""
GROUPS = "replica_groups={{0,1,2,3}}, to_apply=%add"


@pytest.mark.parametrize(
    "lines, sent",
    [
        (["%r = f32[8,4]{1,0} all-reduce(%f), GROUPS", "ROOT %e = f32[8,4]{1,0} sine(%r)"], [("all-reduce", 128)]),
        (["%r = f32[8,4]{1,0} all-reduce(%f), GROUPS_promoted", "ROOT %e = f32[8,4]{1,0} sine(%r)"], [("all-reduce", 64)]),
        (
            ["%g = f32[8,4]{1,0} fusion(%h), kind=kLoop, calls=%widen",
             "%r = f32[32,4]{1,0} all-gather(%g), replica_groups={{0,1,2,3}}, dimensions={0}",
             "ROOT %e = f32[32,4]{1,0} sine(%r)"],
            [("all-gather", 256)],
        ),
        (
            ["%r = f32[8,4]{1,0} all-reduce(%f), GROUPS_promoted",
             "ROOT %e = bf16[2,4]{1,0} fusion(%r, %i), kind=kLoop, calls=%part"],
            [("reduce-scatter", 64)],
        ),
        (
            ["%r = (f32[8,4]{1,0}, f32[4]{0}) all-reduce(%f, %k), GROUPS",
             "%x = f32[8,4]{1,0} get-tuple-element(%r), index=0",
             "%y = f32[4]{0} get-tuple-element(%r), index=1",
             "%e = bf16[2,4]{1,0} fusion(%x, %i), kind=kLoop, calls=%part",
             "ROOT %t = (bf16[2,4]{1,0}, f32[4]{0}) tuple(%e, %y)"],
            [("all-reduce", 16), ("reduce-scatter", 128)],
        ),
        (
            ["%r = f32[8,4]{1,0} all-reduce(%f), GROUPS",
             "%e = bf16[2,4]{1,0} fusion(%r, %i), kind=kLoop, calls=%part",
             "ROOT %t = (bf16[2,4]{1,0}, f32[8,4]{1,0}) tuple(%e, %r)"],
            [("all-reduce", 128)],
        ),
    ],
)  # fmt: skip
def test_collectives_are_counted_as_other_compilers_send_them(lines, sent):
    parameters = ["%f = f32[8,4]{1,0} parameter(0)", "%h = bf16[8,4]{1,0} parameter(1)", "%i = s32[] parameter(2)"]
    body = "\n".join(f"  {x}" for x in (*parameters, "%k = f32[4]{0} parameter(3)", *lines)).replace("GROUPS", GROUPS)
    module = HloModule(f"{FUSIONS}\nENTRY %main () -> f32[] {{\n{body}\n}}\n")
    (run,) = [r for r in module.walk() if find_communication(module, r)]
    found = CompiledForCpus(module).communications(run, find_communication(module, run))
    assert [(c.kind, c.bytes) for c in found] == sent
