"""The answer of `serve-predict`: latencies, throughput, memory, money and energy."""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from windtunnel.base.arrays import Floats
from windtunnel.base.dataclasses import asdict, dataclass
from windtunnel.compute.engines.file import DEFAULT, is_carried, is_unmeasured
from windtunnel.predict.answer.silicon import silicon_of
from windtunnel.serving.lane import PassRecord
from windtunnel.serving.published import (
    CARRIED,
    COMPILING,
    FigureErrors,
    FirstToken,
    PublishedServers,
    ServerKind,
    catalogue_spreads,
    servers_like,
)
from windtunnel.serving.records import RequestRecords
from windtunnel.serving.room import CacheRoom
from windtunnel.serving.server import ServePlan, Server
from windtunnel.serving.speculation import Speculation
from windtunnel.serving.tiers import TierHits
from windtunnel.spec import load_gpu

if TYPE_CHECKING:
    from windtunnel.formats.logs.served import MeasuredServer

SCHEMA = 1
"""Rises when a key of `Served.as_dict` changes its meaning."""


@dataclass(frozen=True)
class LatencySpread:
    """A latency over the requests, in seconds."""

    mean: float
    p50: float
    p90: float
    p99: float

    @classmethod
    def of(cls, values: Floats) -> LatencySpread:
        """Mean and quantiles; not a number without values."""
        if not len(values):
            return cls(math.nan, math.nan, math.nan, math.nan)
        return cls(float(values.mean()), *(float(q) for q in np.quantile(values, (0.5, 0.9, 0.99))))


@dataclass(frozen=True)
class LatencyLimits:
    """Limits of latency in seconds, what share of the requests that are judged keeps them, and how many a second do. `ttft_p90`,
    `tpot_p90`: what nine of ten of them keep; `at_start`: requests that are not judged, see `ServeLoad.mask_judged`."""

    ttft: float | None
    tpot: float | None
    kept: float
    requests_per_s: float
    nearest: str
    ttft_p90: float
    tpot_p90: float | None
    at_start: int


@dataclass(frozen=True)
class PrefillSide:
    """Copies that compute prompts alone: their plan, how many on how many GPUs, the shares of the time in which they and the
    decoding copies compute, and the mean seconds from a prefill's end until its cache is at the other side."""

    plan: ServePlan
    copies: int
    gpus: int
    busy: float
    decode_copies: int
    decode_busy: float
    transfer: float


@dataclass(frozen=True)
class ServedDetail:
    """What pages draw: seconds of each request to the first token, for each further one and to the last; what passes of a lane
    did (`log`), of `lanes`; and seconds of a pass by what they are for: of one that decodes `decodes` requests, and of one over
    `prompt` tokens."""

    ttft: Floats
    tpot: Floats
    e2e: Floats
    log: tuple[PassRecord, ...]
    lanes: int
    decodes: int
    decode_parts: dict[str, float]
    prompt: int
    prompt_parts: dict[str, float]


@dataclass(frozen=True)
class MeasuredRow:
    """A figure as predicted and as measured, in SI units; `error`: the stated relative one."""

    figure: str
    predicted: float
    measured: float
    error: float | None

    @property
    def off(self) -> float:
        """Predicted / measured - 1."""
        return self.predicted / self.measured - 1.0

    @property
    def holds_error(self) -> bool | None:
        """Whether what was measured lies inside the stated error; None without one."""
        return None if self.error is None else abs(self.off) <= self.error


