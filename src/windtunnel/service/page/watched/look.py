"""One look at a watched run, as a process of its own: `python -m windtunnel.service.page.watched.look` reads what is asked from its
input, and writes what it found to its output, both JSON.

It reads the run that the operator named and nothing else of the machine: what a visitor adds (a job and its changes) cannot lead it
elsewhere. A run at a collector's address needs the network, so that such a look takes nothing from a visitor.
"""

from __future__ import annotations

import base64
import json
import os
import resource
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.base.errors import WindtunnelError
from windtunnel.service.store.queue import error_table
from windtunnel.service.work.confine import confine, installation
from windtunnel.service.work.outcome import explain

MEMORY, CPU_SECONDS = 4 << 30, 120
"""Limits of a look: bytes of address space, and seconds of work."""
STEPS = 200
"""Steps that a look reads: the last ones."""
MOST_LINES = 96
"""Lines of the heat map; more ranks share lines, of which each shows its slowest rank."""
MOST_SHOWN = 512
"""Ranks, incidents and saves that are told."""


def look_at(asked: Mapping[str, Any]) -> dict[str, Any]:
    """What a run's records say. `asked`: `where`, `scratch` (an empty folder), and maybe `job` (a name or a table) with
    `set`. Parts that a run does not have are None; a part that fails is {"error": …}."""
    where = str(asked["where"])
    found: dict[str, Any] = {"watched": _part(lambda: _watched_run(where))}
    folder = Path(where)
    if folder.is_dir():
        found["incidents"] = _part(lambda: _incidents(folder))
        found["saves"] = _part(lambda: _saves(folder))
        if asked.get("job"):
            found["compared"] = _part(lambda: _compared_run(folder, asked["job"], dict(asked.get("set") or {})))
    return found


def _part(work: Any) -> Any:
    try:
        return work()
    except WindtunnelError as error:
        return {"error": dict(explain(error))}


def _watched_run(where: str) -> dict[str, Any]:
    from windtunnel.fleet.api import judge_run
    from windtunnel.fleet.monitor import has_ended
    from windtunnel.fleet.sources import alarms_of
    from windtunnel.runs.fleet.show import fleet_dict, fleet_notes
    from windtunnel.runs.fleet.view import bin_steps, flows_of, mesh_of

    judged = judge_run(where, STEPS)
    recorded, table = judged.recorded, judged.judgement.table
    shown = fleet_dict(recorded, judged.judgement, judged.hang)
    shown["ranks"] = sorted(shown["ranks"], key=lambda one: -(one["excess"] or 0.0))[:MOST_SHOWN]
    ranks = [int(rank) for rank in table.ranks]
    return {
        **shown, "notes": fleet_notes(recorded, judged.clocks), "ended": has_ended(recorded), "now": recorded.now,
        "alarms": alarms_of(where)[-MOST_SHOWN:], "bins": bin_steps(table), "heat": _heat(table),
        "pace": _by_bin(np.nanmax, table.step), "first_step": int(table.steps[0]) if len(table.steps) else 0,
        "mesh": mesh_of(recorded.meshes, ranks, recorded.sections) if ranks else None,
        "mesh_ranks": ranks, "flows": flows_of(recorded.sections, table.steps_ended)[:MOST_SHOWN],
    }  # fmt: skip


def _heat(table: Any) -> dict[str, Any]:
    """Lines of ranks, and of each layer its excess over the middle of its role in percent, [lines][bins]; None: not known."""
    from windtunnel.runs.fleet.view import heat_layers

    count = len(table.ranks)
    lines = np.array_split(np.arange(count), min(MOST_LINES, count)) if count else []
    names = [_line_name([int(table.ranks[at]) for at in line], table.hosts[line[0]]) for line in lines]
    layers = {}
    for name, layer in heat_layers(table).items():
        coded = np.frombuffer(base64.b64decode(layer["values"]), np.int8).reshape(count, -1)
        percent = np.where(coded == -128, np.nan, coded * 0.5)
        layers[name] = [_known_values(_slowest(percent[line])) for line in lines]
    return {"lines": names, "layers": layers, "per_line": max((len(line) for line in lines), default=1)}


