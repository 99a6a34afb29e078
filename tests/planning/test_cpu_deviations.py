"""What XLA for CPUs sends in place of what other compilers would send."""

from __future__ import annotations

import pytest

from phalanx.engine.hlo_collectives import find_communication
from phalanx.engine.hlo_parser import HloModule
from phalanx.planning.cpu_deviations import CompiledForCpus
from phalanx.planning.liveness import Liveness

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
PARAMETERS = """
%f = f32[8,4]{1,0} parameter(0)
%h = bf16[8,4]{1,0} parameter(1)
%i = s32[] parameter(2)
%k = f32[4]{0} parameter(3)
""".split("\n")[1:-1]
GROUPS = "replica_groups={{0,1,2,3}}, to_apply=%add"


def parse(lines):
    body = "\n".join(f"  {x}" for x in (*PARAMETERS, *lines)).replace("GROUPS", GROUPS)
    return HloModule(f"{FUSIONS}\nENTRY %main () -> f32[] {{\n{body}\n}}\n")


@pytest.mark.parametrize(
    "lines, sent",
    [
        (["%r = f32[8,4]{1,0} all-reduce(%f), GROUPS", "ROOT %e = f32[8,4]{1,0} sine(%r)"], [("all-reduce", 128)]),
        (
            ["%r = f32[8,4]{1,0} all-reduce(%f), GROUPS",
             "ROOT %e = bf16[2,4]{1,0} fusion(%r, %i), kind=kLoop, calls=%part"],
            [("reduce-scatter", 128)],
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
    module = parse(lines)
    (run,) = [r for r in module.walk() if find_communication(module, r)]
    found = CompiledForCpus(module).communications(run, find_communication(module, run))
    assert [(c.kind, c.bytes) for c in found] == sent


def types_on_target(lines):
    module = CompiledForCpus(parse(lines)).on_target()
    entry = module.computations[module.entry]
    return {name: (i.opcode, i.type) for name, i in entry.items() if i.opcode != "parameter"}


def test_operands_and_results_of_products_have_16_bits_on_other_devices():
    products = [
        "%g = f32[8,4]{1,0} fusion(%h), kind=kLoop, calls=%widen",
        "%t = f32[4,8]{1,0} transpose(%g), dimensions={1,0}",
        "%p = f32[8,8]{1,0} dot(%g, %t), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        "%n = bf16[8,8]{1,0} convert(%p)",
        "%q = f32[8,8]{1,0} dot(%g, %t), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        "%e = f32[8,8]{1,0} sine(%q)",
        "ROOT %z = (bf16[8,8]{1,0}, f32[8,8]{1,0}) tuple(%n, %e)",
    ]
    found = {name: type for name, (_, type) in types_on_target(products).items()}
    assert found == {
        "g": "bf16[8,4]", "t": "bf16[4,8]", "p": "bf16[8,8]", "n": "bf16[8,8]", "q": "f32[8,8]", "e": "f32[8,8]",
        "z": "(bf16[8,8], f32[8,8])",
    }  # fmt: skip


def test_a_reduce_scatter_runs_as_soon_as_its_operand_is_there():
    combined = [
        "%a = f32[8,4]{1,0} sine(%f)",
        "%b = f32[8,4]{1,0} cosine(%f)",
        "%r = (f32[8,4]{1,0}, f32[8,4]{1,0}) all-reduce(%a, %b), GROUPS",
        "%x = f32[8,4]{1,0} get-tuple-element(%r), index=0",
        "%y = f32[8,4]{1,0} get-tuple-element(%r), index=1",
        "%m = bf16[2,4]{1,0} fusion(%x, %i), kind=kLoop, calls=%part",
        "%n = bf16[2,4]{1,0} fusion(%y, %i), kind=kLoop, calls=%part",
        "ROOT %z = (bf16[2,4]{1,0}, bf16[2,4]{1,0}) tuple(%m, %n)",
    ]
    found = types_on_target(combined)
    assert list(found)[:5] == ["a", "r.a", "b", "r.b", "r"]
    assert found["r.a"] == found["r.b"] == ("all-reduce", "f32[2,4]")
    reading = CompiledForCpus(parse(combined))
    # Both operands and both sums, against both parts and one operand.
    assert (
        Liveness(parse(combined)).usage().peak == 4 * 128
        and Liveness(reading.on_target()).usage().peak == 32 + 128 + 32
    )
