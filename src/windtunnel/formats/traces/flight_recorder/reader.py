"""Dumps of the flight recorder as a run, and the first call that went wrong.

A dump has `pg_config` (process groups with their ranks), `entries` (the last calls in the order in which they were enqueued) and
`pg_status`; see torch/csrc/distributed/c10d/FlightRecorder.hpp of PyTorch.

Pickles of plain data: no name is looked up and nothing is called, whatever the file says.

The first call that not all ranks of its group enqueued, or that they enqueued differently.

Dumps of the flight recorder as what each rank was in, for the analysis of hangs.

A dump lists calls that were enqueued and, by state or by absence, those that ended: newer recorders drop a call when it is
retired, so a number below the first pending one of its group is over. `pg_status` says the same in three numbers where the version
writes it.

What an entry of a dump says of itself; entries come from strangers, so that anything may be of another type.
"""

from __future__ import annotations

import io
import json
import math
import pickle
import pickletools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.base.comm import Comm
from windtunnel.base.errors import FileError
from windtunnel.base.files import read_plain
from windtunnel.base.units import show_counted
from windtunnel.fleet.findings.hang import HangReport, PendingCall, RankState, hang_report
from windtunnel.formats.reading import Content, Reading
from windtunnel.formats.traces.kineto.calls import element_bytes, ranks_of, total_bytes
from windtunnel.records.kernel_classes import comm_of
from windtunnel.records.run import EventKind, Events, RankTrace, Run, Steps

LARGEST = 256 * 1024 * 1024


def read_dumps(files: Sequence[Path]) -> Reading:
    """The dumps of a job. FileError where none can be read."""
    dumps: dict[int, dict[str, Any]] = {}
    names: dict[int, str] = {}
    broken, assumed = [], []
    for path in files:
        try:
            dump = _dump(path)
        except FileError as error:
            if len(files) == 1:
                raise
            broken.append(str(error))
            continue
        rank, certain = _rank(dump, path, dumps)
        if not certain:
            assumed.append(f"{path.name}: rank {rank}")
        dumps[rank], names[rank] = dump, str(path)
    if not dumps:
        raise FileError(
            str(files[0]), "no dump that can be read", "dumps of PyTorch's NCCL flight recorder", broken[0] if broken else ""
        )
    created = [time_of(e) for dump in dumps.values() for e in dump["entries"]]
    zero = min((at for at in created if at == at), default=0.0)
    traces = tuple(_trace(rank, dumps[rank], zero, names[rank]) for rank in sorted(dumps))
    facts = {
        "ranks": len(dumps),
        "entries": sum(len(dump["entries"]) for dump in dumps.values()),
        "groups": len({str(name) for dump in dumps.values() for name in dump["pg_config"]}),
        "first_mismatch": first_mismatch(dumps),
        "hang": hang_of(dumps).as_dict() if any(map(has_pending, dumps.values())) else None,
        "per_rank": {str(rank): _counts(dumps[rank]) for rank in sorted(dumps)},
    }
    named = {rank for dump in dumps.values() for group in dump["pg_config"].values() for rank in ranks_of(group.get("ranks"))}
    if facts["hang"] is not None and (lost := len(named - set(dumps))):
        assumed.append(f"{lost} of {len(named)} ranks left no dump here, so they look like culprits: import the dumps of all ranks")
    run = Run(Steps.of([], []), traces, {"nccl": str(next(iter(dumps.values())).get("nccl_version", ""))}, str(files[0]))
    built = (f"a run of {show_counted(len(dumps), 'rank')} with the calls that they had enqueued",)
    return Reading("flight-recorder", Content.RUN, run, facts, built, ("stack frames",), tuple(assumed), tuple(broken))


