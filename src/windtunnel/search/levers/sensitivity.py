"""What limits a job: the elasticity of its step to every rate, the gain of 10 % more, and the gain of every runtime switch.

The elasticity is d ln(step) / d ln(rate), by central differences of `predict`: -1 for a rate that alone decides, 0 for one that is
idle. All of a step's seconds are those of kernels, of calls or of the host, so the elasticities of these three add up to -1
where no choice jumps; what the rates of the data sheet leave of them are start-up times inside kernels and calls.

The rates of a job's machine, each with the job on which it is `k` times as fast.

Latencies are rates too: `k` times as fast is a `k`-th of their seconds. Links are as fast as calls find them (`Achieved`), with
NCCL's choices as they are: with another bandwidth on the data sheet NCCL also chooses other channels, in steps, and a NIC may
outrun its PCIe slot. Start-up times inside kernels belong to no rate; `search.sensitivity` finds them as the rest of all kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from windtunnel.base.dataclasses import dataclass
from windtunnel.predict import predict
from windtunnel.search.change import Change, predict_or_none, value_of
from windtunnel.search.levers.pricing import GAIN, PricedLever, price_levers
from windtunnel.sheet.sentence import Sentence
from windtunnel.spec import GPU, Job
from windtunnel.spec.calibration import PATHS, Calibration
from windtunnel.spec.machine import Achieved

DELTA = 0.01
"""Half width of the central difference, in ln(rate)."""

MORE = 0.10
"""What a rate gains for the gain that is shown."""

SMALL = 5e-4
"""Gains and elasticities below this are noise of the difference, and not shown."""

LEVERS_ABOUT = 20
"""Levers that a job has, about: for the progress bar."""

Progress = Callable[[float], None]


@dataclass(frozen=True)
class Limit:
    """A rate: its elasticity, the step with 10 % more of it and the share of the step that this gains; `loss`: the share that a
    rate over 1.1 costs (negative). `part`: kernels, calls or host."""

    name: str
    words: str
    part: str
    elasticity: float
    step_time_s: float
    gain: float
    loss: float


@dataclass(frozen=True)
class Turned:
    """A change of a switch, or of the plan if there were more memory: what it sets, the step with it, and what it gains (negative:
    loses). `fits`: whether the job fits then."""

    change: Change
    step_time_s: float
    gain: float
    fits: bool
    flags: tuple[str, ...] = ()
    """The change in the words of the job's framework."""

    @property
    def sets(self) -> tuple[str, ...]:
        """The change as `--set` takes it; of a way to launch the name alone, since its costs come with it."""
        launch = tuple(one for one in self.change.sets if one.startswith("runtime.launch="))
        return launch or self.change.sets


@dataclass(frozen=True)
class Sensitivity:
    """All limits, largest elasticity first; `rest` of kernels and calls that no rate explains; switches, largest gain first; what
    10 % more memory would allow (None: nothing faster). `total`: sum of the elasticities of kernels, calls and host."""

    job: Job
    step_time_s: float
    limits: tuple[Limit, ...]
    rest: dict[str, float]
    total: float
    switches: tuple[Turned, ...]
    memory: Turned | None

    def as_dict(self) -> dict[str, Any]:
        """The shape that `sensitivity --json` prints."""
        return {
            "job": self.job.name,
            "step_time_s": self.step_time_s,
            "limits": [dict(vars(limit)) for limit in self.limits],
            "start_up": dict(self.rest),
            "sum_of_rates": sum(limit.elasticity for limit in self.limits),
            "total": self.total,
            "switches": [_switch_data(switch) for switch in self.switches],
            "more_memory": None if self.memory is None else _switch_data(self.memory),
        }


def sensitivity(job: Job, progress: Progress = lambda share: None) -> Sensitivity:
    """All limits and switches of `job`, in closed form. Raises what `predict` raises for the job itself."""
    base = predict(job)
    rates, turns = rates_of(job), tuple(_switches(job))
    wholes: dict[str, Faster] = {"kernels": seconds_faster(job, KERNELS), "calls": seconds_faster(job, CALLS)}
    steps, done = len(rates) + len(wholes) + len(turns) + LEVERS_ABOUT, 0

    def tick() -> None:
        nonlocal done
        done += 1
        progress(min(1.0, done / steps))

    limits = []
    for rate in rates:
        more, less = (predict(rate.faster(k)).step_time_s for k in (1.0 + MORE, 1.0 / (1.0 + MORE)))
        gain, loss = 1.0 - more / base.step_time_s, 1.0 - less / base.step_time_s
        limits.append(Limit(rate.name, rate.words, rate.part, elasticity(rate.faster), more, gain, loss))
        tick()
    rest, total = {}, sum(limit.elasticity for limit in limits if limit.part == "host")
    for part, faster_part in wholes.items():
        whole = elasticity(faster_part)
        rest[part] = whole - sum(limit.elasticity for limit in limits if limit.part == part)
        total += whole
        tick()
    levers = price_levers(base, progress=tick)
    switches = [Turned(one.change, one.step_time_s, one.gain, one.fits, one.flags) for one in levers if _is_shown(one)]
    known = {turned.change for turned in switches}
    for change in turns:
        turned = None if change in known else _price_switch(job, change, base.step_time_s)
        if turned is not None and turned.gain <= -SMALL:  # what gains is a lever, if the framework can do it
            switches.append(turned)
        tick()
    memory = _memory(job, base.step_time_s)
    tick()
    ordered = tuple(sorted(limits, key=lambda limit: (limit.elasticity, limit.name)))
    first = sorted(switches, key=lambda turned: (turned.gain <= GAIN or base.fits and not turned.fits, -turned.gain))
    return Sensitivity(job, base.step_time_s, ordered, rest, total, tuple(first), memory)


