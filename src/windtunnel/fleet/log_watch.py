"""Alarms from the lines of a watched job: its loss and gradient norm, and rules of the user's own.

Lines come from what the ranks print (`watch.printed`) and from files that the job writes (`--watch-log`). A file of rules is TOML:

    [[rule]]
    name = "slow storage"
    match = "NFS server .* not responding"
    count = 3          # in so many seconds; by default once
    seconds = 60

    [[rule]]
    name = "low throughput"
    match = "tokens/s: ([0-9.]+)"
    below = 1000       # the first group as a number

What is wrong with a loss or gradient norm: `findings.losses`.
"""

from __future__ import annotations

import re
import tomllib
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from windtunnel.base.dataclasses import dataclass, field, replace
from windtunnel.base.errors import FileError, SpecError
from windtunnel.base.text import clean, redact
from windtunnel.fleet.driver.node_logs import FollowedLogs
from windtunnel.fleet.findings.finding import Verdict
from windtunnel.fleet.findings.losses import LossSeries, values_in
from windtunnel.fleet.monitor import Alarm
from windtunnel.fleet.starting import PRINTED_SUFFIX

_KEYS: dict[str, Any] = {
    "name": str,
    "match": str,
    "count": int,
    "seconds": (int, float),
    "above": (int, float),
    "below": (int, float),
}
_LONGEST = 4096
_SHOWN = 200
_MOST_FILES = 256


@dataclass
class LogRule:
    """A rule of the user's file: an alarm when `count` lines of `seconds` match it."""

    name: str
    match: re.Pattern[str]
    count: int = 1
    seconds: float = 60.0
    above: float | None = None
    below: float | None = None
    _seen: deque[float] = field(default_factory=deque)
    _told: float = float("-inf")

    def look(self, line: str, now: float) -> str:
        """What is to be told of a line; empty for nothing, and for what was told less than `seconds` ago."""
        match = self.match.search(line)
        if match is None or not self._is_outside(match):
            return ""
        self._seen.append(now)
        while self._seen and now - self._seen[0] > self.seconds:
            self._seen.popleft()
        quiet = now - self._told > self.seconds
        if len(self._seen) >= self.count:
            self._told = now
            return f"{self.name}: {redact(clean(line.strip()))[:_SHOWN]}" if quiet else ""
        return ""

    def _is_outside(self, match: re.Match[str]) -> bool:
        if self.above is None and self.below is None:
            return True
        try:
            value = float(match[1].replace(",", ""))
        except (IndexError, AttributeError, ValueError):
            return False
        return (self.above is not None and value > self.above) or (self.below is not None and value < self.below)