def _dump(path: Path) -> dict[str, Any]:
    data = read_plain(path, LARGEST, "a dump of the flight recorder")
    if data[:1] == b"\x80":
        value = load_plain(str(path), data)
    else:
        try:
            value = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise FileError(str(path), "broken JSON", "a dump of the flight recorder", f"{error}.") from None
    if isinstance(value, list) and any(isinstance(one, dict) for one in value):
        value = {"entries": value}
    if not isinstance(value, dict):
        raise FileError(str(path), f"a {type(value).__name__}", "a table with `pg_config` and `entries`")
    entries, config = value.get("entries", []), value.get("pg_config", {})
    kept = [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    kept = [{"collective_seq_id": entry.get("seq_id"), **entry} for entry in kept]
    groups = {str(k): v for k, v in config.items() if isinstance(v, dict)} if isinstance(config, dict) else {}
    return {**value, "entries": kept, "pg_config": groups}


def _rank(dump: Mapping[str, Any], path: Path, taken: Mapping[int, object]) -> tuple[int, bool]:
    """The rank of a dump, and whether it is certain: the file's last number, where the dump's groups allow it."""
    listed = [set(ranks_of(group.get("ranks"))) for group in dump["pg_config"].values()]
    listed = [ranks for ranks in listed if ranks]
    possible = set.intersection(*listed) if listed else set()
    numbers = re.findall(r"\d{1,7}", path.name)
    named = int(numbers[-1]) if numbers else -1
    if named >= 0 and named not in taken and (not possible or named in possible):
        return named, True
    free = sorted(possible - set(taken))
    if free:
        return free[0], len(possible) == 1
    return next(rank for rank in range(len(taken) + 1) if rank not in taken), False


def _trace(rank: int, dump: Mapping[str, Any], zero: float, source: str) -> RankTrace:
    entries = sorted(dump["entries"], key=lambda e: time_of(e) if time_of(e) == time_of(e) else math.inf)
    names: dict[str, int] = {}
    groups: dict[str, int] = {}
    config = dump["pg_config"]
    rows = []
    for entry in entries:
        name = str(entry.get("profiling_name", ""))
        group = group_of(entry)[0]
        ranks = ranks_of(config.get(group, {}).get("ranks"))
        if ranks:
            groups.setdefault(group, len(groups))
        comm = comm_of(name.split(":", 1)[-1])
        start, end = entry.get("time_discovered_started_ns"), entry.get("time_discovered_completed_ns")
        seconds = max((end - start) * 1e-9, 0.0) if is_number(start) and is_number(end) else 0.0
        at = time_of(entry)
        rows.append(
            (
                names.setdefault(name, len(names)), at - zero if at == at else 0.0, seconds, int(comm),
                _bytes(entry, comm, len(ranks)),
                groups.get(group, -1), number_of(entry.get("collective_seq_id")),
                peer_of(name, ranks, rank),
            )
        )  # fmt: skip
    columns = list(zip(*rows, strict=True)) if rows else [()] * 8
    count = len(rows)
    none = np.full(count, -1, np.int64)
    events = Events(
        np.full(count, EventKind.CALL, np.uint8), np.array(columns[0], np.int32), np.zeros(count, np.int32),
        np.array(columns[1], np.float64), np.array(columns[2], np.float64), none, none, np.array(columns[3], np.uint8),
        np.array(columns[4], np.float64), np.array(columns[5], np.int32), np.array(columns[6], np.int64),
        np.array(columns[7], np.int32), tuple(names), tuple(ranks_of(config[g].get("ranks")) for g in groups),
        tuple(str(config[g].get("desc", "")) for g in groups),
    )  # fmt: skip
    world = max((len(ranks_of(group.get("ranks"))) for group in config.values()), default=0)
    return RankTrace(rank, events, zero, "", world, source)


def _bytes(entry: Mapping[str, Any], comm: Comm, size: int) -> float:
    sent, received = (_side(entry, side) for side in ("input", "output"))
    return total_bytes(comm, sent, received, size) if comm is not Comm.NONE else float("nan")


def _side(entry: Mapping[str, Any], side: str) -> float:
    sizes, kinds = entry.get(f"{side}_sizes"), entry.get(f"{side}_dtypes")
    if not isinstance(sizes, (list, tuple)) or not isinstance(kinds, (list, tuple)):
        return float("nan")
    total = 0.0
    for shape, kind in zip(sizes, kinds, strict=False):
        if not isinstance(shape, (list, tuple)) or not all(is_number(extent) for extent in shape):
            return float("nan")
        total += float(np.prod([float(extent) for extent in shape])) * element_bytes(kind)
    return total


def _counts(dump: Mapping[str, Any]) -> dict[str, Any]:
    entries = dump["entries"]
    times = [int(e["time_created_ns"]) for e in entries if is_number(e.get("time_created_ns"))]
    facts: dict[str, Any] = {
        "entries": len(entries),
        "states": dict(Counter(str(e.get("state")) for e in entries)),
        "names": dict(Counter(str(e.get("profiling_name", "")).split(" ")[0] for e in entries)),
        "pgs": len(dump["pg_config"]),
        "groups_in_entries": sorted({group_of(e)[1] for e in entries}),
        "version": str(dump.get("version", "")),
        "nccl": str(dump.get("nccl_version", "")),
        "has_frames": any("frames" in e for e in entries),
    }
    if times:
        facts["created_ns"] = [min(times), max(times)]
    if entries:
        last = entries[-1]
        facts["last"] = {
            "pg": list(group_of(last)), "name": str(last.get("profiling_name", "")), "seq":
            number_of(last.get("collective_seq_id")), "state": str(last.get("state")), "sizes": last.get("input_sizes"),
        }  # fmt: skip
    return facts


_WANTED = "a pickle of plain data: numbers, texts, lists and tables"
_REFUSED = frozenset(
    {
        "GLOBAL",
        "STACK_GLOBAL",
        "INST",
        "OBJ",
        "REDUCE",
        "NEWOBJ",
        "NEWOBJ_EX",
        "BUILD",
        "EXT1",
        "EXT2",
        "EXT4",
        "PERSID",
        "BINPERSID",
    }
)
_MEMO = frozenset({"PUT", "BINPUT", "LONG_BINPUT"})


class _Plain(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("it refers to something outside")


def load_plain(name: str, data: bytes) -> Any:
    """The value of a pickle. FileError for one that is broken or would run or import anything."""
    try:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(data)):
            if opcode.name in _REFUSED:
                raise pickle.UnpicklingError(f"it holds the opcode {opcode.name}")
            if opcode.name in _MEMO and int(argument or 0) > count:  # the unpickler would reserve memory up to that number
                raise pickle.UnpicklingError(f"it numbers an object {argument}")
        return _Plain(io.BytesIO(data)).load()
    except FileError:
        raise
    except Exception as error:  # a broken pickle raises nearly anything
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise FileError(name, "a pickle that cannot be read", _WANTED, f"{reason}.") from None


_Call = tuple[str, int]


def first_mismatch(dumps: Mapping[int, Mapping[str, Any]]) -> dict[str, Any] | None:
    """The earliest of the collectives that a rank of the group lacks (with later ones on other ranks), or has as another call.

    A rank lacks a call if its last of that group has a lower number: what was enqueued long ago has left the recorder's buffer.
    None where all agree. Later mismatches follow from the first as a rule: the ranks that lack it are the ones to look at.
    """
    calls: dict[_Call, dict[int, Mapping[str, Any]]] = {}
    last: dict[tuple[str, int], int] = {}
    ranks: dict[str, tuple[int, ...]] = {}
    for rank, dump in dumps.items():
        for name, group in dump["pg_config"].items():
            if listed := ranks_of(group.get("ranks")):
                ranks[str(name)] = listed
        for entry in dump["entries"]:
            number, group_name = entry.get("collective_seq_id"), group_of(entry)[0]
            if entry.get("is_p2p") or not isinstance(number, int):
                continue
            calls.setdefault((group_name, number), {})[rank] = entry
            last[group_name, rank] = max(last.get((group_name, rank), -1), number)
    wrong = []
    for (group_name, number), entries in calls.items():
        members = [rank for rank in ranks.get(group_name, ()) if rank in dumps]
        missing = [rank for rank in members if rank not in entries and last.get((group_name, rank), -1) < number]
        kinds = {str(entry.get("profiling_name")) for entry in entries.values()}
        if missing or len(kinds) > 1:
            created = [entry.get("time_created_ns") for entry in entries.values()]
            known = [at for at in created if isinstance(at, (int, float))]
            wrong.append((min(known, default=float("inf")), group_name, number, missing, sorted(kinds), entries))
    if not wrong:
        return None
    _, group_name, number, missing, names, entries = min(wrong, key=lambda one: one[:3])
    entry = next(iter(entries.values()))
    group = entry.get("process_group")
    return {
        "group": group_name,
        "description": str(group[1]) if isinstance(group, (list, tuple)) and len(group) > 1 else "",
        "op": names[0] if len(names) == 1 else names,
        "sequence": number,
        "sizes": entry.get("input_sizes"),
        "dtypes": entry.get("input_dtypes"),
        "missing_ranks": missing,
        "of_ranks": list(ranks.get(group_name, ())),
    }


def hang_of(dumps: Mapping[int, Mapping[str, Any]]) -> HangReport:
    """Who holds the job of these dumps up."""
    groups: dict[str, tuple[int, ...]] = {}
    labels: dict[str, str] = {}
    for dump in dumps.values():
        for name, group in dump["pg_config"].items():
            if ranks := ranks_of(group.get("ranks")):
                groups[str(name)] = ranks
                labels[str(name)] = f"group {name} ({group['desc']})" if group.get("desc") else f"group {name}"
    states = {rank: _state(rank, dump, groups, labels) for rank, dump in dumps.items()}
    return hang_report(states, {labels[name]: ranks for name, ranks in groups.items()})


def has_pending(dump: Mapping[str, Any]) -> bool:
    """Whether a dump has a call that has not ended."""
    return any(not _has_ended(entry) for entry in dump["entries"])


def _has_ended(entry: Mapping[str, Any]) -> bool:
    return entry.get("state") == "completed" or bool(entry.get("retired"))


def _state(rank: int, dump: Mapping[str, Any], groups: Mapping[str, tuple[int, ...]], labels: Mapping[str, str]) -> RankState:
    pending: list[PendingCall] = []
    begun: dict[str, int] = {}
    first: dict[str, int] = {}  # first pending number of a group
    finished: dict[str, int] = {}
    for entry in sorted(dump["entries"], key=lambda one: number_of(one.get("record_id"))):
        name = group_of(entry)[0]
        label = labels.get(name, f"group {name}")
        number = number_of(entry.get("collective_seq_id"))
        over = _has_ended(entry)
        point = bool(entry.get("is_p2p"))
        if not point and number >= 0:
            begun[label] = max(begun.get(label, -1), number)
            if over:
                finished[label] = max(finished.get(label, -1), number)
            else:
                first.setdefault(label, number)
        if not over:
            text = str(entry.get("profiling_name", ""))
            comm = comm_of(text.split(":", 1)[-1])
            peer = peer_of(text, groups.get(name, ()), rank) if point else -1
            pending.append(PendingCall(label, number, Comm(comm), text.split(" ")[0], peer, "send" in text, time_of(entry)))
    for label, number in first.items():
        finished[label] = max(finished.get(label, -1), number - 1)
    status = dump.get("pg_status")
    for name, group in status.items() if isinstance(status, Mapping) else ():
        label = labels.get(str(name), "")
        if isinstance(group, Mapping) and label:
            begun[label] = max(begun.get(label, -1), number_of(group.get("last_enqueued_collective")))
            finished[label] = max(finished.get(label, -1), number_of(group.get("last_completed_collective")))
    doing = f"{pending[0].name} of {pending[0].group}" if pending else ""
    return RankState(rank, tuple(pending), begun, finished, doing=doing)


_PAIR = re.compile(r"(\d{1,7})\s*(->|<-)\s*(\d{1,7})")


def group_of(entry: Mapping[str, Any]) -> tuple[str, str]:
    """Name and description of an entry's group."""
    group = entry.get("process_group")
    if isinstance(group, (list, tuple)) and group:
        return str(group[0]), str(group[1]) if len(group) > 1 else ""
    return str(entry.get("pg_id", "")), ""


def time_of(entry: Mapping[str, Any]) -> float:
    """Unix seconds at which the call was enqueued; NaN unknown."""
    created: Any = entry.get("time_created_ns")
    return float(created) * 1e-9 if is_number(created) else float("nan")


def peer_of(name: str, ranks: tuple[int, ...], own: int) -> int:
    """The other end of `nccl:send 3->0`; the numbers count within the group. -1 unknown."""
    match = _PAIR.search(name)
    if match is None:
        return -1
    ends = [ranks[int(end)] if int(end) < len(ranks) else -1 for end in (match[1], match[3])]
    return next((end for end in ends if end >= 0 and end != own), -1)


def is_number(value: object) -> bool:
    """Whether a value is a number of sensible size."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 2**62


def number_of(value: Any) -> int:
    """A number as a whole one; -1 for anything else."""
    return int(value) if is_number(value) else -1
