"""A Grafana dashboard of a job's metrics."""

from __future__ import annotations

from typing import Any

_JOB, _COLLECTOR = "windtunnel_job_", "windtunnel_collector_"
_PANELS = [
    ("Step", "stat", "none", [(f"{_JOB}step", "step")]),
    ("Seconds of a step", "timeseries", "s", [(f"{_JOB}step_seconds", "step")]),
    ("Tokens a second", "timeseries", "none", [(f"{_JOB}tokens_per_second", "tokens")]),
    ("Ranks by state", "timeseries", "none", [(f"{_JOB}ranks", "{{process}}")]),
    ("Own time of the ranks with most", "timeseries", "s", [(f"topk(8, {_JOB}rank_own_seconds)", "rank {{rank}} {{host}}")]),
    ("Waiting of the ranks with least", "timeseries", "s", [(f"bottomk(8, {_JOB}rank_waiting_seconds)", "rank {{rank}} {{host}}")]),
    ("Waiting for data", "timeseries", "s", [(f"topk(8, {_JOB}rank_data_seconds)", "rank {{rank}} {{host}}")]),
    ("Late at calls", "timeseries", "s", [(f"topk(8, {_JOB}rank_late_seconds)", "rank {{rank}} {{host}}")]),
    ("Slow ranks", "timeseries", "percentunit", [(f"{_JOB}rank_slow_ratio > 0", "rank {{rank}} {{host}}")]),
    ("What findings cost each step", "timeseries", "s", [(f"{_JOB}finding_cost_seconds", "{{verdict}} {{ranks}}")]),
    ("Findings", "timeseries", "none", [(f"{_JOB}findings", "{{verdict}}")]),
    ("Alarms", "timeseries", "none", [(f"increase({_JOB}alarms_total[5m])", "{{verdict}}")]),
    ("Since the last alarm", "stat", "s", [(f"time() - {_JOB}last_alarm_timestamp_seconds", "{{verdict}}")]),
    ("Incidents", "timeseries", "none", [
        (f"increase({_JOB}incidents_total[5m])", "{{class}}"), (f"{_JOB}incident_attempt", "attempt"),
    ]),
    ("Silent for", "timeseries", "s", [(f"{_COLLECTOR}oldest_report_seconds", "the rank silent longest")]),
    ("Rows lost and reduced", "timeseries", "none", [(f"{_COLLECTOR}rows_lost", "lost"), (f"{_COLLECTOR}rows_reduced", "reduced")]),
    ("Collector", "timeseries", "none", [
        (f"{_COLLECTOR}backlog_bytes", "bytes not compacted"), (f"{_COLLECTOR}dead_letters", "dead letters"),
        (f"{_COLLECTOR}compaction_failures", "failed compactions"), (f"{_JOB}up", "job figures are read"),
    ]),
]  # fmt: skip
_WIDTH, _HEIGHT, _COLUMNS = 8, 7, 3


def grafana_dashboard() -> dict[str, Any]:
    """The dashboard as Grafana imports it (schema version 39). It asks for the Prometheus data source, and has a variable for the
    instance where several collectors are scraped."""
    panels = [_panel(number, *one) for number, one in enumerate(_PANELS)]
    instance = {
        "name": "instance", "type": "query", "datasource": _source(), "query": f"label_values({_JOB}up, instance)",
        "refresh": 2, "includeAll": False, "multi": False,
    }  # fmt: skip
    source = {"name": "datasource", "type": "datasource", "query": "prometheus"}
    return {
        "title": "windtunnel: a training job", "uid": "windtunnel-job", "schemaVersion": 39, "editable": True, "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"}, "templating": {"list": [source, instance]}, "panels": panels,
        "tags": ["windtunnel"],
    }  # fmt: skip


def _panel(number: int, title: str, kind: str, unit: str, queries: list[tuple[str, str]]) -> dict[str, Any]:
    place = {"x": number % _COLUMNS * _WIDTH, "y": number // _COLUMNS * _HEIGHT, "w": _WIDTH, "h": _HEIGHT}
    targets = [
        {"refId": chr(65 + at), "expr": _of_instance(expression), "legendFormat": legend, "datasource": _source()}
        for at, (expression, legend) in enumerate(queries)
    ]
    return {
        "id": number + 1, "title": title, "type": kind, "gridPos": place, "datasource": _source(), "targets": targets,
        "fieldConfig": {"defaults": {"unit": unit, "min": 0 if unit != "none" else None}, "overrides": []},
    }  # fmt: skip


def _of_instance(expression: str) -> str:
    """The expression for the chosen instance: a selector after the name of its metric."""
    import re

    return re.sub(r"(windtunnel_\w+)", r'\1{instance="$instance"}', expression)


def _source() -> dict[str, str]:
    return {"type": "prometheus", "uid": "${datasource}"}
