"""Reads a collected run, during or after collection: sections, summaries, heartbeats, groups and hosts.

Which rows of a run count where a rank has several rings: a job that was started again repeats steps, and another run of the same
folder has steps of the same numbers.
"""

from __future__ import annotations

import errno
import json
import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from windtunnel.base.arrays import Floats, Int64s
from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import FileError
from windtunnel.fleet.batch import Stamps, group_rows
from windtunnel.fleet.collect.compact import (
    EXCHANGE_COLUMNS,
    ROW_COLUMNS,
    SUMMARY_COLUMNS,
    chunks,
    frames_from,
    newest_frames,
    open_columns,
    read_segment_meta,
    summarise_rows,
)
from windtunnel.fleet.collect.index import RunIndex, default_url
from windtunnel.fleet.collect.log import map_file, segment_path, segments
from windtunnel.fleet.collect.registry import Rings, RingState, RunNumbers
from windtunnel.fleet.query_results import Heartbeat, IdSelection, OpenSection, StepSummaries
from windtunnel.fleet.rings import unrecorded_work
from windtunnel.records.sections import Section, Sections

_TRIES = 30
T = TypeVar("T")
LOG = logging.getLogger("windtunnel.fleet.collect")


@dataclass
class _Tail:
    """The run at one moment: the index, and the part of the log that is not in it yet."""

    rings: Rings
    files: Mapping[str, list[Any]]
    open_rows: dict[str, bytes]
    rows: list[dict[str, Int64s]]
    summaries: list[dict[str, Int64s]]
    exchanges: list[tuple[str, int, int, int, int]]


def open_run(folder: str | Path, db: str | None = None) -> RunStore:
    """Opens the run in a collector's folder, while the collector runs or afterwards. `db`: the collector's `--db`. FileError if
    there is none.
    """
    return RunStore(Path(folder), db)


