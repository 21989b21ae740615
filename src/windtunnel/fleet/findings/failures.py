"""Ranks that ended although the job had not: which one failed first, and why, from the rows in which ranks and their launcher say
how processes ended.

A rank whose peer is gone loses its connection and raises, and a launcher ends the ranks that are left. These are consequences: they
are the cause only if there is no other. A rank that ended with status 0 while others went on is a cause too, if the others then
lost their connections.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.fleet.findings.finding import format_ranks
from windtunnel.records.ends import EndKind, parse_end
from windtunnel.records.sections import Section, Sections

LOST_CONNECTION = re.compile(
    r"Connection (reset|closed|refused|was likely closed|timed out)|Broken pipe|Timed out waiting|DistNetworkError|DistStoreError|"
    r"failed to connect|recvValue|Socket (closed|Timeout)|ncclRemoteError|NCCL communicator was aborted|remote process exited|"
    r"Application timeout caused pair closure|wait timeout after"
)
"""Messages of a rank whose peer has gone."""
NEVER_CONNECTED = re.compile(
    r"failed to connect to any network address|could not be resolved|getaddrinfo|Name or service not known|"
    r"Temporary failure in name resolution|No route to host|Network is unreachable|client socket has timed out"
)
"""Of a rank that did not come to its peers at all: no peer's end has caused them where only launchers' signals followed."""
ASKED_TO_END = ("SIGTERM", "SIGINT", "SIGHUP", "KeyboardInterrupt")
"""How launchers and people end ranks."""
SETTLED = 2.0
"""Seconds after the last end for which a cause may still become known: a launcher looks a few times a second."""

KILL_AFTER = 4.0
"""Least seconds for which launchers wait between asking a rank to end and killing it."""
AT_ONCE = 0.02
"""Seconds within which signals of one cause arrive."""


@dataclass(frozen=True)
class RankEnd:
    """How a rank ended while the job ran."""

    rank: int
    seconds: float
    """Unix seconds; NaN unknown."""
    why: str
    consequence: bool
    """Whether it ended because others had, as far as is known."""
    step: int = -1
    signalled: bool = False
    asked: bool = False
    """A launcher or a person has ended it."""
    silent: bool = False
    """Nobody says how it ended."""


@dataclass(frozen=True)
class JobFailure:
    """Why a job ended before its time."""

    causes: tuple[RankEnd, ...]
    """The first to fail is first."""
    others: tuple[int, ...]
    """Ranks that ended because of it."""
    sure: bool
    """False: more may still become known of it."""
    asked: bool = False
    """All ranks were ended from outside, by a signal to the job: no rank failed."""


FINAL = (EndKind.RAISED, EndKind.EXIT, EndKind.SIGNAL)
"""Ends of the process, not of a thread of it."""

EndRow = tuple[float, EndKind, str, int]
"""Unix seconds, kind, text, step."""


def end_rows(sections: Sections) -> dict[int, list[EndRow]]:
    """The ends of each rank and of its threads, in time order."""
    found: dict[int, list[EndRow]] = {}
    rows = np.flatnonzero(sections.section == Section.END)
    for row in rows[np.argsort(sections.begin[rows], kind="stable")].tolist():
        name = int(sections.name[row])
        told = parse_end(sections.names[name]) if 0 <= name < len(sections.names) else None
        if told is not None:
            moment = sections.zero + float(sections.begin[row])
            found.setdefault(int(sections.rank[row]), []).append((moment, *told, int(sections.step[row])))
    return found


def failure_of(sections: Sections, beats: Mapping[int, Any], now: float) -> JobFailure | None:
    """The failure of a job, None if no rank has failed. `beats`: `liveness.Beat` by rank; `now`: unix seconds.

    Ranks that live, or that ended with status 0 when all did, have not failed.
    """
    rows = _last_ends(sections)
    ends = [end for rank in sorted({*beats, *rows}) if (end := end_of(rank, rows.get(rank, []), beats.get(rank), now))]
    failed = _mark_killed_afterwards([end for end in ends if end.why])
    if not failed:
        return None
    causes = [end for end in failed if not end.consequence and not end.silent]
    left = [] if causes else _left_early(rows, failed)
    lost = [end for end in failed if end.consequence and not end.asked]
    asked = not causes and not left and not lost and any(end.asked for end in failed)
    if asked:
        causes = failed
    causes = causes or left or [end for end in failed if end.silent] or _never_connected(failed) or _signalled_first(failed)
    causes = sorted(causes, key=lambda end: (np.isnan(end.seconds), end.seconds, end.rank))
    others = tuple(end.rank for end in failed if end not in causes)
    latest = max((end.seconds for end in failed if np.isfinite(end.seconds)), default=float("-inf"))
    sure = not (left or causes[0].silent or causes[0].consequence)
    return JobFailure(tuple(causes), others, sure or now - latest > SETTLED, asked)


def _last_ends(sections: Sections) -> dict[int, list[EndRow]]:
    """`end_rows` without the ends of processes after which the rank has written other rows: it was started again."""
    rows = end_rows(sections)
    for rank, told in rows.items():
        begins = sections.begin[(sections.rank == rank) & (sections.section != Section.END)]
        last = sections.zero + float(begins.max()) if len(begins) else float("-inf")
        rows[rank] = [row for row in told if row[1] not in FINAL or row[0] >= last]
    return rows


def end_of(rank: int, rows: Sequence[EndRow], beat: Any, now: float) -> RankEnd | None:
    """How a rank ended, with `why` empty if it ended well; None if it lives. `rows`: of the rank, in time order; `beat`: its
    `liveness.Beat`, or None; `now`: unix seconds.
    """
    lives = beat is not None and beat.ended is None and beat.process in ("running", "sleeping", "stopped")
    final = _final_rows(rows)
    if lives and not (final and final[0][1] is EndKind.RAISED):
        return None
    before = "".join(f"; before that its {text}" for _, kind, text, _ in rows if kind is EndKind.THREAD)
    if final:
        moment, kind, text, step = final[0]
        if kind is EndKind.EXIT and text.startswith("exit status 0"):
            ignored = [row for row in rows if row[1] is EndKind.IGNORED]
            return RankEnd(rank, moment, f"raised {ignored[0][2]} as it ended" if ignored else "", False, step)
        asked = any(word in text for word in ASKED_TO_END) and kind is not EndKind.EXIT
        lost = kind is not EndKind.SIGNAL and LOST_CONNECTION.search(text) is not None
        told = {EndKind.RAISED: "raised ", EndKind.EXIT: "ended with ", EndKind.SIGNAL: "was ended by "}[kind]
        return RankEnd(rank, moment, f"{told}{text}{before}", asked or lost, step, kind is EndKind.SIGNAL, asked)
    if beat is None or (beat.ended is None and beat.process not in ("gone", "zombie")):
        return None
    if beat.ended:
        return RankEnd(rank, float("nan"), f"ended with exit status {beat.ended}{before}", False, beat.step)
    if beat.ended is None:
        why = "its process is gone, without an exception, an exit or a fault: something ended it at once, as SIGKILL does"
        return RankEnd(rank, now - beat.silent, why + before, False, beat.step, silent=True)
    return None


def _mark_killed_afterwards(failed: Sequence[RankEnd]) -> list[RankEnd]:
    """A launcher kills ranks that do not end when it asks them: long after the first end, that is a consequence."""
    first = min((end.seconds for end in failed if np.isfinite(end.seconds)), default=float("nan"))
    return [
        replace(end, consequence=True, asked=True) if end.signalled and end.seconds > first + KILL_AFTER else end for end in failed
    ]


def _final_rows(rows: Sequence[EndRow]) -> list[EndRow]:
    """Rows on the process's end; the launcher's exit status counts where it is another than the process knew."""
    final = [row for row in rows if row[1] in FINAL]
    if len(final) > 1 and final[0][1] is EndKind.EXIT and final[0][2].startswith("exit status 0"):
        return final[1:]
    return final


def _never_connected(failed: Sequence[RankEnd]) -> list[RankEnd]:
    """Ranks that did not reach the others, where nothing else ended a rank than a launcher that asked it to end."""
    if any(end.signalled and not end.asked for end in failed):
        return []
    return [end for end in failed if not end.asked and NEVER_CONNECTED.search(end.why)]


def _signalled_first(failed: Sequence[RankEnd]) -> list[RankEnd]:
    """Of ranks that ended because others had: those that a signal ended first, if there are any. A connection is lost by the end of
    a rank that has not lost its own; a launcher sends its signals after that.
    """
    signalled = [end for end in failed if end.signalled]
    first = min((end.seconds for end in signalled), default=float("nan"))
    return [end for end in signalled if end.seconds <= first + AT_ONCE] or list(failed)


def _left_early(rows: Mapping[int, Sequence[EndRow]], failed: Sequence[RankEnd]) -> list[RankEnd]:
    """Ranks that ended with status 0 before the first of the others lost its connection, at an earlier step or moment."""
    lost = [end for end in failed if end.consequence and np.isfinite(end.seconds)]
    if not lost:
        return []
    first = min(end.seconds for end in lost)
    found = []
    for rank, told in rows.items():
        final = _final_rows(told)
        if final and final[0][1] is EndKind.EXIT and final[0][2].startswith("exit status 0") and final[0][0] <= first:
            moment, _, text, step = final[0]
            why = f"ended with {text} in step {step}, while {format_ranks(sorted(end.rank for end in lost))} went on"
            found.append(RankEnd(rank, moment, why, False, step))
    return found


def failure_text(failure: JobFailure) -> str:
    """The causes, a line each, then the ranks that ended because of them."""
    if failure.asked:
        return f"the job was ended from outside: {format_ranks([failure.causes[0].rank])} {failure.causes[0].why}"
    same: dict[str, list[int]] = {}
    for end in failure.causes:
        same.setdefault(end.why, []).append(end.rank)
    lines = [f"{format_ranks(sorted(ranks))}: {_plural(why, len(ranks))}" for why, ranks in same.items()]
    if failure.others:
        lines.append(f"because of it, {format_ranks(sorted(failure.others))} ended")
    return "\n".join(lines)


def _plural(why: str, count: int) -> str:
    return f"were{why.removeprefix('was')}" if count > 1 and why.startswith("was ") else why
