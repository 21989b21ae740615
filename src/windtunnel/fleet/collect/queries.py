"""HTTP queries: JSON for small answers, an Arrow IPC stream for columns (`?format=arrow`). Steps and ranks are given as `a:b` (b
excluded) or as comma-separated numbers.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, fields
from typing import Any

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from windtunnel.base.errors import SpecError, WindtunnelError
from windtunnel.fleet.collect.collector import Collector
from windtunnel.fleet.collect.store import RunStore
from windtunnel.fleet.query_results import IdSelection, StepSummaries
from windtunnel.records.sections import COLUMNS, Sections

JUDGED_STEPS = 100
"""Number of last steps that `findings` evaluates by default."""


def query_routes(collector: Collector) -> list[Route]:
    """Routes that answer from the collector's folder."""
    store = RunStore(collector.folder, collector.index.url)
    policy = collector.policy

    def route(name: str, answer: Callable[[Request], Response]) -> Route:
        async def endpoint(request: Request) -> Response:
            try:
                return await run_in_threadpool(answer, request)
            except WindtunnelError as error:
                return _json({"error": str(error)}, 400)

        return Route(f"/v1/{name}", endpoint)

    def columns(
        ask: Callable[[IdSelection, IdSelection], Sections | StepSummaries], names: list[str]
    ) -> Callable[[Request], Response]:
        def answer(request: Request) -> Response:
            found = ask(_parse_selection(request, "steps"), _parse_selection(request, "ranks"))
            if len(found) > policy.answer_rows:
                raise SpecError("steps", f"{len(found)} rows", f"up to {policy.answer_rows} rows", "Ask for fewer steps or ranks.")
            if request.query_params.get("format", "json") == "arrow":
                return Response(_arrow(found, names), media_type="application/vnd.apache.arrow.stream")
            if len(found) > policy.json_rows:
                raise SpecError("format", "json", "arrow", f"{len(found)} rows are too many for JSON.")
            return _json(_as_lists(found, names))

        return answer

    return [
        route("sections", columns(store.sections, list(COLUMNS))),
        route("summaries", columns(store.summaries, [field.name for field in fields(StepSummaries)])),
        route("heartbeats", lambda _: _json([asdict(beat) for beat in store.heartbeats()])),
        route("groups", lambda _: _json(store.groups())),
        route("hosts", lambda _: _json({str(rank): host for rank, host in store.hosts().items()})),
        route("facts", lambda _: _json(store.facts())),
        route("overview", lambda _: _json({**store.overview(), "now": time.time()})),
        route("findings", lambda request: _json(_findings(store, _parse_selection(request, "steps")))),
        route("exchanges", lambda _: _json(store.exchanges())),
    ]


def _findings(store: RunStore, steps: IdSelection) -> dict[str, Any]:
    """Findings of `findings.judge` about the run as it is now, for `steps` or the last `JUDGED_STEPS`, on one clock."""
    from windtunnel.fleet.findings.clocks import align, clocks_of  # imported here, because only this query needs SciPy
    from windtunnel.fleet.findings.judge import judge

    last = max((beat.step for beat in store.heartbeats()), default=-1)
    sections = store.sections(range(max(last - JUDGED_STEPS + 1, -1), 1 << 40) if steps is None else steps)
    if len(set(sections.hosts.values())) > 1 and len(sections):
        sections = align(sections, clocks_of(sections, store.exchanges() or None, bounds=False))
    return {"step": last, "findings": [one.as_dict() for one in judge(sections, store.overview()["meshes"]).findings]}


def _parse_selection(request: Request, name: str) -> IdSelection:
    text = request.query_params.get(name)
    if text is None:
        return None
    try:
        if ":" in text:
            low, high = text.split(":")
            return range(int(low or 0), int(high or 1 << 40))
        return sorted({int(part) for part in text.split(",")})
    except ValueError as error:
        raise SpecError(name, text, "a:b, or numbers with commas", f"For example {name}=10:20.") from error


def _tables(found: Sections | StepSummaries) -> dict[str, Any]:
    if isinstance(found, StepSummaries):
        return {}
    return {
        "names": found.names, "groups": found.groups, "group_names": found.group_names,
        "hosts": {str(rank): host for rank, host in found.hosts.items()}, "zero": found.zero,
    }  # fmt: skip


def _as_lists(found: Sections | StepSummaries, names: list[str]) -> dict[str, Any]:
    """Columns as lists; unknown numbers are null."""
    values = {}
    for name in names:
        column: Any = getattr(found, name)
        values[name] = [None if one != one else one for one in column.tolist()]
    return {"columns": values, **_tables(found)}


def _arrow(found: Sections | StepSummaries, names: list[str]) -> bytes:
    """An Arrow IPC stream; the tables besides the columns are JSON in the schema's metadata under "windtunnel"."""
    import pyarrow as pa

    table = pa.table({name: getattr(found, name) for name in names})
    table = table.replace_schema_metadata({b"windtunnel": msgspec.json.encode(_tables(found))})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _json(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")