class RunStore:
    """Reads a run. Each query is answered for the current moment."""

    def __init__(self, folder: Path, db: str | None = None) -> None:
        if not (folder / "log").is_dir():
            raise FileError(str(folder), "no run", "a folder that `windtunnel fleet collect --dir` wrote")
        self.folder, self.index = folder, RunIndex(db or default_url(folder), create=False)
        self.damaged: set[str] = set()
        """Files that could not be read, relative to the folder; their rows are left out of answers."""

    def close(self) -> None:
        self.index.close()

    def sections(self, steps: IdSelection = None, ranks: IdSelection = None) -> Sections:
        """Sections of `steps` and `ranks`: those that have ended, and those that each rank was in at its last heartbeat (seconds
        NaN). Of the newest run; of steps that a rank has repeated, those of its newest start.

        `begin` is on the clock of each rank's host; `fleet.findings.clocks.align` converts them to one clock.
        """
        return self._retry(lambda: self._sections(steps, ranks))

    def rows(
        self, steps: IdSelection = None, ranks: IdSelection = None, columns: Collection[str] = tuple(ROW_COLUMNS)
    ) -> dict[str, Any]:
        """Columns of `compact.ROW_COLUMNS` as stored: integers, ns; completed rows only."""
        kinds = {name: kind for name, kind in ROW_COLUMNS.items() if name in columns or name in ("rank", "step")}
        return self._retry(lambda: self._rows(self._read_tail(tables=True), steps, ranks, kinds))

    def summaries(self, steps: IdSelection = None, ranks: IdSelection = None) -> StepSummaries:
        """Counts and durations by rank, step and section; kept longer than sections."""
        return self._retry(lambda: self._summaries(steps, ranks))

    def heartbeats(self) -> list[Heartbeat]:
        """The last heartbeat of the newest ring of each rank, ordered by rank."""
        tail = self._retry(lambda: self._read_tail(tables=True, newest=True))
        names = [str(json.loads(value)) for value in tail.rings.names.values]
        groups = _groups(tail.rings)[0]
        return [_heartbeat(ring, tail.open_rows.get(key, b""), names, groups) for key, ring in _by_rank(tail.rings)]

    def groups(self) -> dict[str, tuple[int, ...]]:
        """Process groups: name → ranks. The ranks are appended to names that occur more than once."""
        names, ranks = _groups(self._retry(lambda: self._read_tail(tables=False)).rings)
        several = {name for name in names if names.count(name) > 1}
        return {f"{name} {list(one)}" if name in several else name: one for name, one in zip(names, ranks, strict=True)}

    def hosts(self) -> dict[int, str]:
        """Rank → the machine on which it runs."""
        return {
            rank: ring.identity.host
            for rank, ring in sorted(newest_rings(self._retry(lambda: self._read_tail(tables=False)).rings).items())
        }

    def facts(self) -> dict[str, Any]:
        """Facts about the job from its rings and from lines of kind "fact" (such as its mesh), the newest of each name."""
        rings = self._retry(lambda: self._read_tail(tables=False)).rings
        found: dict[str, Any] = {}
        for ring in rings.by_number:
            found.update(ring.identity.facts)
        for kind, value in map(json.loads, rings.facts.values):
            found.update(value if isinstance(value, dict) else {kind: value})
        return found

    def overview(self) -> dict[str, Any]:
        """The newest run: name, world, device meshes, facts on which all ranks agree, devices, number of lost rows, and names of
        earlier runs in the folder."""
        rings = self._retry(lambda: self._read_tail(tables=False)).rings
        newest = newest_rings(rings)
        if not newest:
            return {"run": "", "world": 0, "meshes": [], "facts": {}, "lost": 0, "earlier": []}
        lines = list(map(json.loads, rings.facts.values))
        first = rings.by_number[-1].identity
        facts = dict(first.facts)
        for ring in newest.values():
            facts = {key: value for key, value in facts.items() if ring.identity.facts.get(key) == value}
        devices = {ring.identity.device for ring in newest.values()}
        unrecorded = {one for kind, value in lines if kind == "fact" for one in unrecorded_work(value)}
        facts |= {"unseen": sorted(unrecorded)} if unrecorded else {}
        return {
            "run": first.run, "world": first.world, "meshes": [value for kind, value in lines if kind == "mesh"],
            "facts": {**facts, "devices": sorted(devices)}, "lost": sum(ring.beat.lost for ring in newest.values()),
            "earlier": earlier_runs(rings),
        }  # fmt: skip

    def exchanges(self, since: float | None = None) -> dict[str, list[Stamps]]:
        """Timestamps that each node exchanged with the collector; with `since`, those received after this unix time."""
        return self._retry(lambda: self._exchanges(since))

    def _sections(self, steps: IdSelection, ranks: IdSelection) -> Sections:
        tail = self._read_tail(tables=True, first=_first_step(steps))
        tail.rows += _open_rows(tail)
        return _as_sections(keep_newest_attempts(self._rows(tail, steps, ranks), tail.rings), tail.rings)

    def _rows(
        self, tail: _Tail, steps: IdSelection, ranks: IdSelection, columns: Mapping[str, str] = ROW_COLUMNS
    ) -> dict[str, Any]:
        rank_of = np.array([ring.identity.rank for ring in tail.rings.by_number], np.int64)
        parts = [
            self._read_file(file, columns, steps, ranks) for file in tail.files["sections"] if _file_overlaps(file, steps, ranks)
        ]
        for rows in tail.rows:
            rows["rank"] = rank_of[rows["ring"]]
            parts.append(_select_rows({name: rows[name] for name in columns}, steps, ranks))
        return _concatenate(parts, columns)

    def _summaries(self, steps: IdSelection, ranks: IdSelection) -> StepSummaries:
        tail = self._read_tail(tables=True, first=_first_step(steps))
        rank_of = np.array([ring.identity.rank for ring in tail.rings.by_number], np.int64)
        parts = [
            self._read_file(file, SUMMARY_COLUMNS, steps, ranks)
            for file in tail.files["summaries"]
            if _file_overlaps(file, steps, ranks)
        ]
        for rows in [*tail.summaries, *map(summarise_rows, tail.rows)]:
            rows["rank"] = rank_of[rows["ring"]]
            parts.append(_select_rows({name: rows[name] for name in SUMMARY_COLUMNS}, steps, ranks))
        return _as_summaries(_concatenate(parts, SUMMARY_COLUMNS))

    def _exchanges(self, since: float | None) -> dict[str, list[Stamps]]:
        tail = self._read_tail(tables=False)
        least = -(1 << 62) if since is None else round(since * 1e9)
        rows = [*tail.exchanges]
        for file in sorted(tail.files["exchanges"], key=lambda file: -int(file.segment)):
            table = self._read_table(file.path, EXCHANGE_COLUMNS)
            if table is None:
                continue
            columns = table.to_pydict()
            if max(columns["received"]) < least:
                break  # segments follow each other in time
            rows += zip(*(columns[name] for name in EXCHANGE_COLUMNS), strict=True)
        found: dict[str, list[Stamps]] = {}
        for node, *stamps in sorted(row for row in rows if row[2] >= least):
            found.setdefault(node, []).append(Stamps(*stamps))
        return found

    def _read_tail(self, *, tables: bool, first: int = -1, newest: bool = False) -> _Tail:
        """The run now. `tables`: with rows, those of step `first` and later at least; `newest`: only what each rank is in."""
        state = self.index.read()
        files: dict[str, list[Any]] = {"sections": [], "summaries": [], "exchanges": []}
        for file in state.files:
            files[file.kind].append(file)
        tail = _Tail(state.rings, files, dict(state.open_rows), [], [], [])
        log = self.folder / "log"
        raws = [map_file(segment_path(log, number)) for number in segments(log) if number > state.compacted]
        if self.index.last_segment() != state.compacted:  # a segment may have been deleted between the reads of index and log
            raise FileNotFoundError(errno.ENOENT, "compacted meanwhile", str(log))
        for raw in raws:
            words = read_segment_meta(raw, tail.rings, take=True)
            tail.exchanges += words.exchanges
            asked = newest_frames(words) if newest else frames_from(words, first)
            for chunk in chunks(raw, asked, tail.rings) if tables else ():
                tail.rows.append(chunk.rows)
                tail.summaries.append(chunk.summaries)
                tail.open_rows.update(chunk.open_rows)
        return tail

    def _read_file(self, file: Any, columns: Mapping[str, str], steps: IdSelection, ranks: IdSelection) -> dict[str, Any]:
        import pyarrow.compute as pc

        asked = None
        for name, wanted, low, high in (
            ("step", steps, file.first_step, file.last_step),
            ("rank", ranks, file.first_rank, file.last_rank),
        ):
            if wanted is not None and not all(value in wanted for value in (low, high)) or not _is_range(wanted):
                one = _filter_expression(pc.field(name), wanted)
                asked = one if asked is None else asked & one
        table = self._read_table(file.path, columns, asked)
        if table is None:
            return {name: np.zeros(0, kind) for name, kind in columns.items()}
        return _select_rows({name: table.column(name).to_numpy() for name in columns}, *map(_with_gaps, (steps, ranks)))

    def _read_table(self, path: str, columns: Mapping[str, str], asked: Any = None) -> Any:
        """A file's columns, or None if it is damaged: it is told once and left out, so that the rest can be read."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            return pq.read_table(self.folder / path, columns=list(columns), filters=asked)
        except FileNotFoundError:
            raise
        except (pa.ArrowException, OSError) as error:
            if path not in self.damaged:
                self.damaged.add(path)
                LOG.warning("%s is damaged and left out: %s", self.folder / path, str(error).splitlines()[0])
            return None

    def _retry(self, question: Callable[[], T]) -> T:
        """The answer from one consistent state of the run: asked again if a file was compacted or deleted in the meantime."""
        for number in range(_TRIES):
            try:
                return question()
            except FileNotFoundError as error:
                last = error
                time.sleep(min(0.01 * number, 0.2))  # segments may be compacted one after the other
        raise FileError(str(self.folder), f"{last.filename} is missing", "a run whose files are all there")


def _is_range(wanted: IdSelection) -> bool:
    return wanted is None or isinstance(wanted, range)


def _filter_expression(field: Any, wanted: IdSelection) -> Any:
    if isinstance(wanted, range):  # the range may be open: its numbers are never listed
        low, high = _ends(wanted)
        inside = (field >= low) & (field <= high)
        return inside  # of a range with gaps, `_select_rows` then takes every n-th
    return field.isin(sorted(wanted or ()))


def _with_gaps(wanted: IdSelection) -> IdSelection:
    """A range of every n-th number, which the filter of a file does not know; else None."""
    return wanted if isinstance(wanted, range) and abs(wanted.step) != 1 else None


def _file_overlaps(file: Any, steps: IdSelection, ranks: IdSelection) -> bool:
    return _overlaps(steps, file.first_step, file.last_step) and _overlaps(ranks, file.first_rank, file.last_rank)


def _overlaps(wanted: IdSelection, low: int, high: int) -> bool:
    if wanted is None:
        return True
    if not wanted:
        return False
    first, last = _ends(wanted)
    return first <= high and last >= low


def _ends(wanted: range | Collection[int]) -> tuple[int, int]:
    """Smallest and largest of the numbers; (0, -1) of none. An open range has 2**40 of them, so only its ends are looked at."""
    if not wanted:
        return 0, -1
    return (min(wanted[0], wanted[-1]), max(wanted[0], wanted[-1])) if isinstance(wanted, range) else (min(wanted), max(wanted))


def _first_step(steps: IdSelection) -> int:
    return _ends(steps)[0] if steps else -1


def _select_rows(rows: dict[str, Any], steps: IdSelection, ranks: IdSelection) -> dict[str, Any]:
    keep = np.ones(len(rows["rank"]), bool)
    for name, wanted in (("step", steps), ("rank", ranks)):
        if wanted is not None:
            keep &= _is_selected(rows[name], wanted)
    return rows if keep.all() else {name: column[keep] for name, column in rows.items()}


def _is_selected(values: Int64s, wanted: range | Collection[int]) -> Any:
    if isinstance(wanted, range):  # the range may be open: its numbers are never listed
        low, high = _ends(wanted)
        return (values >= low) & (values <= high) & ((values - low) % abs(wanted.step) == 0)
    return np.isin(values, np.asarray(list(wanted), np.int64))


def _concatenate(parts: Sequence[dict[str, Any]], columns: Mapping[str, str]) -> dict[str, Any]:
    return {
        name: np.concatenate([part[name] for part in parts]) if parts else np.zeros(0, np.int64) for name in columns
    }  # fmt: skip


def _open_rows(tail: _Tail) -> Iterator[dict[str, Int64s]]:
    numbers = RunNumbers(tail.rings.by_number)
    for key, raw in tail.open_rows.items():
        if raw:
            rows = open_columns(raw)
            rows["ring"] = np.full(len(rows["step"]), tail.rings.by_key[key].number, np.int64)
            rows["name"] = numbers.names(rows["ring"], rows["name"]).astype(np.int64)
            rows["group"] = numbers.groups(rows["ring"], rows["group"]).astype(np.int64)
            yield rows


def _as_sections(rows: dict[str, Any], rings: Rings) -> Sections:
    zero = int(rows["begin"].min()) // 1_000_000_000 if len(rows["begin"]) else 0
    nanos, host = rows["nanos"], rows["nanos"] + rows["late"]
    names, ranks = _groups(rings)
    return Sections.of(
        rows["rank"], rows["step"], rows["section"], (rows["begin"] - zero * 1_000_000_000) / 1e9, _seconds(nanos),
        host_seconds=_seconds(host), comm=rows["comm"], bytes=np.where(rows["bytes"] < 0, np.nan, rows["bytes"]), name=rows["name"],
        group=rows["group"], call=rows["call"], peer=rows["peer"], sends=rows["sends"], micro_batch=rows["micro_batch"],
        names=tuple(str(json.loads(value)) for value in rings.names.values), groups=ranks, group_names=names,
        hosts={rank: ring.identity.host for rank, ring in newest_rings(rings).items()}, zero=float(zero),
    )  # fmt: skip


def _seconds(nanos: Int64s) -> Floats:
    return np.where(nanos < 0, np.nan, nanos / 1e9)


def _as_summaries(rows: dict[str, Any]) -> StepSummaries:
    if not len(rows["rank"]):
        none = np.zeros(0)
        return StepSummaries(
            none.astype(np.int32), none.astype(np.int64), none.astype(np.uint8), none.astype(np.int64), none, none, none
        )
    order, starts = group_rows(rows["rank"].astype(np.int64), rows["step"].astype(np.int64), rows["section"].astype(np.int64))
    first = order[starts]
    return StepSummaries(
        rows["rank"][first].astype(np.int32), rows["step"][first].astype(np.int64), rows["section"][first].astype(np.uint8),
        np.add.reduceat(rows["count"][order], starts).astype(np.int64), np.add.reduceat(rows["sum"][order], starts) / 1e9,
        np.minimum.reduceat(rows["least"][order], starts) / 1e9, np.maximum.reduceat(rows["most"][order], starts) / 1e9,
    )  # fmt: skip


def _groups(rings: Rings) -> tuple[tuple[str, ...], tuple[tuple[int, ...], ...]]:
    """Names and ranks of the run's groups: lines {"name": …, "ranks": […]}."""
    values = [json.loads(value) for value in rings.groups.values]
    named = [value if isinstance(value, dict) else {"name": str(value)} for value in values]
    return tuple(str(one.get("name", "")) for one in named), tuple(tuple(map(int, one.get("ranks", ()))) for one in named)


