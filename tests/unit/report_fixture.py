"""A realistic prediction to draw: 4 stages, 2 virtual stages each, 8 micro batches; times are simulated by a small list scheduler.

The numbers are made up; the structure (order of passes, dependencies, sums) is that of an interleaved schedule.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from windtunnel.memory.result import StageMemory
from windtunnel.predict.prediction import KernelRow, Prediction, Span
from windtunnel.spec.job import Job
from windtunnel.spec.machine import GPU, Cluster, Fabric, Nic, Node, ScaleUp
from windtunnel.spec.model import Model
from windtunnel.spec.plan import Plan
from windtunnel.spec.runtime import Host, Runtime

STAGES, CHUNKS, MICRO = 4, 2, 8
GIB = 2.0**30


def make_job(**changes: Any) -> Job:
    gpu = GPU(
        id="a100-80gb",
        name="NVIDIA A100 80GB",
        architecture="ampere",
        peak={"bf16": "312TFLOP/s"},
        memory="80GiB",
        memory_bandwidth="2039GB/s",
    )
    node = Node(
        id="dgx-a100",
        gpu=gpu,
        scale_up=ScaleUp(size=8, bandwidth="300GB/s per GPU each way"),
        nic=Nic(count=8, bandwidth="200Gb/s per NIC each way"),
    )
    cluster = Cluster(id="selene", node=node, fabric=Fabric(id="hdr", kind="infiniband"), gpus=64, price_per_gpu_hour=1.8)
    fields: dict[str, Any] = {
        "name": "fake-18b",
        "cluster": cluster,
        "tokens": 3e11,
        "model": Model(name="gpt-18b", layers=40, hidden=6144, heads=48, ffn=24576, vocab=51200),
        "plan": Plan(tp=8, pp=STAGES, vpp=CHUNKS, global_batch=2 * MICRO, seq=2048),
        "runtime": Runtime(framework="megatron-lm", version="core-0.4", host=Host(launch="4us")),
    }
    return Job(**(fields | changes))


def _order(stage: int) -> list[tuple[str, int, int]]:
    """Interleaved order of (pass, micro batch, chunk) on one stage: warm-up forwards, then 1F1B, then the rest."""
    total = MICRO * CHUNKS
    forward = [(block * STAGES + m, c) for block in range(MICRO // STAGES) for c in range(CHUNKS) for m in range(STAGES)]
    backward = [(m, CHUNKS - 1 - c) for m, c in forward]
    warm = min(total, (STAGES - stage - 1) * 2 + (CHUNKS - 1) * STAGES)
    order = [("forward", *forward[i]) for i in range(warm)]
    for i in range(warm, total):
        order += [("forward", *forward[i]), ("backward", *backward[i - warm])]
    return order + [("backward", *backward[i]) for i in range(total - warm, total)]


@cache
def make_spans() -> tuple[Span, ...]:
    """Blocks of the step, in seconds: forward 20 ms, backward 40 ms, a send 1 ms, optimizer 12 ms, gradient reduce 30 ms."""
    orders = [_order(s) for s in range(STAGES)]
    at, clock, done = [0] * STAGES, [0.0] * STAGES, {}
    spans: list[Span] = []
    last = STAGES * CHUNKS - 1
    while any(at[s] < len(orders[s]) for s in range(STAGES)):
        for s in range(STAGES):
            while at[s] < len(orders[s]):
                kind, m, c = orders[s][at[s]]
                v = c * STAGES + s
                need = (kind, m, v - 1) if kind == "forward" else (kind, m, v + 1)
                if kind == "forward" and v == 0:
                    ready = 0.0
                elif kind == "backward" and v == last:
                    ready = done.get(("forward", m, v), -1.0)
                else:
                    ready = done.get(need, -1.0)
                if ready < 0:
                    break
                start = max(clock[s], ready)
                end = start + (0.020 if kind == "forward" else 0.040)
                spans.append(Span(s, "compute", f"{kind} {m}", kind, start, end, m, c))
                clock[s], at[s] = end, at[s] + 1
                sends = v < last if kind == "forward" else v > 0
                if sends:
                    spans.append(Span(s, "pipeline", "send", "send", end, end + 0.001, m, c))
                done[(kind, m, v)] = end + (0.001 if sends else 0.0)
    for s in range(STAGES):
        spans += [
            Span(s, "data parallel", "reduce_scatter", "collective", clock[s], clock[s] + 0.030),
            Span(s, "compute", "optimizer", "optimizer", clock[s] + 0.030, clock[s] + 0.042),
        ]
    return tuple(spans)


def make_memory(stage: int, capacity: float = 80 * GIB) -> StageMemory:
    parts = {
        "weights": 8.0,
        "gradients": 16.0,
        "optimizer": 24.0,
        "activations": 14.0 - 2.5 * stage,
        "logits": 2.0 if stage == STAGES - 1 else 0.0,
        "buffers": 1.5,
        "workspace": 1.0,
        "context": 1.2,
        "fragmentation": 0.8,
    }
    total = sum(parts.values()) * GIB
    allocated = total - (parts["context"] + parts["fragmentation"]) * GIB
    return StageMemory(
        stage=stage,
        **{k: v * GIB for k, v in parts.items()},
        allocated=allocated,
        reserved=allocated + parts["fragmentation"] * GIB,
        total=total,
        capacity=capacity,
        fits=total <= capacity,
        curve=((0.0, 48 * GIB), (0.5, allocated), (1.0, 48 * GIB)),
    )


def make_prediction(**changes: Any) -> Prediction:
    """A whole prediction; `changes` replace fields."""
    spans = make_spans()
    step = max(s.end for s in spans)
    parts = {
        "matmul": 0.63,
        "attention": 0.09,
        "memory_bound": 0.065,
        "exposed_tensor_parallel": 0.115,
        "exposed_pipeline_transfer": 0.012,
        "exposed_gradient_reduce": 0.030,
        "host": 0.006,
        "optimizer": 0.012,
    }
    by_stage = []
    for s in range(STAGES):
        scaled = {k: v * (1.0 + (0.02 if s == 0 else 0.0)) for k, v in parts.items()}
        by_stage.append(scaled | {"bubble": step - sum(scaled.values())})
    kernels = tuple(
        KernelRow(name, module, kind, phase, shape, count, each, each * count, each * count / step, provenance, err)
        for name, module, kind, phase, shape, count, each, provenance, err in (
            ("mlp_up", "mlp", "gemm", "forward", "2048x6144x3072", 160, 3.2e-4, "interpolated", 0.04),
            ("mlp_up", "mlp", "gemm", "dgrad", "2048x3072x6144", 160, 3.4e-4, "interpolated", 0.04),
            ("mlp_down <&>", "mlp", "gemm", "wgrad", "3072x2048x6144", 160, 3.6e-4, "modelled", 0.09),
            ("core", "attention", "attention", "forward", "6x2048x2048x128", 160, 1.4e-4, "modelled", 0.12),
            ("norm", "norm", "norm", "forward", "2048x6144", 320, 3.1e-5, "measured", 0.02),
        )
    )
    collectives = (
        {
            "name": "tp all_reduce",
            "axis": "tp",
            "bytes": 25165824.0,
            "ranks": 8,
            "nodes": 1,
            "algorithm": "ring",
            "protocol": "simple",
            "channels": 24,
            "time_us": 214.0,
            "busbw_GBs": 205.8,
            "count": 640,
        },
        {
            "name": "dp reduce_scatter",
            "axis": "dp",
            "bytes": 1.2e9,
            "ranks": 2,
            "nodes": 2,
            "algorithm": "ring",
            "protocol": "simple",
            "channels": 8,
            "time_us": 26000.0,
            "busbw_GBs": 23.1,
            "count": 1,
        },
    )
    path = ({"what": "forward", "stage": 0, "seconds": 0.32}, {"what": "bubble", "stage": 0, "seconds": 0.21})
    memory = tuple(make_memory(s) for s in range(STAGES))
    tokens = 16 * 2048
    fields: dict[str, Any] = dict(
        job=make_job(),
        network="closed",
        step_time_s=step,
        tokens_per_s=tokens / step,
        tokens_per_s_per_gpu=tokens / step / 64,
        model_tflops_per_gpu=131.2,
        hardware_tflops_per_gpu=131.9,
        mfu=0.4205,
        hfu=0.4228,
        breakdown=by_stage[0],
        by_stage=tuple(by_stage),
        overlapped={"tensor_parallel": 0.02, "gradient_reduce": 0.01},
        memory=memory,
        fits=True,
        provenance={"measured": 0.10, "interpolated": 0.55, "modelled": 0.30, "assumed": 0.05},
        relative_error=0.06,
        kernels=kernels,
        collectives=collectives,
        critical_path=path,
        energy_j_per_step=26000.0,
        cost_per_step=0.0216,
        tokens_per_day=tokens / step * 86400,
        days=96.4,
        cost=266000.0,
        energy_j=3.3e11,
        assumptions=("causal attention counted in full",),
        warnings=(),
        parameters=18.4e9,
        timeline=spans,
    )
    return Prediction(**(fields | changes))
