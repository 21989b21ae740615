"""Prometheus metrics of the job that a collector watches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

JOB_METRICS = {
    "up": "1 if the figures of the job could be read, else 0",
    "info": "1; the run's name and its number of ranks",
    "ranks": "Ranks by the state of their process",
    "step": "Step of the rank that is furthest behind",
    "step_seconds": "Seconds of a step, median of the last 100",
    "tokens_per_second": "Tokens a second, if the run's fact tokens_per_step says how many a step has",
    "rank_own_seconds": "Seconds of a step that a rank computes itself, median of the last 100",
    "rank_waiting_seconds": "Seconds of a step that calls block a rank, median of the last 100",
    "rank_data_seconds": "Seconds of a step that a rank waits for data, median of the last 100",
    "rank_late_seconds": "Seconds by which a rank enters its calls after the median of its group, median of the last 100",
    "rank_slow_ratio": "How much longer a rank computes than its equals, where a finding names it; else 0",
    "findings": "Findings now, by verdict",
    "finding_cost_seconds": "Seconds of every step that a finding costs, by verdict and ranks",
    "alarms_total": "Alarms that were raised, by verdict",
    "last_alarm_timestamp_seconds": "When the last alarm was raised, unix time, by verdict",
    "incidents_total": "Incidents of a kept job, by class",
    "incident_attempt": "Attempt of a kept job in which its last incident was",
}
"""Name, after `windtunnel_job_`, and what it is."""
_OF_RANKS = {
    "rank_own_seconds": "own", "rank_waiting_seconds": "blocked", "rank_data_seconds": "data", "rank_late_seconds": "late",
    "rank_slow_ratio": "slow",
}  # fmt: skip


def job_metrics(figures: Mapping[str, Any] | None) -> Iterator[Any]:
    """Metric families of `job_figures`; None: they could not be read."""
    yield _gauge("up", float(figures is not None))
    if figures is None:
        return
    info = _gauge("info", labels=["run", "world"])
    info.add_metric([str(figures["run"]), str(figures["world"])], 1.0)
    yield info
    yield _by("ranks", "process", figures["states"])
    yield _gauge("step", float(figures["step"]))
    for name in ("step_seconds", "tokens_per_second"):
        if figures[name] is not None:
            yield _gauge(name, float(figures[name]))
    for name, key in _OF_RANKS.items():
        family = _gauge(name, labels=["rank", "host"])
        for rank in figures["ranks"]:
            if rank[key] is not None:
                family.add_metric([str(rank["rank"]), str(rank["host"])], float(rank[key]))
        yield family
    yield from _of_findings(figures)


def _of_findings(figures: Mapping[str, Any]) -> Iterator[Any]:
    counts: dict[str, float] = {}
    costs: dict[tuple[str, str], float] = {}
    for one in figures["findings"]:
        verdict = str(one["verdict"])
        counts[verdict] = counts.get(verdict, 0.0) + 1
        key = (verdict, ",".join(map(str, one["ranks"])))
        costs[key] = costs.get(key, 0.0) + float(one["cost"])
    yield _by("findings", "verdict", counts)
    cost = _gauge("finding_cost_seconds", labels=["verdict", "ranks"])
    for (verdict, ranks), seconds in costs.items():
        cost.add_metric([verdict, ranks], seconds)
    yield cost
    alarms = CounterMetricFamily("windtunnel_job_alarms", JOB_METRICS["alarms_total"], labels=["verdict"])
    for alarm in figures["alarms"]:
        alarms.add_metric([alarm["verdict"]], float(alarm["count"]))
    yield alarms
    yield _by("last_alarm_timestamp_seconds", "verdict", {alarm["verdict"]: alarm["last"] for alarm in figures["alarms"]})
    incidents = CounterMetricFamily("windtunnel_job_incidents", JOB_METRICS["incidents_total"], labels=["class"])
    for what, count in figures["incidents"].items():
        incidents.add_metric([what], float(count))
    yield incidents
    if figures["incident_attempt"] is not None:
        yield _gauge("incident_attempt", float(figures["incident_attempt"]))


def _gauge(name: str, value: float | None = None, labels: list[str] | None = None) -> Any:
    return GaugeMetricFamily(f"windtunnel_job_{name}", JOB_METRICS[name], value=value, labels=labels)


def _by(name: str, label: str, values: Mapping[str, float]) -> Any:
    family = _gauge(name, labels=[label])
    for key, value in values.items():
        family.add_metric([key], float(value))
    return family