@dataclass(frozen=True)
class Served:
    """How a server answers a load.

    `ttft`, `tpot`, `e2e`: seconds to the first token, for each further one, and to the last. `tokens_per_s`: output tokens of all
    replicas, `total_tokens_per_s` with prompts. `batch`: requests of a replica's mean pass; `most_requests`: those of the load's
    mean length that the cache of a replica holds. `prefill`: the other side, where prompts have copies of their own; the server is
    the decoding side then, on all GPUs. `dollars`, `joules`: for a million output tokens. `limits`: what keeps them, if
    any were stated. `accepted`: tokens of a pass of a decoding request, where tokens are drafted: the stated ones, less what a
    last pass drafts beyond the end. `detail`: for pages, if it was asked for. `paced`: requests came at stated moments and the
    server kept up, so that throughput and price are those of the arrivals. `measured`: what the same server or its benchmark
    printed. `records`: what each request did. `tiers`: what tiers of
    the cache gave; `ttft_without`: mean seconds to the first token without them. `users`: of a copy, in a closed loop, who each
    have a request at a time. `passes`: what their seconds are of, as `StepTimes.source` says. `first`: what the mean first token is
    made of, where prompts have no copies of their own.
    """

    server: Server
    requests: int
    seconds: float
    ttft: LatencySpread
    tpot: LatencySpread
    e2e: LatencySpread
    requests_per_s: float
    tokens_per_s: float
    total_tokens_per_s: float
    tokens_per_s_gpu: float
    batch: float
    room: CacheRoom
    most_requests: float
    cache_peak: float
    prefix_hits: float
    preempted: int
    recomputed: int
    busy: float
    floor_tpot: float
    dollars: float | None
    joules: float | None
    limits: LatencyLimits | None
    notes: tuple[str, ...]
    prefill: PrefillSide | None = None
    accepted: float | None = None
    detail: ServedDetail | None = None
    paced: bool = False
    measured: MeasuredServer | None = None
    records: RequestRecords | None = None
    tiers: tuple[TierHits, ...] = ()
    ttft_without: float | None = None
    users: int = 0
    passes: str = "kernels"
    first: FirstToken | None = None

    @cached_property
    def kind(self) -> ServerKind:
        """What published servers have to be to be like this one."""
        return server_kind(self.server, self.prefill is not None, self.first is not None and self.first.cold > 0.0)

    @cached_property
    def published_servers(self) -> PublishedServers | None:
        """Errors of predictions of the published servers nearest to this one, widened where it is `unlike` them; None where none
        was compared, or where passes are measured ones, which say nothing of the machine's kernels."""
        found = servers_like(self.kind) if self.passes != "measured" else None
        found = found.state_first(self.first) if found is not None and self.first is not None else found
        return found.widen_errors() if found is not None and self.unlike else found

    @cached_property
    def unlike(self) -> tuple[str, ...]:
        """In what no published server is like this one."""
        server, found = self.server, servers_like(self.kind)
        gpu = server.job.cluster.gpu
        reasons = {
            "kernels carried from another maker's GPUs": is_carried(gpu) and gpu.vendor != load_gpu(DEFAULT).vendor,
            "a group of ranks over NICs": self._widest_group > server.job.cluster.domain,
            "experts on GPUs of their own": self.passes == "pooled",
            "more users than any of them had": found is not None and self.users > found.users,
        }
        return tuple(reason for reason, holds in reasons.items() if holds)

    @property
    def _widest_group(self) -> int:
        """Ranks of a copy that exchange in each layer, of which the record has none over NICs: where prompts have copies of their
        own, it has DP-attention ranks of several nodes."""
        plan = self.server.plan
        if plan.dp > 1 and self.kind.sides == "apart":
            return 1
        return plan.expert_ranks if self.server.model.experts else plan.tp

    def errors_of(self, figure: str) -> FigureErrors | None:
        """Errors of a figure of `serving.published.FIGURES`, and of "e2e", "dollars" and "joules", which go with throughput; None
        where nothing was compared, or where arrivals set the figure. Watts were compared with nothing: "joules" is the error that
        seconds alone give."""
        if self.published_servers is None or (self.paced and figure in ("throughput", "dollars", "joules")):
            return None
        return self.published_servers.figures[figure if figure in ("ttft", "tpot") else "throughput"]

    def relative_errors(self) -> dict[str, float | None]:
        """The error to state of each figure, as a share: about seven of ten published servers of the kind lay inside it."""
        names = ("ttft", "tpot", "e2e", "throughput", "dollars", "joules")
        return {name: None if (found := self.errors_of(name)) is None else found.error for name in names}

    def as_dict(self) -> dict[str, Any]:
        """Plain data with stable keys, SI units."""
        server, plan = self.server, self.server.plan
        described = {
            "schema": SCHEMA,
            "model": server.model.name,
            "machine": server.job.cluster.id,
            "gpus": server.job.cluster.gpus,
            "engine": server.engine.name,
            "plan": {**asdict(plan), "replicas": server.replicas if self.prefill is None else self.prefill.decode_copies},
            "speculation": None if server.speculation is None else _speculation(server.speculation, self.accepted),
            "formats": {
                "weights": server.weights,
                "attention_weights": server.attention_weights,
                "dense_weights": server.dense_weights,
                "kv": server.kv,
            },
        }
        fields = ("requests", "seconds", "requests_per_s", "tokens_per_s", "total_tokens_per_s", "tokens_per_s_gpu", "batch")
        more = ("most_requests", "cache_peak", "prefix_hits", "preempted", "recomputed", "busy", "floor_tpot")
        spreads = {name: asdict(getattr(self, name)) for name in ("ttft", "tpot", "e2e")}
        return {
            **described,
            **{name: getattr(self, name) for name in fields},
            **spreads,
            **{name: getattr(self, name) for name in more},
            "memory": asdict(self.room),
            "dollars_per_million_tokens": self.dollars,
            "joules_per_million_tokens": self.joules,
            "silicon": self._silicon(),
            "limits": None if self.limits is None else asdict(self.limits),
            "prefill": None if self.prefill is None else asdict(self.prefill),
            "relative_errors": self.relative_errors(),
            "published": None if self.published_servers is None else self.published_servers.as_dict(),
            "notes": list(self.notes),
            **(
                {"tiers": {tier.name: tier.share for tier in self.tiers}, "ttft_without_tiers": self.ttft_without}
                if self.tiers
                else {}
            ),
            **({"measured": [asdict(row) for row in self.measured_rows]} if self.measured is not None else {}),
        }

    @cached_property
    def measured_rows(self) -> tuple[MeasuredRow, ...]:
        """Each figure that was measured, beside the prediction; none without a measurement."""
        if self.measured is None:
            return ()
        found, errors = self.measured.figures, self.relative_errors()
        rows: list[MeasuredRow] = []
        names = ("tokens_per_s", "total_tokens_per_s", "requests_per_s", "tokens_per_s_gpu", "seconds")
        plain = {name: float(getattr(self, name)) for name in names}
        for name, value in plain.items():
            if found.get(name):
                rows.append(MeasuredRow(name, value, found[name], errors["throughput"]))
        for name in ("ttft", "tpot", "e2e"):
            spread = getattr(self, name)
            for part, seen in found.get(name, {}).items():
                if seen > 0.0 and hasattr(spread, part):
                    rows.append(MeasuredRow(f"{name}.{part}", getattr(spread, part), seen, errors[name]))
        if tokens := self.measured.engine.get("cache_tokens"):
            rows.append(MeasuredRow("cache_tokens", self.room.lane_tokens * self.server.plan.pp, tokens, None))
        return tuple(rows)

    def _silicon(self) -> dict[str, float] | None:
        """Tokens/s for a mm2 of dies and for a US dollar of dies, memory and package; None where these are not known."""
        found = silicon_of(self.server.job.cluster.node)
        if found is None:
            return None
        return {
            "mm2": found.area, "dollars": found.dollars, "tokens_per_s_mm2": self.tokens_per_s_gpu / found.area,
            "tokens_per_s_dollar": self.tokens_per_s_gpu / found.dollars,
        }  # fmt: skip


def server_kind(server: Server, apart: bool, cold: bool = False) -> ServerKind:
    """What published servers have to be to be like `server`; `apart`: prompts have copies of their own; `cold`: it ran nothing
    before the load."""
    compiles = cold and catalogue_spreads().cold.get(server.engine.name, 0.0) >= COMPILING
    gpu = server.job.cluster.gpu
    name, trained = CARRIED if is_unmeasured(gpu) else gpu.name, "experts" if server.model.experts else "dense"
    drafts = "none" if server.speculation is None else "some"
    return ServerKind(name, server.engine.name, trained, "apart" if apart else "together", drafts, "cold" if compiles else "warm")


def _speculation(stated: Speculation, accepted: float | None) -> dict[str, Any]:
    """Plain data of what drafts."""
    model = None if stated.model is None else stated.model.name
    plain = {"method": stated.method, "model": model, "drafts": stated.drafts, "accepted": stated.accepted, "yielded": accepted}
    return (
        plain if stated.published is None else plain | {"assumed": {"figures": stated.published[0], "models": stated.published[1]}}
    )
