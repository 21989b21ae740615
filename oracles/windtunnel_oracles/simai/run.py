"""SimAI's analytical mode for the file of a workload: its table, and where it departs from its own formulas.

The file that SimAI_analytical writes: `<run>EndToEnd.csv`.

Where SimAI's arithmetic departs from its own formulas: units, whole-number divisions, and terms that it leaves out.

A workload in SimAI's analytical arithmetic: ns of every call, and the totals that it prints.

Formulas: aliyun/SimAI release 1.6 (f5efb5a9), `Layer::compute_time` and the analytical `Layer::report`. A call of S bytes among n
ranks takes S/2^30/(ratio x busbw) x (n-1)/n s, twice that for an all-reduce: no latency, and GB/s of the rates count as GiB/s.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from windtunnel.base.errors import SpecError
from windtunnel.formats.simulators.simai.settings import MULTI, Ratios, ratio, read_ratios
from windtunnel.formats.simulators.simai.workload import POLICIES, SimaiLayer, SimaiWorkload, read_workload
from windtunnel_oracles.simai.busbw import NO_RATE, bus_bandwidth, group_rate
from windtunnel_oracles.simai.setting import GPU_RATES, NIC_RATES, SimaiSetting, scale_ns, single, ticks

DEFAULT = read_ratios(Path(__file__).parent / "ratios")
"""SimAI's own tables: aliyun/SimAI, astra-sim-alibabacloud/inputs/ratio (Apache-2.0), commit cef83f9d."""
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


@dataclass(frozen=True)
class Difference:
    """A departure: how many calls it touches, and the us that the total would change by without it; None: not known."""

    what: str
    count: int
    microseconds: float | None

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class _Call:
    call: str
    group: str
    ranks: int
    bytes: int
    nanoseconds: int
    shown: float  # us that are not hidden


def differences(
    workload: SimaiWorkload, setting: SimaiSetting, result: EndToEnd, ratios: Ratios = DEFAULT
) -> tuple[Difference, ...]:
    """Each departure that this workload meets, alone."""
    sizes = Degrees.of(workload, setting.gpus)
    calls = [call for line in result.lines for call in _calls(line)]
    listed = [
        _units(calls),
        _small_sizes(calls),
        *_nics(calls, setting, sizes, ratios),
        _one_server(calls, setting, sizes),
        _one_rank_calls(calls),
        *_stages(workload, setting, sizes, result),
        _lists(workload),
    ]
    return tuple(one for one in listed if one is not None and one.count)


def _calls(line: TimedLayer) -> list[_Call]:
    out = []
    for at in range(3):
        call, group = group_of(line.layer.calls[at], weight=at == 2)
        if call and line.bytes[at]:
            out.append(_Call(call, group, line.ranks[at], line.bytes[at], line.calls[at], line.exposed[at] / 1000.0))
    return out


def _units(calls: list[_Call]) -> Difference:
    large = [call for call in calls if call.bytes >= SMALL and 0 < call.nanoseconds < 2**62]
    longer = sum(call.shown for call in large) * (GIB / 1e9 - 1)
    return Difference("rates in GB/s are taken as GiB/s: calls of 1 MiB and more are 6.9 % too short", len(large), longer)


def _small_sizes(calls: list[_Call]) -> Difference:
    """Sizes between two that have a constant would take about that of the larger one."""
    missing = [call for call in calls if 1 < call.bytes < SMALL and call.ranks not in SMALL_NS and call.ranks > 1]
    most = max(SMALL_NS)
    lost = sum(SMALL_NS[min((size for size in SMALL_NS if size >= call.ranks), default=most)] / 1000.0 for call in missing)
    sizes = ", ".join(str(size) for size in SMALL_NS)
    return Difference(f"a call below 1 MiB takes no time unless its group has {sizes} ranks", len(missing), lost)


