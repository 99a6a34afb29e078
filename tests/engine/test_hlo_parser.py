"""Compiled programs as text: every form in which XLA prints operations among devices."""

from __future__ import annotations

import pytest

from phalanx.engine.hlo_collectives import communications, parse_groups
from phalanx.engine.hlo_parser import HloModule


@pytest.mark.parametrize(
    "text, groups",
    [
        ("{{0,1},{2,3}}", ((0, 1), (2, 3))),
        ("{}", ()),
        ("[2,2]<=[4]", ((0, 1), (2, 3))),
        ("[2,2]<=[2,2]T(1,0)", ((0, 2), (1, 3))),
        ("[2,4]<=[2,2,2]T(1,0,2)", ((0, 1, 4, 5), (2, 3, 6, 7))),
        ("[1,8]<=[8]", (tuple(range(8)),)),
        ("mesh['x'=4,'y'=1,'z'=2] {'x'}", ((0, 2, 4, 6), (1, 3, 5, 7))),
        ("mesh['x'=2,'y'=2] {'x','y'}", ((0, 1, 2, 3),)),
        ("mesh['x'=2,'y'=2] {'y','x'}", ((0, 2, 1, 3),)),
        ("mesh['x'=4,'y'=2] {'x':(2)2}", ((0, 2), (1, 3), (4, 6), (5, 7))),
        ("mesh['x'=4,'y'=2] {'x':(1)2}", ((0, 4), (1, 5), (2, 6), (3, 7))),
        ("mesh['x'=2,'y'=4], device_ids=([4,2]T(1,0)) {'y':(2)2}", ((0, 2), (4, 6), (1, 3), (5, 7))),
        ("mesh['x'=2,'y'=2], device_ids=(3,1,2,0) {'x'}", ((3, 2), (1, 0))),
        ("mesh['x'=2,'y'=2] {}", ((0,), (1,), (2,), (3,))),
    ],
)
def test_groups_are_read_in_every_form(text, groups):
    assert parse_groups(text) == groups


PROGRAM = r"""
HloModule jit_f, is_scheduled=true, num_partitions=4

FileNames
1 "/somewhere/model.py"

FunctionNames
1 "f"

FileLocations
1 {file_name_id=1 function_name_id=1 line=31 end_line=31 column=8 end_column=20}

StackFrames
1 {file_location_id=1 parent_frame_id=1}


%add.1 (a.1: f32[], b.1: f32[]) -> f32[] {
  %a.1 = f32[] parameter(0)
  %b.1 = f32[] parameter(1)
  ROOT %sum.1 = f32[] add(%a.1, %b.1)
}

%wrapped (p.5: f32[4,2]) -> f32[4,2] {
  %p.5 = f32[4,2]{1,0:T(8,128)} parameter(0)
  ROOT %swap = f32[4,2]{1,0} all-to-all(%p.5), channel_id=7, replica_groups=[2,2]<=[4], dimensions={0}
}

%body (state: (s32[], f32[2,4])) -> (s32[], f32[2,4]) {
  %state = (s32[], f32[2,4]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%state), index=0
  %x = f32[2,4]{1,0} get-tuple-element(%state), index=1
  %total = f32[2,4]{1,0} all-reduce(%x), channel_id=1, replica_groups={{0,1},{2,3}}, use_global_device_ids=true, to_apply=%add.1, metadata={op_name="jit(f)/while/body/add" source_file="/somewhere/a \"b\".py" source_line=12}
  ROOT %next = (s32[], f32[2,4]{1,0}) tuple(%i, %total)
}

%condition (state.2: (s32[], f32[2,4])) -> pred[] {
  %state.2 = (s32[], f32[2,4]{1,0}) parameter(0)
  ROOT %go = pred[] constant(true)
}

ENTRY %main (p: f32[2,4], q: bf16[4,2]) -> (s32[], f32[2,4]) {
  %p = f32[2,4]{1,0} parameter(0)
  %q = bf16[4,2]{1,0} parameter(1)
  %zero = s32[] constant(0)
  %start = (f32[2,4]{1,0}, f32[8,4]{1,0}) all-gather-start(%p), channel_id=2, replica_groups=[1,4]<=[4], dimensions={0}, use_global_device_ids=true, metadata={op_name="all-gather(x)" stack_frame_id=1}
  %done = f32[8,4]{1,0} all-gather-done(%start)
  %ps = (f32[2,4]{1,0}, f32[2,4]{1,0}, u32[], u32[]) collective-permute-start(%p), channel_id=3, source_target_pairs={{0,1},{1,2}}
  %pd = f32[2,4]{1,0} collective-permute-done(%ps)
  %both = (f32[2,4]{1,0}, bf16[4,2]{1,0}) all-reduce(%p, %q), channel_id=4, replica_groups={}, use_global_device_ids=true, to_apply=%add.1
  %parts = f32[1,4]{1,0} reduce-scatter(%p), channel_id=5, replica_groups=mesh['a'=2,'b'=2], device_ids=([2,2]T(1,0)) {'b'}, use_global_device_ids=true, dimensions={0}, to_apply=%add.1
  %sent = ((f32[4,2]{1,0}), f32[4,2]{1,0}) async-start(%p), calls=%wrapped
  %back = f32[4,2]{1,0} async-done(%sent)
  %init = (s32[], f32[2,4]{1,0}) tuple(%zero, %pd)
  ROOT %loop = (s32[], f32[2,4]{1,0}) while(%init), condition=%condition, body=%body, backend_config={"known_trip_count":{"n":"5"},"known_init_step":{"init":"0","step":"1"}}
}
"""


