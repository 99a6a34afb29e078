"""Live buffers of scheduled programs: which instructions write buffers, and when these are freed."""

from __future__ import annotations

import pytest

from phalanx.engine.hlo_parser import HloModule
from phalanx.planning.liveness import Liveness


def peak_of(body, *, computations="", parameters="%p = f32[4]{0} parameter(0)"):
    """The peak of a program in bytes, and the instructions whose buffers make it up."""
    lines = "\n".join(f"  {line}" for line in (parameters, *body))
    usage = Liveness(HloModule(f"{computations}\nENTRY %main () -> f32[4] {{\n{lines}\n}}\n")).usage()
    return usage.peak, {b.name: n for b, n in usage.buffers}


def test_a_buffer_lives_until_it_is_read_for_the_last_time():
    body = [
        "%a = f32[4]{0} sine(%p)",
        "%b = f32[8]{0} iota(), iota_dimension=0",
        '%c = f32[4]{0} custom-call(%a, %b), custom_call_target="f"',
        "%d = f32[16]{0} iota(), iota_dimension=0",
        'ROOT %e = f32[4]{0} custom-call(%c, %d), custom_call_target="f"',
    ]
    # The parameter and the result are not temporaries.
    assert peak_of(body) == (80, {"c": 16, "d": 64})


UPDATE = """
%updated (q.0: f32[4], q.1: f32[1]) -> f32[4] {
  %q.0 = f32[4]{0} parameter(0)
  %q.1 = f32[1]{0} parameter(1)
  %zero = s32[] constant(0)
  %u = f32[4]{0} dynamic-update-slice(%q.0, %q.1, %zero)
  ROOT %v = f32[4]{0} bitcast(%u)
}
"""


@pytest.mark.parametrize(
    "line, size",
    [
        ("%x = f32[4]{0} sine(%a)", 32),
        ("%x = f32[4]{0} add(%a, %a)", 16),  # in the memory of %a, which nothing else reads
        ("%x = f32[4]{0} bitcast(%a)", 16),
        ("%x = f32[4]{0} constant({...})", 16),
        ("%x = f32[4]{0} dynamic-update-slice(%a, %p, %p)", 16),
        ("%x = f32[4]{0} fusion(%a, %p), kind=kLoop, calls=%updated", 16),
        ("%x = (f32[4]{0}, f32[8]{0}) all-gather-start(%a), dimensions={0}", 48),
        ("%x = ((f32[4]{0}), f32[8]{0}) all-reduce-start(%a)", 48),
        ("%x = (f32[8]{0}, f32[4]{0}, u32[]) copy-start(%a)", 16 + 32 + 16 + 4),
    ],
)
def test_instructions_forward_overwrite_or_write_buffers(line, size):
    body = [
        "%a = f32[4]{0} iota(), iota_dimension=0",
        line,
        'ROOT %e = f32[2]{0} custom-call(%x), custom_call_target="f"',
    ]
    assert peak_of(body, computations=UPDATE)[0] == size


LOOP = """
%body (s: (s32[], f32[4])) -> (s32[], f32[4]) {
  %s = (s32[], f32[4]{0}) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %x = f32[4]{0} get-tuple-element(%s), index=1
  %w = f32[32]{0} broadcast(%x), dimensions={0}
  %y = f32[4]{0} slice(%w), slice={[0:4]}
  ROOT %t = (s32[], f32[4]{0}) tuple(%i, %y)
}

%condition (r: (s32[], f32[4])) -> pred[] {
  %r = (s32[], f32[4]{0}) parameter(0)
  ROOT %go = pred[] constant(true)
}
"""


def test_the_state_of_a_loop_is_one_buffer_and_its_body_adds_what_it_needs():
    body = [
        "%zero = s32[] constant(0)",
        "%a = f32[4]{0} iota(), iota_dimension=0",
        "%init = (s32[], f32[4]{0}) tuple(%zero, %a)",
        "%loop = (s32[], f32[4]{0}) while(%init), condition=%condition, body=%body",
        "%out = f32[4]{0} get-tuple-element(%loop), index=1",
        'ROOT %e = f32[2]{0} custom-call(%out), custom_call_target="f"',
    ]
    assert peak_of(body, computations=LOOP) == (16 + 128, {"a": 16, "w": 128})


def test_the_elements_of_a_tuple_are_freed_one_by_one():
    body = [
        "%a = f32[4]{0} iota(), iota_dimension=0",
        "%b = f32[8]{0} iota(), iota_dimension=0",
        "%t = ((f32[4]{0}, f32[4]{0}), f32[8]{0}, /*index=2*/f32[4]{0}) tuple(%pair, %b, %a)",
        "%x = f32[8]{0} get-tuple-element(%t), index=1",
        "%d = f32[16]{0} iota(), iota_dimension=0",
        'ROOT %e = f32[2]{0} custom-call(%x, %d), custom_call_target="f"',
    ]
    pair = "%pair = (f32[4]{0}, f32[4]{0}) parameter(0)"
    assert peak_of(body, parameters=pair) == (96, {"b": 32, "d": 64})