def _slowest(values: Any) -> Any:
    return np.where(np.isnan(values).all(0), np.nan, np.nanmax(np.where(np.isnan(values), -np.inf, values), axis=0))


def _line_name(ranks: list[int], host: str) -> str:
    return f"{ranks[0]} · {host}" if len(ranks) == 1 else f"{ranks[0]}–{ranks[-1]}"


def _known_values(values: Any) -> list[float | None]:
    return [None if not np.isfinite(one) else round(float(one), 2) for one in values]


def _by_bin(fold: Any, values: Any) -> list[float | None]:
    """Of [R, S] the fold over ranks and the steps of each bin."""
    from windtunnel.runs.fleet.view import MOST_BINS

    parts = np.array_split(values, min(MOST_BINS, values.shape[1]), axis=1) if values.shape[1] else []
    return [round(float(fold(part)), 6) if np.isfinite(part).any() else None for part in parts]


def _incidents(folder: Path) -> dict[str, Any] | None:
    from windtunnel.records.incidents import FILE, read_incidents
    from windtunnel.runs.fleet.kept import fleet_run

    if not (folder / FILE).is_file():
        return None
    listed = read_incidents(folder)
    try:
        run = fleet_run(folder)
        told, began = run.as_dict(), run.began
    except WindtunnelError:  # no step has ended
        began = listed[0].began if listed else 0.0
        told = {"ettr": None, "wall_s": None, "parts": {}, "incidents": [
            {"number": one.number, "what": one.what, "node": one.node, "action": one.action, "outcome": one.outcome,
             "evidence": one.evidence, "down_s": one.seconds.down, "replay_s": None} for one in listed]}  # fmt: skip
    moments = {one.number: (one.began - began, one.ended - began) for one in listed}
    for one in told["incidents"]:
        one["from_s"], one["to_s"] = moments.get(one["number"], (None, None))
    told["incidents"] = told["incidents"][-MOST_SHOWN:]
    return told


def _saves(folder: Path) -> list[dict[str, Any]] | None:
    """Saves of checkpoints, the newest last: the step, when, the longest that a rank was held up, and whether all ranks that saved
    have committed it."""
    from windtunnel.records.checkpoint_events import read_rank_events

    steps: dict[int, dict[str, Any]] = {}
    for events in read_rank_events(folder):
        for event in events:
            if event.event in ("save", "commit", "failed"):
                one = steps.setdefault(event.step, {"step": event.step, "unix": event.unix, "blocked_s": 0.0, "saved": 0,
                                                    "committed": 0, "failed": 0, "why": ""})  # fmt: skip
                one["unix"] = max(one["unix"], event.unix)
                one["blocked_s"] = max(one["blocked_s"], event.blocking_seconds or 0.0)
                one[{"save": "saved", "commit": "committed", "failed": "failed"}[event.event]] += 1
                one["why"] = event.why or one["why"]
    return [steps[step] for step in sorted(steps)][-MOST_SHOWN:] or None


def _compared_run(folder: Path, job: Any, changes: dict[str, str]) -> dict[str, Any]:
    from windtunnel.runs.api import compare_fleet
    from windtunnel.spec import load_job

    overrides = [f"{name}={value}" for name, value in changes.items()]
    return compare_fleet(folder, load_job(job, overrides), last=STEPS).as_dict()


def main() -> None:
    """Looks once."""
    asked = json.loads(sys.stdin.buffer.read())
    out = os.fdopen(os.dup(1), "wb")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 1))
    scratch, where = Path(asked["scratch"]), Path(str(asked["where"]))
    os.chdir(scratch)
    if where.is_dir():
        confine(scratch, [*installation(), where])
    try:
        found = look_at(asked)
    except MemoryError:
        found = {"error": error_table("MemoryLimit", f"the run needs more than {MEMORY >> 30} GB to be judged.")}
    out.write(json.dumps(found, default=str).encode())
    out.close()


if __name__ == "__main__":
    main()