def _is_shown(one: PricedLever) -> bool:
    """Whether a lever is one of the job's switches: it moves the step, does not change what is trained, and is no machine."""
    machine = any(path.startswith(("cluster.", "unequal")) for path, _ in one.change.fields)
    flip = len(one.change.fields) == 1 and one.change.fields[0][0].startswith("runtime.")
    return (one.gain >= SMALL or flip and one.gain <= -SMALL) and not one.trains_otherwise and not machine


def elasticity(faster: Faster, delta: float = DELTA) -> float:
    """d ln(step) / d ln(rate) by a central difference."""
    up, down = predict(faster(math.exp(delta))), predict(faster(math.exp(-delta)))
    return math.log(up.step_time_s / down.step_time_s) / (2.0 * delta)


SWITCHES = (
    *("overlap_tp", "overlap_tp_dgrad", "overlap_grad_reduce", "overlap_param_gather", "overlap_p2p", "p2p_scatter", "p2p_sync"),
    *("fused_norm", "fused_activation", "fused_rope", "fused_dropout_add", "fused_cross_entropy", "fused_optimizer", "fused_wgrad"),
    *("reduce_every_micro_batch", "reshard_after_forward", "launch_blocking"),
)
"""Fields of `Runtime` that are on or off."""

LOW_PRECISION = ("fp8_param_gather", "fp8_weight_cache", "save_original_input")
EXPERTS = (
    *("moe_host_wait", "moe_a2a_overlap", "moe_dispatch_fp8", "moe_fused_mlp", "moe_permute_fusion", "moe_fused_router"),
    "moe_shared_overlap",
)

CHOICES: dict[str, tuple[str, ...]] = {
    "attention": ("flash", "fused_softmax", "unfused"),
    "reduce_with": ("reduce_scatter", "all_reduce"),
}
"""Fields of `Runtime` with several values."""


def _switches(job: Job) -> Iterator[Change]:
    """Every switch turned, and every other value of a choice."""
    runtime = job.runtime
    fields = SWITCHES + (LOW_PRECISION if runtime.recipe else ()) + (EXPERTS if getattr(job.model, "experts", None) else ())
    for name in fields:
        yield Change(((f"runtime.{name}", not getattr(runtime, name)),))
    for name, values in CHOICES.items():
        yield from (Change(((f"runtime.{name}", value),)) for value in values if value != getattr(runtime, name))


def _price_switch(job: Job, change: Change, now: float) -> Turned | None:
    """The change with its price; None if the job contradicts itself with it."""
    prediction = predict_or_none(job, change)
    if prediction is None:
        return None
    return Turned(change, prediction.step_time_s, 1.0 - prediction.step_time_s / now, prediction.fits)


def _memory(job: Job, now: float) -> Turned | None:
    """The fastest of weaker recompute and larger micro batches that needs up to 10 % more memory than there is."""
    plan = job.plan
    weaker = {"full": ("selective", "none"), "selective": ("none",)}.get(plan.recompute, ())
    candidates = [Change.of(plan__recompute=name, plan__recompute_layers=None) for name in weaker]
    candidates.append(Change.of(plan__micro_batch=2 * plan.micro_batch))
    more = Change((("cluster.node.gpu.memory", round(value_of(job, "cluster.node.gpu.memory") * (1.0 + MORE))),))
    allowed = []
    for change in candidates:
        today, then = _price_switch(job, change, now), _price_switch(job, change + more, now)
        if today is not None and then is not None and then.fits and not today.fits and then.gain > SMALL:
            allowed.append(Turned(change, then.step_time_s, then.gain, False))
    return max(allowed, key=lambda turned: turned.gain, default=None)


