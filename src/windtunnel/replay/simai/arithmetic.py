"""A workload in SimAI's analytical arithmetic: ns of every call, and the totals that it prints.

Formulas: aliyun/SimAI release 1.6 (f5efb5a9), `Layer::compute_time` and the analytical `Layer::report`. A call of S bytes among n
ranks takes S/2^30/(ratio x busbw) x (n-1)/n s, twice that for an all-reduce: no latency, and GB/s of the rates count as GiB/s.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from windtunnel.base.errors import SpecError
from windtunnel.formats.simulators.simai.ratios import DEFAULT, MULTI, Ratios, ratio
from windtunnel.formats.simulators.simai.workload import POLICIES, SimaiLayer, SimaiWorkload
from windtunnel.replay.simai.busbw import group_rate
from windtunnel.replay.simai.setting import GPU_RATES, NIC_RATES, SimaiSetting, scale_ns, single, ticks

GIB = 2**30
SMALL = 2**20
SMALL_NS = {2: 10_000, 4: 12_000, 8: 15_000, 16: 66_000, 32: 135_000, 64: 200_000, 128: 320_000}
"""ns of a call below 1 MiB, by the size of its group; 0 for other sizes."""
LEAST = 4096
"""Bytes to which a smaller call of the forward pass is raised."""
CALLS = ("ALLREDUCE", "ALLTOALL", "ALLGATHER", "REDUCESCATTER")
EMBEDDING = "embedding_layer"


@dataclass(frozen=True, slots=True)
class TimedLayer:
    """ns of a line: computation and calls of the forward, input and weight gradient pass, and the part of the calls that is not
    hidden; `groups`: TP, EP, DP, DP_EP or none of each call; `ranks`: its size as the table counts it."""

    layer: SimaiLayer
    compute: tuple[int, int, int]
    calls: tuple[int, int, int]
    exposed: tuple[int, int, int]
    groups: tuple[str, str, str]
    ranks: tuple[int, int, int]
    bytes: tuple[int, int, int]


@dataclass(frozen=True)
class EndToEnd:
    """SimAI's totals in us, and its lines."""

    dp: float
    dp_ep: float
    tp: float
    ep: float
    pp: float
    bubble: float
    compute: float
    exposed: float
    total: float
    lines: tuple[TimedLayer, ...]