def _by_rank(rings: Rings) -> list[tuple[str, RingState]]:
    return [(ring.key, ring) for _, ring in sorted(newest_rings(rings).items())]


def _heartbeat(ring: RingState, raw: bytes, names: Sequence[str], groups: Sequence[str]) -> Heartbeat:
    who, beat = ring.identity, ring.beat
    return Heartbeat(
        who.rank,
        who.host,
        who.run,
        who.pid,
        ring.key,
        beat.step,
        beat.head,
        beat.beat_ns / 1e9,
        ring.received_ns / 1e9,
        beat.process,
        beat.ended,
        beat.lost,
        beat.reduced,
        tuple(_open_sections(ring, raw, names, groups)),
    )


def _open_sections(ring: RingState, raw: bytes, names: Sequence[str], groups: Sequence[str]) -> Iterator[OpenSection]:
    rows = open_columns(raw) if raw else {"step": np.zeros(0, np.int64)}
    for at in range(len(rows["step"])):
        name, group, section = (int(rows[key][at]) for key in ("name", "group", "section"))
        yield OpenSection(
            Section(section).name if section < len(Section) else str(section),
            names[ring.names[name]] if 0 <= name < len(ring.names) else "",
            groups[ring.groups[group]] if 0 <= group < len(ring.groups) else "",
            int(rows["step"][at]),
            int(rows["begin"][at]) / 1e9,
            int(rows["call"][at]),
            int(rows["peer"][at]),
            int(rows["state"][at]),
        )


