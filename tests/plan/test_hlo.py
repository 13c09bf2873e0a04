"""The reader of compiled modules, on lines that libtpu 0.0.42.1 wrote for Podium's own step (tests/plan/compiled)."""

from dataclasses import replace
from pathlib import Path

import pytest

from podium.plan.collective_time import compiled_seconds
from podium.plan.hlo import Collective, read_program
from podium.plan.machines import parse_pod
from podium.plan.operations import ELEMENT_WISE, read_operations

_COMPILED = Path(__file__).parent / "compiled"


def _read(name: str):
    return read_program((_COMPILED / name).read_text())


def test_cycles_are_those_of_the_priced_operations_and_the_update_stands_behind_the_last_sum():
    program = _read("v3_4x4.txt")
    assert program.cycles == 461_051 + 179_549 + 107_748
    assert program.update_cycles == 107_748


def test_an_operation_without_cycles_counts_by_the_bytes_that_it_reads_and_writes():
    wide, narrow = 16 * 112 * 112 * 64 * 2, 16 * 56 * 56 * 64 * 2
    assert _read("v3_4x4.txt").unpriced_bytes == 2 * wide + narrow


def test_padding_between_elements_counts_too():
    """As libtpu writes it where it stands alone: the gradient of a strided slice."""
    text = (_COMPILED / "v3_4x4.txt").read_text()
    entry = next(line for line in text.splitlines() if line.startswith("ENTRY"))
    pad = "  %pad.7 = bf16[16,28,28,256]{3,0,2,1:T(8,128)(2,1)} pad(%x, %zero), padding=0_0x0_1_1x0_1_1x0_0"
    before, after = (read_program(t) for t in (text, text.replace(entry, f"{entry}\n{pad}")))
    assert after.unpriced_bytes - before.unpriced_bytes == 16 * 28 * 28 * 256 * 2
    assert after.cycles == before.cycles


def test_a_small_pod_sums_in_four_one_way_colours():
    norm, ring, gradients = _read("v3_4x4.txt").collectives
    assert norm == Collective("all-reduce", 1032 * 4, 8, emitter="SinglePhaseRingSumEmitter")
    assert (ring.bytes, ring.strategy, ring.rings) == (2 * 4104 * 4, "StrategyRing", ((8,),))
    assert (gradients.cores, gradients.strategy) == (32, "UniDirectionNDRingStrategy")
    assert gradients.axes_of_colours == ((0, 1), (1, 0), (0, 1), (1, 0))


def test_the_papers_pod_sums_in_two_colours_and_two_phases():
    (gradients,) = _read("v3_32x32.txt").collectives
    assert (gradients.kind, gradients.cores, gradients.strategy) == ("all-reduce", 2048, "StrategyND")
    assert (gradients.colours, gradients.phases) == (2, 2)
    assert gradients.rings == ((64, 32), (64, 32))
    assert gradients.axes_of_colours == ((0, 1), (1, 0))


_ASYNCHRONOUS = """HloModule jit_f, is_scheduled=true

ENTRY %main (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  %before = f32[8]{0} fusion(%p), kind=kLoop, backend_config={"window_config":{"estimated_cycles":"1000"}}
  %start = f32[1024]{0} all-reduce-start(%before), replica_groups=[2,4]<=[8], to_apply=%add
  %between = f32[8]{0} fusion(%p), kind=kLoop, backend_config={"window_config":{"estimated_cycles":"300"}}
  %done = f32[1024]{0} all-reduce-done(%start)
  %gather = (f32[8]{0}, f32[64]{0}) all-gather-start(%p), replica_groups={{0,1,2,3,4,5,6,7}}, dimensions={0}
  %gathered = f32[64]{0} all-gather-done(%gather)
  %after = f32[8]{0} fusion(%done), kind=kLoop, backend_config={"window_config":{"estimated_cycles":"20"}}
  ROOT %metrics = f32[1]{0} all-reduce(%after), replica_groups={{0,1,2,3,4,5,6,7}}, to_apply=%add
}
"""


def test_what_stands_between_start_and_end_can_hide_a_collective():
    program = read_program(_ASYNCHRONOUS)
    reduce, gather, _ = program.collectives
    assert (reduce.bytes, reduce.cores, reduce.overlapped_cycles) == (4096, 4, 300)
    assert (gather.kind, gather.bytes, gather.cores, gather.overlapped_cycles) == ("all-gather", 256, 8, 0)
    assert (program.cycles, program.update_cycles) == (1320, 20)


_FUSED_SCATTER = """HloModule jit_f, is_scheduled=true

%all-reduce-scatter.1 (input.1: f32[12512,8,128]) -> f32[3136,8,128] {
  %input.1 = f32[12512,8,128]{2,1,0:T(8,128)} parameter(0)
  %pad.352 = f32[12544,8,128]{2,1,0:T(8,128)} pad(%input.1, %constant.653), padding=0_32x0_0x0_0
  %all-reduce.91 = f32[12544,8,128]{2,1,0:T(8,128)} all-reduce(%pad.352), channel_id=3, replica_groups={{0,4,16,20},{1,5,17,21}}, to_apply=%add
  ROOT %dynamic-slice.7 = f32[3136,8,128]{2,1,0:T(8,128)} dynamic-slice(%all-reduce.91, %multiply.6)
}

%fused_computation.2 (param_0: f32[3136,8,128]) -> f32[3136,8,128] {
  ROOT %param_0 = f32[3136,8,128]{2,1,0:T(8,128)} parameter(0)
}

ENTRY %main (p: f32[12512,8,128]) -> f32[3136,8,128] {
  %p = f32[12512,8,128]{2,1,0:T(8,128)} parameter(0)
  %fusion.1 = f32[3136,8,128]{2,1,0:T(8,128)} fusion(%p), kind=kCustom, calls=%all-reduce-scatter.1, backend_config={"collective_algorithm_config":{"emitter":"SingleInputAllReduceScatterFusion","strategy":"StrategyRing","debug":"StrategyRing{colors:1 phases:1 cores:{4} nophase0:0}"},"estimated_cycles":"7"}
  ROOT %fusion.2 = f32[3136,8,128]{2,1,0:T(8,128)} fusion(%fusion.1), kind=kLoop, calls=%fused_computation.2, backend_config={"estimated_cycles":"50"}
}
"""  # noqa: E501


