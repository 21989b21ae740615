"""The answer of `serve-fleet`: how many replicas, what users wait, what it costs, what failures and the autoscaler do."""

from __future__ import annotations

from typing import Any

import numpy as np

from windtunnel.base.arrays import Floats
from windtunnel.base.dataclasses import asdict, dataclass
from windtunnel.serving.answer import server_kind
from windtunnel.serving.load import ServeLoad
from windtunnel.serving.published import servers_like
from windtunnel.serving.records import RequestRecords
from windtunnel.serving.replicas.run import Autoscaler
from windtunnel.serving.server import Server

SCHEMA = 1
"""Rises when a key of `FleetServed.as_dict` changes its meaning."""


@dataclass(frozen=True)
class FleetSpread:
    """A latency over the requests, in seconds."""

    mean: float
    p50: float
    p90: float
    p95: float
    p99: float

    @classmethod
    def of(cls, values: Floats) -> FleetSpread:
        """Mean and quantiles of those values that are numbers; not a number without any."""
        kept = values[np.isfinite(values)]
        if not len(kept):
            return cls(*(float("nan"),) * 5)
        return cls(float(kept.mean()), *(float(q) for q in np.quantile(kept, (0.5, 0.9, 0.95, 0.99))))


@dataclass(frozen=True)
class FleetSide:
    """Replicas of one kind: their server, how many there are at most, the share of the time in which they compute, requests of the
    mean pass, GPU hours."""

    server: Server
    replicas: int
    busy: float
    batch: float
    gpu_hours: float

    @property
    def gpus(self) -> int:
        """GPUs at most."""
        return self.replicas * self.server.plan.gpus

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        server = self.server
        return {
            "machine": server.job.cluster.id, "plan": asdict(server.plan), "replicas": self.replicas, "gpus": self.gpus,
            "busy": self.busy, "batch": self.batch, "gpu_hours": self.gpu_hours,
        }  # fmt: skip


@dataclass(frozen=True)
class FleetTry:
    """A number of replicas that was tried, and the share of requests that kept the limits; `holds`: enough, and it keeps up."""

    replicas: int
    fronts: int
    kept: float
    holds: bool


@dataclass(frozen=True)
class FleetSeries:
    """Over time, in equal pieces (`times`: their middles, s): requests that come a second, that are there, that wait for their
    first token, and replicas that take requests."""

    times: Floats
    rate: Floats
    there: Floats
    waiting: Floats
    replicas: Floats


@dataclass(frozen=True)
class FleetServed:
    """How a fleet answers a load. `prompts`: replicas that compute prompts alone, if they do. `kept`: share of requests that keep
    `ttft_limit` and `tpot_limit`. `dollars`: of all GPU hours; None where the machine has no price. `resent`: requests that started
    anew since a replica failed. `tries`: numbers of replicas that were tried.
    `records`: what each request did."""

    whole: FleetSide
    prompts: FleetSide | None
    router: str
    load: ServeLoad
    seconds: float
    ttft: FleetSpread
    tpot: FleetSpread
    e2e: FleetSpread
    ttft_limit: float | None
    tpot_limit: float | None
    kept: float
    paced: bool
    prefix_hits: float
    preempted: int
    failures: int
    resent: int
    dollars: float | None
    joules: float | None
    series: FleetSeries
    scaler: Autoscaler | None
    tries: tuple[FleetTry, ...]
    notes: tuple[str, ...]
    records: RequestRecords

    @property
    def sides(self) -> tuple[FleetSide, ...]:
        """All kinds of replicas."""
        return (self.whole,) if self.prompts is None else (self.prompts, self.whole)

    @property
    def gpus(self) -> int:
        """GPUs at most."""
        return sum(side.gpus for side in self.sides)

    @property
    def gpu_hours(self) -> float:
        """GPU hours of the load."""
        return sum(side.gpu_hours for side in self.sides)

    @property
    def requests(self) -> int:
        return len(self.load)

    @property
    def requests_per_s(self) -> float:
        return self.requests / self.seconds

    @property
    def tokens(self) -> float:
        """Output tokens."""
        return float(self.load.output.sum())

    @property
    def tokens_per_s_gpu(self) -> float:
        """Output tokens a second of a GPU, over the GPU hours."""
        return self.tokens / (3600.0 * self.gpu_hours)

    @property
    def dollars_an_hour(self) -> float | None:
        return None if self.dollars is None else self.dollars * 3600.0 / self.seconds

    @property
    def dollars_per_million(self) -> float | None:
        """Dollars of a million output tokens."""
        return None if self.dollars is None else self.dollars * 1e6 / self.tokens

    def relative_errors(self) -> dict[str, float | None]:
        """The error to state of a latency: that of single servers of its kind; no fleet was compared."""
        found = servers_like(server_kind(self.whole.server, self.prompts is not None))
        names = ("ttft", "tpot", "throughput")
        return {
            name: None if found is None or (name == "throughput" and self.paced) else found.figures[name].error for name in names
        }

    def as_dict(self) -> dict[str, Any]:
        """Plain data with stable keys, SI units."""
        server, series = self.whole.server, self.series
        return {
            "schema": SCHEMA,
            "model": server.model.name,
            "engine": server.engine.name,
            "formats": {"weights": server.formats, "kv": server.kv},
            "router": self.router,
            "replicas": self.whole.replicas,
            "gpus": self.gpus,
            "whole": self.whole.as_dict(),
            "prompts": None if self.prompts is None else self.prompts.as_dict(),
            "requests": self.requests,
            "seconds": self.seconds,
            "requests_per_s": self.requests_per_s,
            "tokens_per_s": self.tokens / self.seconds,
            "tokens_per_s_gpu": self.tokens_per_s_gpu,
            **{name: asdict(getattr(self, name)) for name in ("ttft", "tpot", "e2e")},
            "limits": {"ttft": self.ttft_limit, "tpot": self.tpot_limit, "kept": self.kept},
            "ttft_p90": self.ttft.p90,
            "tpot_p90": self.tpot.p90,
            "busy": self.whole.busy,
            "paced": self.paced,
            "prefix_hits": self.prefix_hits,
            "preempted": self.preempted,
            "failures": self.failures,
            "resent": self.resent,
            "gpu_hours": self.gpu_hours,
            "dollars": self.dollars,
            "dollars_an_hour": self.dollars_an_hour,
            "dollars_per_million_tokens": self.dollars_per_million,
            "joules_per_million_tokens": None if self.joules is None else self.joules * 1e6 / self.tokens,
            "autoscaler": None if self.scaler is None else asdict(self.scaler),
            "series": {name: getattr(series, name).tolist() for name in ("times", "rate", "there", "waiting", "replicas")},
            "tries": [asdict(each) for each in self.tries],
            "relative_errors": self.relative_errors(),
            "notes": list(self.notes),
        }
