"""What may slow a run down whose steps are all that is known: each suspect alone in the prediction, and how to test it.

A log says how long a step takes, and not where. So every suspect is put into the job, the step is predicted again, and the suspects
whose steps come nearest to the measured one are named first. One with a size (a slow node, uneven experts) is fitted: the size
that explains the difference is what to look for.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Iterator

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import WindtunnelError
from windtunnel.predict import predict
from windtunnel.spec import Job, Model, check, dump_job, load_job

WORTH = 0.1
"""Share of the difference below which a suspect is not named."""
FINE = 0.02
"""Relative distance from the measured step at which a fitted size is near enough."""

Sets = tuple[str, ...]


@dataclass(frozen=True)
class Suspect:
    """A suspect in a job. `words`: what it is, with `{size}`; `test`: how to find out in the run; `sets`: it, as `--set` takes it.

    `sizes`: none, a size often met, and the largest that can be; equal ones for a suspect without a size.
    """

    words: str
    test: str
    sets: Callable[[float], Sets]
    sizes: tuple[float, float, float] = (1.0, 1.0, 1.0)
    show: Callable[[float], str] = str


@dataclass(frozen=True)
class SuspectedCause:
    """A suspect with its size. `seconds`: what the predicted step grows by; `share`: of the difference; `sets`: it, for `--set`."""

    words: str
    test: str
    sets: Sets
    seconds: float
    share: float


def suspected_causes(job: Job, measured: float, expected: float) -> tuple[SuspectedCause, ...]:
    """The suspects that make the step longer, nearest to the measured one first. Seconds. Empty where the run is not slower."""
    gap = measured - expected
    if gap <= 0.0:
        return ()
    found = []
    for suspect in _suspects(job):
        size, step = _fit_size(suspect, job, expected, measured)
        grows = step - expected
        if grows >= WORTH * gap:
            words = suspect.words.format(size=suspect.show(size))
            cause = SuspectedCause(words, suspect.test, suspect.sets(size), grows, grows / gap)
            found.append((_distance(grows / gap) + _strangeness(suspect, size), cause))
    return tuple(cause for _, cause in sorted(found, key=lambda pair: pair[0]))


def _distance(share: float) -> float:
    """How far a suspect is from explaining the difference. One that costs more than the difference cannot be all there."""
    return math.log(1.0 / share) if share < 1.0 else 3.0 * math.log(share)


def _strangeness(suspect: Suspect, size: float) -> float:
    """How much larger than usual a suspect would have to be: the logarithm of the quotient, 0 for a usual size."""
    none, usual, _ = suspect.sizes
    return max(0.0, math.log((size - none) / (usual - none))) if usual > none and size > none else 0.0


def _fit_size(suspect: Suspect, job: Job, expected: float, measured: float) -> tuple[float, float]:
    """The size at which the predicted step is nearest to the measured one, and that step; 0 s where the job cannot be so."""
    low, _, high = suspect.sizes
    step = _step_with(job, suspect.sets(high))
    if low == high or step <= measured * (1.0 + FINE):
        return high, step
    below, above = expected, step
    for turn in range(6):
        share = 0.5 if turn % 3 == 2 or above <= below else (measured - below) / (above - below)
        size = low + min(0.9, max(0.1, share)) * (high - low)
        step = _step_with(job, suspect.sets(size))
        if abs(step / measured - 1.0) <= FINE:
            break
        if step < measured:
            low, below = size, step
        else:
            high, above = size, step
    return size, step


def _step_with(job: Job, sets: Sets) -> float:
    try:
        return predict(check(load_job(tomllib.loads(dump_job(job)), list(sets)))).step_time_s
    except WindtunnelError:
        return 0.0


def _times(size: float) -> str:
    return f"{size:.2f}"


def _percent(size: float) -> str:
    return f"{100 * (size - 1.0):.0f} %"


def _suspects(job: Job) -> Iterator[Suspect]:
    yield from _of_machine(job)
    if isinstance(job.model, Model):
        yield from _of_experts(job)
        yield from _of_plan(job)
    yield from _of_software(job)
    yield from _of_host(job)


def _of_machine(job: Job) -> Iterator[Suspect]:
    nodes, cluster = job.cluster.gpus // job.cluster.node.gpus, job.cluster
    if job.unequal is None:
        if nodes > 1:
            yield Suspect(
                "one node computes {size} longer than the others",
                "test the GPUs of every node (`windtunnel fleet diagnose`, dcgmi diag -r 3), or watch the ranks: windtunnel fleet",
                lambda size: (f"unequal.slow=[{{nodes=[0],factor={size:.3f}}}]",),
                (1.0, 1.15, 2.0),
                _percent,
            )
        yield Suspect(
            "all GPUs compute {size} longer: low clocks, from power or heat",
            "nvidia-smi -q -d CLOCK,PERFORMANCE while it trains; dcgmi dmon -e 100,155,203",
            lambda size: (f"unequal.slow=[{{share=1.0,factor={size:.3f}}}]",),
            (1.0, 1.1, 2.0),
            _percent,
        )
        if nodes > 1:
            yield Suspect(
                "one node's NICs run at {size} of their rate",
                "ibstat or ethtool on every node; nccl-tests over pairs of nodes (`windtunnel fleet diagnose`)",
                lambda size: (f"unequal.links=[{{nodes=[0],rate={1.0 / size:.3f}}}]",),
                (1.0, 2.0, 16.0),
                lambda size: f"{100 / size:.0f} %",
            )
    nic = cluster.node.nic
    if nodes > 1 and nic is not None and nic.count > 1:
        yield Suspect(
            "half of the NICs carry the traffic",
            "NCCL_DEBUG=INFO: the line `NET/IB : Using` lists the NICs; check NCCL_IB_HCA",
            lambda _: (f"cluster.node.nic.count={nic.count // 2}",),
        )
    if cluster.node.scale_up.kind in ("nvswitch", "nvlink") and min(job.plan.tp * job.plan.cp, cluster.node.gpus) > 1:
        rate = 64e9 if cluster.node.pcie_gen >= 5 else 32e9
        yield Suspect(
            "calls inside a node go over PCIe, not NVLink",
            "nvidia-smi topo -m and nvidia-smi nvlink -s; NCCL_DEBUG=INFO: channels `via SHM` or `via P2P`; check NCCL_P2P_DISABLE",
            lambda _: (f"cluster.node.scale_up.bandwidth={rate / 1e9:g}GB/s per GPU each way",),
        )


def _of_experts(job: Job) -> Iterator[Suspect]:
    runtime, model = job.runtime, job.model
    assert isinstance(model, Model)
    if not model.experts:
        return
    if job.plan.ep > 1 and runtime.moe_skew is None:
        balanced = runtime.moe_imbalance
        yield Suspect(
            "the busiest rank of experts has {size} times the mean load",
            "train a few steps with balanced routing (Megatron-LM: --moe-router-force-load-balancing); log tokens an expert",
            lambda size: (f"runtime.moe_imbalance={balanced * size:.3f}",),
            (1.0, 1.3, 4.0),
            lambda size: _times(balanced * size),
        )
    for name, words, flag in (
        ("moe_shared_overlap", "shared experts do not overlap with the dispatch", "--moe-shared-expert-overlap"),
        ("moe_a2a_overlap", "dispatches are not hidden behind another micro batch", "--overlap-moe-expert-parallel-comm"),
        ("moe_permute_fusion", "tokens are permuted by unfused kernels", "--moe-permute-fusion"),
        ("moe_fused_router", "the router's kernels are not fused", "--moe-router-fusion"),
    ):
        if getattr(runtime, name):
            yield _switched_off(name, words, f"check that the run has it (Megatron-LM: {flag})")
    if runtime.moe_grouped_gemm == "one":
        yield Suspect(
            "experts run one after another, not as one grouped product",
            "look for grouped_gemm in a trace (Megatron-LM: --moe-grouped-gemm)",
            lambda _: ("runtime.moe_grouped_gemm=each",),
        )
    if runtime.moe_dispatch in ("deepep", "hybridep"):
        yield Suspect(
            "dispatches fall back from DeepEP to all-to-all calls",
            "look for deep_ep kernels in a trace; check that its library loads",
            lambda _: ("runtime.moe_dispatch=alltoall",),
        )


def _of_plan(job: Job) -> Iterator[Suspect]:
    plan, runtime = job.plan, job.runtime
    if plan.recompute != "full":
        yield Suspect(
            "whole layers are recomputed",
            "compare the recompute settings that the run logs with the job's",
            lambda _: ("plan.recompute=full",),
        )
    for name, on, words, test in (
        (
            "overlap_grad_reduce",
            job.dp > 1,
            "gradients are reduced after the backward pass, not beside it",
            "--overlap-grad-reduce",
        ),
        (
            "overlap_param_gather",
            job.dp > 1,
            "parameters are gathered before the forward pass, not beside it",
            "--overlap-param-gather",
        ),
        ("overlap_tp", plan.tp > 1, "tensor-parallel calls are not split and hidden", "--tp-comm-overlap"),
        (
            "overlap_tp_dgrad",
            plan.tp > 1,
            "gradients of inputs are reduced after those of weights",
            "CUDA_DEVICE_MAX_CONNECTIONS=1",
        ),
        ("overlap_p2p", plan.pp > 1, "sends between stages wait", "--overlap-p2p-communication"),
    ):
        if on and getattr(runtime, name):
            yield _switched_off(name, words, f"check that the run has it (Megatron-LM: {test})")


def _of_software(job: Job) -> Iterator[Suspect]:
    runtime = job.runtime
    if runtime.attention == "flash":
        yield Suspect(
            "attention is not FlashAttention",
            "look for flash_fwd or cudnn kernels in a trace; NVTE_DEBUG=1 NVTE_DEBUG_LEVEL=2 says which backend runs",
            lambda _: ("runtime.attention=unfused",),
        )
    if runtime.precision in ("fp8", "mxfp8", "nvfp4"):
        yield Suspect(
            f"products run in bf16, not in {runtime.precision}",
            "look for e4m3 kernels in a trace; check the fp8 settings that the run logs",
            lambda _: ("runtime.precision=bf16",),
        )
    for name, words in (
        ("fused_norm", "norms are not fused"),
        ("fused_activation", "the activation is not fused"),
        ("fused_rope", "the rotary embedding is not fused"),
        ("fused_wgrad", "gradients of weights are not added up in their product"),
        ("fused_optimizer", "the optimizer runs tensor by tensor"),
        ("fused_cross_entropy", "the loss is not fused"),
    ):
        if getattr(runtime, name):
            yield _switched_off(name, words, "check that Apex or Transformer Engine is installed and built for this GPU")
    if runtime.launch != "eager":
        yield Suspect(
            "kernels are launched one by one: no CUDA graph, not compiled",
            "look for graph breaks (TORCH_LOGS=graph_breaks,recompiles) or cudaGraphLaunch in a trace",
            lambda _: ("runtime.launch=eager",),
        )


def _of_host(job: Job) -> Iterator[Suspect]:
    speed, sample = job.cluster.node.host_speed, max(job.runtime.data.sample, 1e-5)
    yield Suspect(
        "the host launches kernels {size} times slower",
        "top and cpupower frequency-info on the nodes; py-spy record on a rank; gc.disable() for a test",
        lambda size: (f"cluster.node.host_speed={speed / size:.4f}",),
        (1.0, 1.5, 8.0),
        _times,
    )
    if job.unequal is None:
        yield Suspect(
            "ranks pause for {size} at times of their own, as in garbage collection",
            "gc.freeze() and gc.disable(), with gc.collect() every 100 steps on all ranks at once (Megatron-LM: --manual-gc)",
            lambda size: (f"unequal.pauses=[{{seconds={size:.4f},every=10}}]",),
            (0.0, 0.2, 2.0),
            lambda size: f"{size:.2f} s every 10 steps",
        )
    yield Suspect(
        "the next batch is not ready: loading takes {size} ms a sample",
        "train with random batches in place of the data (Megatron-LM: --mock-data)",
        lambda size: (f"runtime.data.sample={sample * size:.6g}",),
        (1.0, 10.0, 1e4),
        lambda size: f"{1e3 * sample * size:.3g}",
    )


def _switched_off(name: str, words: str, test: str) -> Suspect:
    return Suspect(words, test, lambda _: (f"runtime.{name}=false",))