def _nics(calls: list[_Call], setting: SimaiSetting, sizes: Degrees, ratios: Ratios) -> list[Difference | None]:
    """NICs of a group as fractions."""
    exact = Timer(setting, sizes, ratios, parts=True)
    none, fewer = [], []
    for call in calls:
        if call.group == "TP" or call.bytes < SMALL or call.ranks <= 1:
            continue
        rate = group_rate(setting, call.call, call.group, sizes.tp, sizes.ep, call.ranks)
        time = exact.nanoseconds(call.call, call.group, call.ranks, call.bytes)
        if rate is not None and rate[0] == NO_RATE:
            none.append(time / 1000.0 - call.shown)
        elif time != call.nanoseconds:
            fewer.append((time - call.nanoseconds) / 1000.0)
    return [
        Difference("NICs of a group are a whole number: less than one gives no time", len(none), sum(none)),
        Difference("NICs of a group are rounded down to a whole number", len(fewer), sum(fewer)),
    ]


def _one_server(calls: list[_Call], setting: SimaiSetting, sizes: Degrees) -> Difference:
    inside = sizes.tp * sizes.dp <= setting.gpus_per_server
    touched = [call for call in calls if inside and call.group in ("DP", "DP_EP") and call.ranks > 1 and call.bytes >= SMALL]
    change = 0.0
    for call in touched:
        used = group_rate(setting, call.call, call.group, sizes.tp, sizes.ep, call.ranks)
        right = bus_bandwidth(setting, call.call, 1, call.ranks, setting.nics_per_server)[0]
        change += call.shown * (used[0] / right - 1) if used is not None and used[0] > 0 else 0.0
    return Difference("data-parallel groups inside one server are timed over NICs", len(touched), change)


def _one_rank_calls(calls: list[_Call]) -> Difference:
    touched = [call for call in calls if call.ranks == 1 and call.nanoseconds >= 2**62]
    what = "a call among one rank divides by zero and takes 2^63 ns"
    return Difference(what, len(touched), -sum(call.shown for call in touched))


def _stages(workload: SimaiWorkload, setting: SimaiSetting, sizes: Degrees, result: EndToEnd) -> list[Difference | None]:
    size = workload.keys.get("pp_bytes", 0)
    if sizes.pp < 2:
        return []
    messages = 2 * sizes.ga
    carried = messages * size / (setting.nic_rate * 1e9) * 1e6
    sent = Difference(
        "messages between stages go at --pp-overlap GiB/s and not at --nic; they are hidden where that is 1, which is the default",
        messages if size else 0,
        carried - result.pp,
    )
    embedding = [line for line in result.lines if line.layer.name == EMBEDDING]
    per_us = (sizes.pp - 1) / (sizes.ga * sizes.vpp)
    more = sum(line.calls[0] + line.calls[1] + sum(line.compute) for line in embedding) / 1000.0 * per_us
    bubble = Difference(
        "the bubble is divided by vpp, the layers of a stage, as if each were a virtual stage; without it, it is vpp times as long",
        1 if sizes.vpp > 1 else 0,
        result.bubble * (sizes.vpp - 1),
    )
    return [sent, bubble, Difference(f"lines called {EMBEDDING} are left out of the bubble", len(embedding), more)]


def _lists(workload: SimaiWorkload) -> Difference:
    lost = max(0, len(workload.checkpoints) - 1) + max(0, len(workload.initiates) - 1)
    return Difference("of the lists of checkpoints only the first number is read", lost, None)


@dataclass(frozen=True)
class SimaiRun:
    """What SimAI prints. `departures`: where it departs from its formulas, and the us that the total would change by; `broken`:
    what of the workload could not be read; `assumed_keys`: keys of its first line that are 1, since it does not say."""

    name: str
    result: EndToEnd
    departures: tuple[Difference, ...]
    broken: tuple[str, ...]
    assumed_keys: tuple[str, ...]

    @property
    def csv(self) -> str:
        """The text of EndToEnd.csv."""
        return "\n".join(csv_lines(self.result, self.name)) + "\n"

    @property
    def summary(self) -> dict[str, str]:
        """The last lines of the table, by name."""
        return summary_of(self.result, self.name)

    def as_dict(self) -> dict[str, Any]:
        """Plain data with stable keys; microseconds."""
        result = self.result
        return {
            "schema": "windtunnel.simai/1",
            "summary": self.summary,
            "microseconds": {
                "dp": result.dp, "dp_ep": result.dp_ep, "tp": result.tp, "ep": result.ep, "pp": result.pp, "bubble": result.bubble,
                "compute": result.compute, "exposed": result.exposed, "total": result.total,
            },
            "differences": [one.as_dict() for one in self.departures],
            "layer_rows": len(result.lines),
            "broken": list(self.broken),
        }  # fmt: skip