def test_each_operation_is_found_once_with_what_is_known_of_it():
    gather, permute, both, scatter, swap, total = communications(HloModule(PROGRAM))
    assert gather == ("all-gather", 128, ((0, 1, 2, 3),), (), "/somewhere/model.py", 31, "all-gather(x)", (), False)
    assert permute[:4] == ("collective-permute", 32, (), ((0, 1), (1, 2)))
    assert both[:4] == ("all-reduce", 48, (), ())
    assert scatter[:4] == ("reduce-scatter", 32, ((0, 2), (1, 3)), ())
    assert swap[:4] == ("all-to-all", 32, ((0, 1), (2, 3)), ())
    assert total == (
        "all-reduce", 32, ((0, 1), (2, 3)), (), r"/somewhere/a \"b\".py", 12, "jit(f)/while/body/add", (5,), False
    )  # fmt: skip


def totals(line):
    lines = ["ENTRY %main (p: f32[2]) -> f32[2] {", "  %p = f32[2]{0} parameter(0)", f"  {line}", "}"]
    return [c[:2] for c in communications(HloModule("\n".join(lines)))]


@pytest.mark.parametrize(
    "line, size",
    [
        ("%s = f32[2]{0} all-reduce-start(%p), to_apply=%add", 8),
        ("%s = ((f32[2]{0}), f32[2]{0}) all-reduce-start(%p), to_apply=%add", 8),
        ("%s = (f32[2]{0}, f32[2]{0}) all-reduce-start(%p, %p), to_apply=%add", 16),
        ("%s = ((f32[2]{0}, f32[2]{0}), (f32[2]{0}, f32[2]{0})) all-reduce-start(%p, %p), to_apply=%add", 16),
    ],
)
def test_an_asynchronous_reduction_counts_its_results_once_in_every_form(line, size):
    assert totals(line) == [("all-reduce", size)]


LOOP = r"""
HloModule jit_f, is_scheduled=true

%less (a: s32[], b: s32[]) -> pred[] {
  %a = s32[] parameter(0)
  %b = s32[] parameter(1)
  ROOT %c = pred[] compare(s32[] %a, s32[] %b), direction=DIRECTION
}

%step (n: s32[]) -> s32[] {
  %n = s32[] parameter(0)
  %k = s32[]{:T(128)} constant(STEP)
  ROOT %m = s32[] add(s32[]{:T(128)} %k, s32[] %n)
}

%condition (s.1: (s32[], s32[], f32[2])) -> pred[] {
  %s.1 = (s32[]{:T(128)}, s32[], f32[2]{0}) parameter(0)
  %i.1 = s32[] get-tuple-element(%s.1), index=0
  %top = s32[] get-tuple-element(%s.1), index=1
  ROOT %f.1 = pred[]{:T(512)} fusion(%i.1, %top), kind=kLoop, calls=%less
}

%body (s.2: (s32[], s32[], f32[2])) -> (s32[], s32[], f32[2]) {
  %s.2 = (s32[], s32[], f32[2]{0}) parameter(0)
  %i.2 = s32[] get-tuple-element(%s.2), index=0
  %f.2 = s32[] fusion(%i.2), kind=kLoop, calls=%step
  %top.2 = s32[] get-tuple-element(%s.2), index=1
  %x.2 = f32[2]{0} get-tuple-element(%s.2), index=2
  %y.2 = f32[2]{0} all-reduce(%x.2), to_apply=%add
  ROOT %t.2 = (s32[], s32[], f32[2]{0}) tuple(%f.2, BOUND, %y.2)
}

ENTRY %main (p: f32[2]) -> (s32[], s32[], f32[2]) {
  %p = f32[2]{0} parameter(0)
  %one = s32[] constant(1)
  %ten = s32[] constant(10)
  %t = (s32[], s32[], f32[2]{0}) tuple(%one, %ten, %p)
  ROOT %w = (s32[], s32[], f32[2]{0}) while(%t), condition=%condition, body=%body
}
"""


@pytest.mark.parametrize(
    "direction, step, bound, trips",
    [
        ("LT", "1", "%top.2", 9),
        ("LE", "1", "%top.2", 10),
        ("LT", "4", "%top.2", 3),
        ("GT", "1", "%top.2", None),  # the counter would have to fall
        ("NE", "1", "%top.2", None),
        ("LT", "0", "%top.2", None),
        ("LT", "1", "%f.2", None),  # the bound changes
    ],
)
def test_a_loop_without_a_stated_trip_count_is_counted_from_its_bound(direction, step, bound, trips):
    text = LOOP.replace("DIRECTION", direction).replace("STEP", step).replace("BOUND", bound)
    (found,) = communications(HloModule(text))
    assert found.loops == (trips,)
