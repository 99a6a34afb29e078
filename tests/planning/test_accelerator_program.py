"""What an accelerator stores and sends, by the model of it that reads a program of XLA for CPUs without fusions."""

from __future__ import annotations

import pytest

from phalanx.engine.hlo_parser import HloModule
from phalanx.planning.accelerator_program import model_program
from phalanx.planning.liveness import Liveness
from phalanx.planning.machines import Link, Machine, find_machine

TINY = Machine("tiny", memory=8e6, flops={16: 1e12, 32: 5e11}, bandwidth=1e11, link=Link(1e9, 1e-6))
ADD = """
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
%x = f32[16384,64]{1,0} parameter(4)
%z = s32[] constant(0)
""".split("\n")[1:-1]
GROUPS = "replica_groups={{0,1,2,3}}, to_apply=%add"
# A quarter of %r in 16 bits, which is what the last instruction reads.
PART = ["%n = bf16[8,4]{1,0} convert(%r)", "%s = bf16[2,4]{1,0} dynamic-slice(%n, %i, %z), dynamic_slice_sizes={2,4}"]


def parse(lines):
    body = "\n".join(f"  {x}" for x in (*PARAMETERS, *lines)).replace("GROUPS", GROUPS)
    return HloModule(f"{ADD}\nENTRY %main () -> f32[] {{\n{body}\n}}\n")


def modeled(lines, machine=TINY):
    """What the model has beside parameters: for each instruction its operation, type and operands, in their order."""
    module = model_program(parse(lines), machine, 4)
    entry = module.computations[module.entry]
    return {
        name: (i.opcode, i.type, i.operands)
        for name, i in entry.items()
        if i.opcode not in ("parameter", "constant")
    }  # fmt: skip


@pytest.mark.parametrize(
    "lines, sent",
    [
        (["%r = f32[8,4]{1,0} all-reduce(%f), GROUPS", "ROOT %e = f32[8,4]{1,0} sine(%r)"], {"all-reduce": "f32[8,4]"}),
        (
            ["%r = f32[8,4]{1,0} all-reduce(%f), GROUPS", *PART, "ROOT %e = bf16[2,4]{1,0} sine(%s)"],
            {"reduce-scatter": "f32[2,4]"},
        ),
        (
            ["%a = (f32[8,4]{1,0}, f32[4]{0}) all-reduce(%f, %k), GROUPS",
             "%r = f32[8,4]{1,0} get-tuple-element(%a), index=0",
             "%y = f32[4]{0} get-tuple-element(%a), index=1",
             *PART,
             "ROOT %t = (bf16[2,4]{1,0}, f32[4]{0}) tuple(%s, %y)"],
            {"reduce-scatter": "(f32[2,4])", "all-reduce": "(f32[4])"},
        ),
        (
            ["%r = f32[8,4]{1,0} all-reduce(%f), GROUPS", *PART,
             "ROOT %t = (bf16[2,4]{1,0}, f32[8,4]{1,0}) tuple(%s, %r)"],
            {"all-reduce": "f32[8,4]"},
        ),
    ],
)  # fmt: skip
def test_sums_of_which_each_device_reads_one_part_are_scattered(lines, sent):
    found = {opcode: type for opcode, type, _ in modeled(lines).values() if opcode.endswith("-done")}
    assert found == {f"{kind}-done": type for kind, type in sent.items()}


def test_operands_and_results_of_products_have_16_bits():
    dims = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    found = modeled([
        "%g = f32[8,4]{1,0} convert(%h)",
        "%t = f32[4,8]{1,0} transpose(%g), dimensions={1,0}",
        f"%p = f32[8,8]{{1,0}} dot(%g, %t), {dims}",
        "%n = bf16[8,8]{1,0} convert(%p)",
        f"%q = f32[8,8]{{1,0}} dot(%g, %t), {dims}",
        "%e = f32[8,8]{1,0} sine(%q)",
        "ROOT %w = (bf16[8,8]{1,0}, f32[8,8]{1,0}) tuple(%n, %e)",
    ])  # fmt: skip
    assert found["g"] == ("bitcast", "bf16[8,4]", ["h"]) and found["t"] == ("bitcast", "bf16[4,8]", ["g"])
    assert found["p"][:2] == ("dot", "bf16[8,8]") and found["q"][:2] == ("dot", "f32[8,8]")


def test_values_between_elementwise_operations_are_not_stored():
    lines = [
        "%a = f32[8,4]{1,0} sine(%f)",
        "%b = f32[8,4]{1,0} cosine(%a)",
        "%c = f32[8,4]{1,0} multiply(%a, %b)",
        "ROOT %e = f32[8,4]{1,0} exponential(%c)",
    ]
    assert modeled(lines) == {"e": ("exponential", "f32[8,4]", ["f"])}
    assert Liveness(parse(lines)).usage().peak > 0 == Liveness(model_program(parse(lines), TINY, 4)).usage().peak


def test_gpus_compute_products_with_few_results_and_long_sums_in_parts():
    product = ["ROOT %p = f32[64,64]{1,0} dot(%x, %x), lhs_contracting_dims={0}, rhs_contracting_dims={0}"]
    found = modeled(product, find_machine("h100"))
    assert found["p.parts"][:2] == ("dot", "f32[64,64,64]") and found["p"] == ("add", "f32[64,64]", ["p.parts"])
    assert list(modeled(product)) == ["p"]


def test_other_kernels_run_while_a_collective_is_under_way():
    found = modeled([
        "%m = f32[8,8]{1,0} dot(%h, %h), lhs_contracting_dims={1}, rhs_contracting_dims={1}",
        "%r = f32[8,4]{1,0} all-reduce(%f), GROUPS",
        "ROOT %w = (f32[8,4]{1,0}, f32[8,8]{1,0}) tuple(%r, %m)",
    ])  # fmt: skip
    assert list(found) == ["r.start", "m", "r", "w"]


def test_fusions_of_one_operation_are_the_operation():
    wrapped = HloModule(
        """
%wrapped (w: f32[8,4], v: f32[8,4]) -> f32[8,4] {
  %w = f32[8,4]{1,0} parameter(0)
  %v = f32[8,4]{1,0} parameter(1)
  ROOT %d = f32[8,4]{1,0} subtract(%v, %w), metadata={op_name="sub"}
}

ENTRY %main (f: f32[8,4], g: f32[8,4]) -> f32[8,4] {
  %f = f32[8,4]{1,0} parameter(0)
  %g = f32[8,4]{1,0} parameter(1)
  ROOT %e = f32[8,4]{1,0} fusion(%f, %g), kind=kLoop, calls=%wrapped
}
"""
    )
    found = model_program(wrapped, TINY, 4)
    (root,) = [i for i in found.computations[found.entry].values() if i.is_root]
    assert (root.opcode, root.operands) == ("subtract", ["g", "f"]) and "op_name" in root.rest
