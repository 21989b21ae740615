"""A small profiler export written by hand (synthetic, in the layout of PyTorch 2's `export_chrome_trace`); times in µs.

Forward thread 1: module `mlp` (101-161) with aten::mm inside aten::linear, launching kernel `gemm` at 150-190; outside of any
module aten::add, launching `add` at 195-200. Backward thread 2: MmBackward0 with the sequence number of aten::mm, launching
`gemm_t` at 210-250. Then a replayed graph of two kernels, a compiled region with a Triton kernel, a kernel without a launch, and an
optimizer.
"""

from __future__ import annotations

from typing import Any

from windtunnel.profile.trace import MODULE, WINDOW

EPOCH = 1.7e15
"""Kineto counts from 1970."""


def event(name: str, category: str, begin: float, duration: float, thread: int = 1, **args: Any) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": name,
        "cat": category,
        "pid": 7,
        "tid": thread,
        "ts": EPOCH + begin,
        "dur": duration,
        "args": {key.replace("_", " "): value for key, value in args.items()},
    }


def launch(name: str, begin: float, thread: int, correlation: int) -> dict[str, Any]:
    return event(name, "cuda_runtime", begin, 2, thread, correlation=correlation)


def kernel(name: str, begin: float, duration: float, correlation: int) -> dict[str, Any]:
    return event(name, "kernel", begin, duration, 99, correlation=correlation, stream=7)


TRACE = {
    "traceEvents": [
        {"ph": "M", "name": "process_name", "pid": 7, "args": {"name": "python"}},
        event(WINDOW, "user_annotation", 100, 400),
        event(MODULE + "mlp", "user_annotation", 101, 60),
        event("aten::linear", "cpu_op", 102, 40),
        event("aten::mm", "cpu_op", 105, 30, Sequence_number=5, Input_Dims=[[4, 8], [8, 16]], Input_type=["c10::BFloat16"] * 2),
        launch("cudaLaunchKernel", 110, 1, 1),
        kernel("gemm", 150, 40, 1),
        event("aten::add", "cpu_op", 165, 10, Sequence_number=6, Input_Dims=[[4, 16], [4, 16]], Input_type=["float", "float"]),
        launch("cudaLaunchKernel", 168, 1, 2),
        kernel("add", 195, 5, 2),
        event("autograd::engine::evaluate_function: MmBackward0", "cpu_op", 180, 30, 2, Sequence_number=5, Fwd_thread_id=1),
        event("MmBackward0", "cpu_op", 182, 26, 2, Sequence_number=5, Fwd_thread_id=1),
        event("aten::mm", "cpu_op", 184, 20, 2, Input_Dims=[[8, 4], [4, 16]], Input_type=["c10::BFloat16"] * 2),
        launch("cuLaunchKernelEx", 190, 2, 3),
        kernel("gemm_t", 210, 40, 3),
        launch("cudaGraphLaunch", 240, 1, 4),
        kernel("first of graph", 260, 10, 4),
        kernel("second of graph", 272, 8, 4),
        event("## Call CompiledFxGraph fabc123 ##", "cpu_op", 270, 20),
        event("triton_poi_fused_add_0", "cpu_op", 272, 10, Input_Dims=[[64]], Input_type=["float"]),
        launch("cuLaunchKernel", 275, 1, 5),
        kernel("triton_poi_fused_add_0", 300, 10, 5),
        kernel("stray", 320, 5, 77),
        event("Optimizer.step#AdamW.step", "user_annotation", 330, 60),
        event("aten::_fused_adamw_", "cpu_op", 335, 40, Input_Dims=[[[4, 4], [8]], []], Input_type=["TensorList", "Scalar"]),
        launch("cudaLaunchKernel", 340, 1, 6),
        kernel("multi_tensor_apply", 360, 20, 6),
        kernel("before the window", 50, 10, 88),
    ]
}