def newest_rings(rings: Rings) -> dict[int, RingState]:
    """Rank → its newest ring, of the newest run of the folder and of its ranks only; after a restart of the job, the one that was
    introduced last."""
    if not rings.by_number:
        return {}
    last = rings.by_number[-1].identity
    return {one.identity.rank: one for one in rings.by_number if one.identity.run == last.run and one.identity.rank < last.world}


def earlier_runs(rings: Rings) -> list[str]:
    """Names of other runs in the folder, in order of their start."""
    newest = rings.by_number[-1].identity.run if rings.by_number else ""
    return [name for name in dict.fromkeys(one.identity.run for one in rings.by_number) if name != newest]


def keep_newest_attempts(rows: dict[str, Any], rings: Rings) -> dict[str, Any]:
    """Rows of the newest run; of a rank that was started again, those before the first step of its newest start, and those since.

    `rows`: columns of one length, with `ring`, `rank` and `step`.
    """
    if len({(one.identity.run, one.identity.world) for one in rings.by_number}) <= 1 and _one_ring_a_rank(rings):
        return rows
    last = rings.by_number[-1].identity
    own = np.array([one.identity.run == last.run and one.identity.rank < last.world for one in rings.by_number], bool)
    keep = own[rows["ring"]]
    starts: dict[int, int] = {}  # rank → first step of the attempts looked at so far, from the newest
    for ring in reversed(rings.by_number):
        if own[ring.number]:
            mine = rows["ring"] == ring.number
            rank = ring.identity.rank
            keep &= ~mine | (rows["step"] < starts.get(rank, 1 << 62))
            if mine.any():
                starts[rank] = min(starts.get(rank, 1 << 62), int(rows["step"][mine].min()))
    return {name: column[keep] for name, column in rows.items()}


def _one_ring_a_rank(rings: Rings) -> bool:
    return len({one.identity.rank for one in rings.by_number}) == len(rings.by_number)
