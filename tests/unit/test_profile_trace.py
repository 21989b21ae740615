"""From a profiler's export to kernels with the operator and module that launched them."""

from __future__ import annotations

import pytest
from kineto_trace import TRACE

from windtunnel.base.errors import FileError
from windtunnel.profile.sweep_names import MARK, names_of
from windtunnel.profile.trace import FROM_GRAPH, NO_LAUNCH, Slice, Trace, attribute


def slices() -> dict[str, Slice]:
    return {one.kernel: one for one in attribute(TRACE, device=True).slices}


def test_forward_kernel_finds_operator_and_module() -> None:
    one = slices()["gemm"]
    assert (one.module, one.phase, one.op) == ("mlp", "forward", "aten::mm")
    assert one.shapes == ((4, 8), (8, 16)) and one.dtypes[0] == "c10::BFloat16"
    assert one.begin == pytest.approx(50e-6) and one.seconds == pytest.approx(40e-6)


def test_backward_kernel_goes_to_the_module_of_its_forward_operator() -> None:
    one = slices()["gemm_t"]
    assert (one.module, one.phase, one.op) == ("mlp", "backward", "aten::mm")


def test_what_has_no_module_has_none() -> None:
    assert (slices()["add"].module, slices()["add"].op) == ("", "aten::add")


def test_kernels_of_a_replayed_graph_and_without_a_launch_are_named_so() -> None:
    found = slices()
    assert found["first of graph"].op == found["second of graph"].op == FROM_GRAPH
    assert found["stray"].op == NO_LAUNCH and found["stray"].module == ""


def test_a_compiled_region_is_known_by_its_hash() -> None:
    one = slices()["triton_poi_fused_add_0"]
    assert one.graph == "fabc123" and one.op == "triton_poi_fused_add_0"
    assert slices()["gemm"].graph == ""


def test_optimizer_kernels() -> None:
    one = slices()["multi_tensor_apply"]
    assert one.phase == "optimizer" and one.op == "aten::_fused_adamw_" and one.shapes == ((4, 4), ())


def test_kernels_and_gaps_cover_the_span() -> None:
    trace = attribute(TRACE, device=True)
    assert "before the window" not in slices()
    assert trace.kernels == pytest.approx(138e-6)  # 40 + 5 + 40 + 10 + 8 + 10 + 5 + 20
    assert trace.kernels + trace.gaps == pytest.approx(230e-6)  # from 150 to 380
    assert trace.seconds == pytest.approx(400e-6)
    assert trace.slices[0].gap == pytest.approx(50e-6)
    assert slices()["second of graph"].gap == pytest.approx(2e-6)
    assert trace.by_module()["mlp", "forward"] == pytest.approx(40e-6)


def test_on_a_cpu_operators_have_their_own_time_only() -> None:
    found = {(one.op, one.phase): one.seconds for one in attribute(TRACE, device=False).slices}
    assert found["aten::linear", "forward"] == pytest.approx(10e-6)  # 40 less aten::mm's 30
    assert found["aten::mm", "forward"] == pytest.approx(30e-6)
    assert found["MmBackward0", "backward"] == pytest.approx(6e-6)


def test_what_is_no_trace_is_refused() -> None:
    with pytest.raises(FileError, match="traceEvents"):
        attribute({"events": []}, device=True)


def test_names_of_marked_cases() -> None:
    from kineto_trace import event, kernel

    trace = {
        "traceEvents": [
            event(f"{MARK}3", "user_annotation", 0, 100),
            kernel("small", 10, 5, 1),
            kernel("large", 20, 50, 2),
            event(f"{MARK}4", "user_annotation", 200, 10),
            kernel("later", 120, 50, 3),
        ]
    }
    assert names_of(trace) == {3: ("large", 2)}


def test_each_pass_is_scaled_by_its_own_share() -> None:
    """Others took the core for half of the forward: on the thread's clock it is half as long; the backward is as it was."""
    both = [
        Slice("", phase, "aten::mm", "aten::mm", ((2, 2),), ("float",), begin, 2.0, 1.0)
        for phase, begin in (("forward", 1.0), ("backward", 4.0))
    ]
    one, two = Trace(tuple(both), 6.0).scaled_by_phase({"forward": 0.5}).slices
    assert (one.seconds, one.gap, two.seconds, two.gap) == (1.0, 0.5, 2.0, 1.0)
    assert (one.begin, two.begin) == (1.0, 4.0)