@dataclass(frozen=True)
class Degrees:
    """Sizes of groups: whole-number divisions of `gpus`, as there."""

    tp: int
    ep: int
    pp: int
    dp: int
    vpp: int
    ga: int

    @classmethod
    def of(cls, workload: SimaiWorkload, gpus: int) -> Degrees:
        """SpecError for degrees that leave no GPU."""
        tp, ep, pp = (workload.degree(name) for name in ("tp", "ep", "pp"))
        if gpus // (tp * pp) < 1 or gpus // (tp * pp) // ep < 1:
            raise SpecError("--gpus", gpus, f"at least tp x ep x pp = {tp * ep * pp} GPUs of the workload's first line")
        return cls(tp, ep, pp, gpus // (tp * pp), workload.degree("vpp"), workload.degree("ga"))


def end_to_end(workload: SimaiWorkload, setting: SimaiSetting, ratios: Ratios = DEFAULT) -> EndToEnd:
    """The totals. SpecError for options that SimAI ends on, and for policies whose groups it leaves undefined."""
    check(workload, setting)
    sizes = Degrees.of(workload, setting.gpus)
    timer = Timer(setting, sizes, ratios)
    again = recomputed_lines(workload)
    lines = tuple(_time_layer(layer, timer, again.get(at, 0), setting) for at, layer in enumerate(workload.layers))
    dp = dp_ep = tp = ep = compute = exposed = bubble = 0.0
    for line in lines:
        fwd, ig, wg = (one / 1000.0 for one in line.compute)
        shown = line.exposed
        compute = compute + fwd + wg + ig
        exposed = exposed + shown[0] / 1000.0 + shown[2] / 1000.0 + shown[1] / 1000.0
        if line.layer.name != EMBEDDING:
            bubble += ((line.calls[0] + sum(line.compute) + line.calls[1]) % 2**64) / 1000.0
        if line.groups[2] == "DP_EP":
            dp_ep += shown[2] / 1000.0
        else:
            dp += shown[2] / 1000.0
        both = ((shown[0] + shown[1]) % 2**64) / 1000.0
        if line.groups[0] == "EP":
            ep += both
        else:
            tp += both
    pp = _between_stages(workload, setting, sizes)
    bubble *= (sizes.pp - 1) / (sizes.ga * sizes.vpp)
    return EndToEnd(dp, dp_ep, tp, ep, pp, bubble, compute, exposed, compute + exposed + bubble + pp, lines)


def check(workload: SimaiWorkload, setting: SimaiSetting) -> None:
    """SpecError for options that the arithmetic has no answer to."""
    if workload.policy not in POLICIES[:2]:
        raise SpecError("policy", workload.policy, f"{POLICIES[0]} or {POLICIES[1]}: SimAI reads the group sizes of no other")
    for name in ("gpus", "gpus_per_server", "nics_per_server"):
        if not 1 <= getattr(setting, name) <= 10**7:
            raise SpecError(f"--{name.replace('_', '-')}", getattr(setting, name), "1 to 10,000,000")
    for name in ("dp_overlap", "ep_overlap", "tp_overlap", "pp_overlap"):
        if not 0 <= getattr(setting, name) <= 1:
            raise SpecError(f"--{name.replace('_', '-')}", getattr(setting, name), "0 to 1")
    for name in ("nvlink", "nic"):
        if not 0 <= getattr(setting, name) < 1e9:
            raise SpecError(f"--{name}", getattr(setting, name), "GB/s above 0, or 0 for the GPU's or NIC's own")
    if setting.gpu_type not in GPU_RATES:
        raise SpecError("--gpu-type", setting.gpu_type, ", ".join(GPU_RATES))
    if setting.nic_type not in NIC_RATES:
        raise SpecError("--nic-type", setting.nic_type, ", ".join(NIC_RATES))


def recomputed_lines(workload: SimaiWorkload) -> dict[int, int]:
    """How often the forward pass of a line runs again: from the last checkpoint before a line that initiates it. SimAI's reader
    takes the first number of each list only."""
    starts, ends = workload.checkpoints[:1], workload.initiates[:1]
    if workload.policy != POLICIES[0] or not starts or not ends or starts[0] >= ends[0]:
        return {}
    return {at: 1 for at in range(starts[0], min(ends[0], len(workload.layers)))}


@lru_cache(maxsize=1024)
def group_of(call: str, weight: bool) -> tuple[str, str]:
    """(collective, group) of a column's word; "" for none. A word that begins with ALLREDUCE is one, ALLREDUCEALLTOALL too, but
    has no group."""
    kind = next((known for known in CALLS if call.startswith(known)), "")
    suffixes = {"": "DP" if weight else "TP", "_EP": "EP", "_DP_EP": "DP_EP"}
    return kind.lower(), suffixes.get(call[len(kind) :], "") if kind else ""


class Timer:
    """ns of calls; equal ones are computed once."""

    def __init__(self, setting: SimaiSetting, sizes: Degrees, ratios: Ratios, parts: bool = False) -> None:
        self.setting, self.sizes, self.ratios, self.parts = setting, sizes, ratios, parts
        self.nanoseconds = lru_cache(maxsize=None)(self._nanoseconds)

    def ranks(self, group: str, weight: bool) -> int:
        """The size of a group as SimAI counts it: what is not EP is TP in the columns of activations, and DP in that of weights."""
        sizes = self.sizes
        if weight:
            return sizes.dp // sizes.ep if group == "DP_EP" else sizes.dp
        return sizes.ep if group == "EP" else sizes.tp

    def _nanoseconds(self, call: str, group: str, ranks: int, size: int) -> int:
        if not call:
            return 0
        if 1 < size < SMALL:
            return SMALL_NS.get(ranks, 0)
        rate = group_rate(self.setting, call, group, self.sizes.tp, self.sizes.ep, ranks, self.parts)
        if rate is None:
            return 0
        divisor = single(single(self._ratio(call, group, ranks, size, rate[1])) * rate[0])
        seconds = size / GIB / divisor if divisor else (math.inf if size else math.nan)
        time = seconds * 1e9 * (2 if call == "allreduce" else 1)
        return ticks(time * (ranks - 1) / (ranks / 1.0) if ranks else math.nan)

    def _ratio(self, call: str, group: str, ranks: int, size: int, nvlink: bool) -> float:
        """Share of the bandwidth: only of a TP group's gather, scatter and all-to-all and an EP group's all-to-all."""
        tp, servers = self.sizes.tp, self.setting.gpus_per_server
        if size == 0:
            return 1.0
        if group == "TP" and call in ("allgather", "reducescatter"):
            return ratio(self.ratios.nvlink if nvlink else self.ratios.nic, size, 1 if tp < servers else tp // servers)
        if call == "alltoall" and group == "EP":
            if tp * ranks <= servers:
                return ratio(self.ratios.alltoall, size, 1)
            return ratio(self.ratios.alltoall, size, MULTI if tp >= servers else tp * ranks // servers)
        if call == "alltoall" and group == "TP":
            return ratio(self.ratios.alltoall, size, 1 if tp <= servers else tp // servers)
        return 1.0


def _time_layer(layer: SimaiLayer, timer: Timer, again: int, setting: SimaiSetting) -> TimedLayer:
    size = layer.bytes
    if 0 < size[0] < LEAST:
        size = (LEAST, *size[1:])
    calls, groups, ranks = [], [], []
    for at in range(3):
        call, group = group_of(layer.calls[at], weight=at == 2)
        ranks.append(timer.ranks(group, weight=at == 2))
        groups.append(group)
        calls.append(timer.nanoseconds(call, group, ranks[at], size[at]))
    hidden = setting.ep_overlap if groups[0] == "EP" else setting.tp_overlap
    open_ = single(1 - single(hidden))
    shown = (scale_ns(calls[0], open_), scale_ns(calls[1], open_), scale_ns(calls[2], single(1 - single(setting.dp_overlap))))
    compute = (layer.compute[0] * (1 + again), *layer.compute[1:])
    return TimedLayer(layer, compute, (calls[0], calls[1], calls[2]), shown, (groups[0], groups[1], groups[2]),
                 (ranks[0], ranks[1], ranks[2]), size)  # fmt: skip


def _between_stages(workload: SimaiWorkload, setting: SimaiSetting, sizes: Degrees) -> float:
    """us of messages between stages: SimAI's bandwidth for them is `pp_overlap` GiB/s."""
    size, overlap = workload.keys.get("pp_bytes", 0) % 2**32, single(setting.pp_overlap)
    seconds = size / GIB / overlap if overlap else (math.inf if size else math.nan)
    return float(scale_ns(ticks(2 * sizes.vpp * sizes.ga * (seconds * 1e9) / 1000.0), single(1 - overlap)))