def test_a_reduce_scatter_that_is_written_as_a_fusion_is_one():
    program = read_program(_FUSED_SCATTER)
    (scatter,) = program.collectives
    assert (scatter.kind, scatter.cores, scatter.rings) == ("reduce-scatter", 4, ((4,),))
    assert scatter.whole_bytes == 4 * scatter.bytes == 4 * 4 * 3136 * 1024
    assert (program.cycles, program.update_cycles) == (50, 50)


# A sum on SparseCores, as libtpu 0.0.42.1 wrote it for v6e:4x4, with one of its arrays and fewer attributes.
_ON_SPARSE_CORES = """HloModule jit_f, is_scheduled=true

%called_computation (param_0: f32[512,512], param_1: token[]) -> (f32[512,512]) {
  %param_1 = token[] parameter(1)
  %param_0 = f32[512,512]{1,0:T(8,128)} parameter(0)
  ROOT %all-reduce.48 = (f32[512,512]{1,0:T(8,128)}) all-reduce(%param_0), channel_id=1, replica_groups={{0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15}}, to_apply=%add, backend_config={"device_type":"DEVICE_TYPE_SPARSECORE","collective_offload_config":{"all_reduce_offload_config":{"ici_strategy_config":{"color_strategies":[{"phase_rings":[{"ring_type":"ICI_RING_TYPE_UNIDIR_CW","ring_dim":"ICI_RING_DIM_X_MESH"},{"ring_type":"ICI_RING_TYPE_UNIDIR_CW","ring_dim":"ICI_RING_DIM_Y_MESH"}]},{"phase_rings":[{"ring_type":"ICI_RING_TYPE_UNIDIR_CCW","ring_dim":"ICI_RING_DIM_Y_MESH"},{"ring_type":"ICI_RING_TYPE_UNIDIR_CCW","ring_dim":"ICI_RING_DIM_X_MESH"}]}]}}}}
}, execution_thread="sparsecore"

ENTRY %main (p: f32[512,512]) -> f32[512,512] {
  %p = f32[512,512]{1,0:T(8,128)} parameter(0)
  %wait = token[] custom-call(), custom_call_target="PrepareAsyncCallDone"
  %sum.call-start = ((f32[512,512]{1,0:T(8,128)}, token[]), (f32[512,512]{1,0:T(8,128)}), s32[]) call-start(%p, %wait), async_execution_thread="sparsecore", to_apply=%called_computation
  %between = f32[8]{0} fusion(%p), kind=kLoop, metadata={op_name="transpose(jvp())/mul"}, backend_config={"estimated_cycles":"300"}
  %sum.call-done = (f32[512,512]{1,0:T(8,128)}) call-done(%sum.call-start)
  ROOT %after = f32[8]{0} fusion(%sum.call-done), kind=kLoop, backend_config={"estimated_cycles":"20"}
}
"""  # noqa: E501


def test_a_sum_on_sparse_cores_is_a_collective_that_hides_behind_what_it_lets_run():
    program = read_program(_ON_SPARSE_CORES)
    (total,) = program.collectives
    assert (total.kind, total.bytes, total.cores, total.overlapped_cycles) == ("all-reduce", 4 * 512 * 512, 16, 300)
    assert (total.colours, total.phases, total.axes_of_colours) == (2, 2, ((0, 1), (1, 0)))
    assert (program.cycles, program.update_cycles) == (320, 20)
    pod = parse_pod("v6e:4x4")
    apart = replace(total, emitter="RotatedPincerEmitter", rings=((4, 4), (4, 4)))
    assert compiled_seconds(total, pod, 1e-6) == pytest.approx(compiled_seconds(apart, pod, 1e-6))
    assert read_operations(_ON_SPARSE_CORES).under_collectives == {ELEMENT_WISE: 300}


def test_text_without_an_entry_is_an_error():
    with pytest.raises(ValueError):
        read_program("HloModule nothing")


_LOOP = """HloModule jit_f, is_scheduled=true

%body (c: (pred[], f32[8])) -> (pred[], f32[8]) {
  %c = (pred[], f32[8]{0}) parameter(0)
  %inside = f32[8]{0} fusion(%c), kind=kLoop, backend_config={"window_config":{"estimated_cycles":"300"}}
  %sum = f32[1024]{0} all-reduce(%inside), replica_groups=[2,4]<=[8], to_apply=%add
  ROOT %update = (pred[], f32[8]{0}) fusion(%sum), kind=kLoop, backend_config={"x":{"estimated_cycles":"20"}}
}

ENTRY %main (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  %before = f32[8]{0} fusion(%p), kind=kLoop, backend_config={"window_config":{"estimated_cycles":"1000"}}
  %again = (pred[], f32[8]{0}) while(%before), condition=%test, body=%body
  ROOT %after = f32[8]{0} fusion(%again), kind=kLoop, backend_config={"window_config":{"estimated_cycles":"4"}}
}
"""


def test_a_loops_body_counts_once_in_its_place():
    program = read_program(_LOOP)
    assert (program.cycles, program.update_cycles) == (1324, 24)
    assert [collective.bytes for collective in program.collectives] == [4096]