def read_log_rules(path: Path) -> list[LogRule]:
    """The rules of a file. FileError where it cannot be read, SpecError for what is no rule."""
    try:
        told = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FileError("--log-rules", str(path), "a file that can be read", f"{error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FileError("--log-rules", str(path), "TOML", f"{error}.") from error
    rules = told.get("rule")
    if not isinstance(rules, list) or not rules or told.keys() != {"rule"}:
        raise SpecError(
            "--log-rules", sorted(told) or "nothing", "tables [[rule]]", 'For example [[rule]], then name = "a", match = "b".'
        )
    return [_rule(number, rule) for number, rule in enumerate(rules, 1)]


def _rule(number: int, told: Any) -> LogRule:
    where = f"rule {number} of --log-rules"
    if not isinstance(told, dict) or not {"name", "match"} <= told.keys() <= _KEYS.keys():
        raise SpecError(where, sorted(told) if isinstance(told, dict) else told, f"name and match, and of {', '.join(_KEYS)}")
    for key, value in told.items():
        if not isinstance(value, _KEYS[key]) or isinstance(value, bool):
            raise SpecError(f"{key} of {where}", value, "text" if _KEYS[key] is str else "a number")
    try:
        match = re.compile(told["match"])
    except re.error as error:
        raise SpecError(f"match of {where}", told["match"], "a regular expression", f"{error}.") from error
    if ("above" in told or "below" in told) and not match.groups:
        raise SpecError(f"match of {where}", told["match"], "a group for above or below", r"For example: tokens/s: ([0-9.]+)")
    if told.get("count", 1) < 1 or told.get("seconds", 60.0) <= 0:
        raise SpecError(where, {key: told[key] for key in ("count", "seconds") if key in told}, "count and seconds above 0")
    rule = {key: told[key] for key in ("name", "count", "seconds", "above", "below") if key in told}
    return LogRule(match=match, **rule)


@dataclass
class LogWatch:
    """Follows the lines of a run. `folder`: that of its records on this machine."""

    folder: Path
    files: Sequence[str] = ()
    """Paths or patterns of further logs."""
    rules: Sequence[LogRule] = ()
    _logs: FollowedLogs = field(default_factory=FollowedLogs)
    _series: dict[tuple[Path, str], LossSeries] = field(default_factory=dict)
    _active: dict[tuple[str, str], tuple[Alarm, set[Path]]] = field(default_factory=dict)
    _whose: dict[Path, int] = field(default_factory=dict)

    def look(self, now: float) -> list[Alarm]:
        """Alarms that are new. `now`: unix seconds. Ranks that say the same at once are told together."""
        new: dict[tuple[str, str], list[Path]] = {}
        over: list[tuple[str, str, Path]] = []
        alarms: list[Alarm] = []
        for path, line in self._lines():
            for what, value in values_in(line):
                fault = self._series.setdefault((path, what), LossSeries(what)).add(value)
                if fault is not None and fault.over:
                    over.append((fault.what, fault.text, path))
                elif fault is not None:
                    new.setdefault((fault.what, fault.text), []).append(path)
            alarms += [self._alarm(Verdict.LOG, text, [path], now) for rule in self.rules if (text := rule.look(line, now))]
        alarms += [told for (what, text), paths in new.items() if (told := self._begin(what, text, paths, now)) is not None]
        return [*alarms, *self._end(over, now)]

    def _begin(self, what: str, text: str, paths: list[Path], now: float) -> Alarm | None:
        """An alarm, unless other ranks have told the same kind of fault a moment ago: a loss is that of all."""
        kind = text.partition(":")[0]
        known = self._active.get((what, kind))
        if known is not None:
            known[1].update(paths)
            return None
        alarm = self._alarm(Verdict.LOSS, text, paths, now)
        self._active[what, kind] = alarm, set(paths)
        return alarm

    def _end(self, over: list[tuple[str, str, Path]], now: float) -> Iterator[Alarm]:
        for what, text, path in over:
            key = what, text.partition(":")[0]
            known = self._active.get(key)
            if known is not None:
                known[1].discard(path)
                if not known[1]:
                    del self._active[key]
                    yield replace(known[0], seconds=now, cleared=True)

    def _alarm(self, verdict: Verdict, text: str, paths: Sequence[Path], now: float) -> Alarm:
        ranks = tuple(sorted({self._whose[path] for path in paths if path in self._whose}))
        where = "" if ranks else f", says {paths[0]}"
        return Alarm(now, verdict, ranks, (), text + where)

    def _lines(self) -> Iterator[tuple[Path, str]]:
        own = sorted(self.folder.glob(f"rank-*{PRINTED_SUFFIX}"))
        for attempt in sorted(self.folder.glob("logs/attempt-*"))[-2:]:  # a kept job's: all that its ranks print
            own += sorted(attempt.glob("rank-*.log"))
        self._whose.update({path: int(path.stem.partition("-")[2]) for path in own if path.stem.partition("-")[2].isdigit()})
        patterns = (Path(pattern) for pattern in self.files)
        more = [path for pattern in patterns for path in sorted(pattern.parent.glob(pattern.name))]
        for path in [*own, *more][:_MOST_FILES]:
            for raw in self._logs.lines(path):
                yield path, raw[:_LONGEST].decode("utf-8", "replace")