def run_simai(
    workload: str | Path, gpus: int | None = None, ratios: str | Path | None = None, name: str | None = None, **options: Any
) -> SimaiRun:
    """The table for a workload that AICB wrote, plain or gzip.

    `gpus`: all_gpus of its first line where left out; `ratios`: a folder with nic_ratio.csv, nvlink_ratio.csv and ata_ratio.csv;
    `name` of the run in the table. `options`: the other fields of SimaiSetting. FileError and SpecError for files and settings that
    are none.
    """
    path = Path(workload)
    source = read_workload(path)
    count = gpus if gpus is not None else source.keys.get("gpus", 0)
    if not count:
        raise SpecError("--gpus", gpus, "a number of GPUs: the first line of the workload has no all_gpus")
    setting = SimaiSetting(count, **options)
    tables = DEFAULT if ratios is None else read_ratios(Path(ratios))
    result = end_to_end(source, setting, tables)
    missing = tuple(key for key in ("ep", "pp", "vpp", "ga") if key not in source.keys)
    departures = tuple(differences(source, setting, result, tables))
    return SimaiRun(name if name is not None else path.name.split(".txt")[0], result, departures, tuple(source.broken), missing)


SUMMARY = (
    "File name", "Expose DP comm", "Expose DP_EP comm", "Expose TP comm", "Expose_EP_comm", "Expose_PP_comm", "bubble time",
    "total comp", "total exposed comm", "Total time",
)  # fmt: skip
COLUMNS = (
    "fwd compute,wg compute,ig compute,fwd exposed comm,wg exposed comm,ig exposed comm,fwd total comm,algbw,busbw,"
    "wg total comm,algbw,busbw,ig total comm,algbw,busbw"
)
RUN = "Analytical_test"


def summary_of(result: EndToEnd, name: str) -> dict[str, str]:
    """Cells of the summary row: us, and the share of the total time."""
    times = (result.dp, result.dp_ep, result.tp, result.ep, result.pp, result.bubble, result.compute, result.exposed)
    cells = [f"{_format_whole(one)} ({_share(one, result.total)}%)" for one in times]
    return dict(zip(SUMMARY, (name, *cells, _format_whole(result.total)), strict=True))


def csv_lines(result: EndToEnd, name: str) -> Iterator[str]:
    """The file's lines."""
    yield ", ".join(SUMMARY)
    yield ", ".join(summary_of(result, name).values())
    yield f"layer_name,{RUN},{COLUMNS}"
    for line in result.lines:
        yield ",".join((line.layer.name, RUN, *_cells(line)))


def _cells(line: TimedLayer) -> Iterator[str]:
    order = (0, 2, 1)
    for values in (line.compute, line.exposed):
        for at in order:
            yield _format_whole(values[at] / 1000.0)
    for at in order:
        algbw, busbw = rates(line, at)
        yield _format_whole(line.calls[at] / 1000.0)
        yield _rate(algbw)
        yield _rate(busbw)


def rates(line: TimedLayer, at: int) -> tuple[float, float]:
    """GiB/s of a call: of the buffer, and times the collective's factor; NaN without bytes and time, infinite without time."""
    size, us, ranks = line.bytes[at], line.calls[at] / 1000.0, line.ranks[at]
    algbw = size / us * 1e6 / GIB if us else (math.inf if size else math.nan)
    call = line.layer.calls[at]
    if call.startswith("ALLREDUCE"):
        return algbw, algbw * 2 * (ranks - 1) / ranks if ranks else math.nan
    known = call.startswith(("ALLGATHER", "REDUCESCATTER", "ALLTOALL"))
    return algbw, algbw * (ranks - 1) / ranks if known and ranks else 0.0


def _format_whole(value: float) -> str:
    return f"{value:.0f}" if math.isfinite(value) else "NaN or Inf"


def _share(value: float, total: float) -> str:
    return _rate(value / total * 100 if total else math.nan)


def _rate(value: float) -> str:
    return "-nan" if math.isnan(value) else f"{value:.2f}"
