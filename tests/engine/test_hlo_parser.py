"""Compiled programs as text: every form in which XLA prints operations among devices."""

from __future__ import annotations

import pytest

from phalanx.engine.hlo_parser import communications, parse_groups


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
    gather, permute, both, scatter, swap, total = communications(PROGRAM)
    assert gather == ("all-gather", 128, ((0, 1, 2, 3),), (), "/somewhere/model.py", 31, "all-gather(x)", ())
    assert permute[:4] == ("collective-permute", 32, (), ((0, 1), (1, 2)))
    assert both[:4] == ("all-reduce", 48, (), ())
    assert scatter[:4] == ("reduce-scatter", 32, ((0, 2), (1, 3)), ())
    assert swap[:4] == ("all-to-all", 32, ((0, 1), (2, 3)), ())
    assert total == (
        "all-reduce", 32, ((0, 1), (2, 3)), (), r"/somewhere/a \"b\".py", 12, "jit(f)/while/body/add", (5,)
    )  # fmt: skip