def _switch_data(turned: Turned) -> dict[str, Any]:
    return {
        "set": list(turned.sets),
        "flags": list(turned.flags),
        "step_time_s": turned.step_time_s,
        "gain": turned.gain,
        "fits": turned.fits,
    }


Faster = Callable[[float], Job]
"""The job with a rate times k."""

KERNELS = tuple(path for path in PATHS if path.startswith("kernels."))
CALLS = tuple(path for path in PATHS if path.startswith("calls."))


@dataclass(frozen=True)
class Rate:
    """A rate by its key, in words, with what it belongs to: kernels, calls or host."""

    name: str
    words: str
    part: str
    faster: Faster


def rates_of(job: Job) -> tuple[Rate, ...]:
    """The rates that the job's machine states: those of its number formats, memory, links, latencies, and the host."""
    gpu, node = job.cluster.gpu, job.cluster.node
    listed = [
        Rate(f"tensor_{name}", Sentence("{format} products, FLOP/s", format=name), "kernels", _peak(job, name))
        for name in gpu.peak
        if _computes(job, name)
    ]
    listed.append(Rate("hbm", "GPU memory, B/s", "kernels", _field(job, "cluster.node.gpu.memory_bandwidth")))
    if job.cluster.gpus > 1 and node.domain > 1:
        listed.append(Rate("scale_up", Sentence("{kind} links, B/s", kind=node.scale_up.kind), "calls", _with_faster(job, INSIDE)))
        listed.append(Rate("scale_up_latency", "a step from GPU to GPU inside", "calls", _with_faster(job, ("inside_hop",), -1)))
    if job.cluster.gpus > node.domain and node.nic is not None:
        listed.append(Rate("nic", "NICs and fabric, B/s", "calls", _with_faster(job, ("across_rate",))))
        listed.append(Rate("nic_latency", "a step from GPU to GPU across", "calls", _fewer_steps_across(job)))
    if job.cluster.gpus > 1:
        listed.append(Rate("call_launch", "launch of a call on the GPU", "calls", _with_faster(job, ("launch",), -1)))
    if node.host_link is not None:
        listed.append(Rate("host_link", "link to the host, B/s", "calls", _field(job, "cluster.node.host_link.bandwidth")))
    listed.append(Rate("host", "host, launches a second", "host", _field(job, "cluster.node.host_speed")))
    return tuple(listed)


def seconds_faster(job: Job, paths: tuple[str, ...]) -> Faster:
    """The job whose seconds under these paths of a calibration are a k-th."""

    def faster(k: float) -> Job:
        calibration = job.calibration or Calibration()
        for path in paths:
            calibration = calibration.times(path, 1.0 / k)
        return job.model_copy(update={"calibration": calibration})

    return faster


def _computes(job: Job, name: str) -> bool:
    """Whether products of the job may run at the peak of a format: its own, 16 bits, and fp32 where something is kept in it."""
    runtime = job.runtime
    wide = "fp16" if runtime.weight_dtype == "fp16" else "bf16"
    return name in {runtime.precision, wide, "fp32", "tf32"}


def _peak(job: Job, name: str) -> Faster:
    def faster(k: float) -> Job:
        gpu: GPU = job.cluster.gpu
        tables = {field: {key: rate * (k if key == name else 1.0) for key, rate in getattr(gpu, field).items()} for field in TABLES}
        return Change((("cluster.node.gpu", gpu.model_copy(update=tables)),)).apply(job)

    return faster


TABLES = ("peak", "achievable")
"""Tables of rates by number format."""


def _field(job: Job, path: str) -> Faster:
    return lambda k: Change(((path, value_of(job, path) * k),)).apply(job)


INSIDE = ("inside_rate", "inside_ll_rate", "inside_ll128_rate")
"""Rates of a scale-up domain, by NCCL's protocol."""


def _with_faster(job: Job, names: tuple[str, ...], power: int = 1) -> Faster:
    """Factors of `Achieved` times k, or over it where they are times (`power` -1)."""

    def faster(k: float) -> Job:
        factors = job.cluster.achieved or Achieved(relative_error=None)
        update = {name: getattr(factors, name) * k**power for name in names}
        return Change((("cluster.achieved", factors.model_copy(update=update)),)).apply(job)

    return faster


def _fewer_steps_across(job: Job) -> Faster:
    """Steps across the fabric: what the constants say, the NIC's latency and the switches'."""

    def faster(k: float) -> Job:
        nic, fabric = job.cluster.node.nic, job.cluster.fabric
        fields = [("cluster.fabric.hop_latency", fabric.hop_latency / k)]
        fields += [("cluster.node.nic.latency", nic.latency / k)] if nic is not None else []
        return Change(tuple(fields)).apply(_with_faster(job, ("across_hop",), -1)(k))

    return faster
