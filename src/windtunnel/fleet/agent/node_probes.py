"""Readings of a node: process states, rings, logs, NIC counters, out-of-memory kills.

Error patterns in training logs, from the most to the least specific.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import FileError
from windtunnel.base.text import redact
from windtunnel.fleet.ring import RingReader
from windtunnel.fleet.rings import ring_path
from windtunnel.fleet.watch.ends import note_exit_in
from windtunnel.fleet.wire.messages import EXCEPTION_LINE, EndReport, LogFinding
from windtunnel.records.sections import Section

READ_AT_ONCE = 1 << 18
"""Largest number of bytes of a log that one update reads; of a longer part, the last bytes."""

MOST_ENDS = 16
"""Largest number of ends of a process and its threads that are reported; the last ones."""

OWN_LINE = "windtunnel fleet: "
"""Begin of a line that windtunnel writes into a rank's log: it quotes errors from which training went on."""


@dataclass
class LogTail:
    """Reads a growing log; keeps the first line of each error pattern and the last exception."""

    path: Path
    found: dict[str, LogFinding] = field(default_factory=dict)
    raised: LogFinding | None = None
    _at: int = 0
    _rest: str = ""

    def look(self) -> None:
        """Reads what was appended since the last call."""
        with contextlib.suppress(OSError), self.path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size <= self._at:
                return
            file.seek(max(self._at, size - READ_AT_ONCE))
            text = self._rest + file.read(READ_AT_ONCE).decode("utf-8", "replace")
            self._at = size
            self._rest = text[text.rfind("\n") + 1 :][-4096:]
            text = "".join(line for line in text.splitlines(keepends=True) if not line.startswith(OWN_LINE))
            for one in match_lines(text):
                self.found.setdefault(one.kind, one)
            self.raised = last_exception(text) or self.raised

    def findings(self, ended: bool) -> tuple[LogFinding, ...]:
        """All matched lines. The last exception only if the rank has `ended`; before that it may have been caught."""
        return (*self.found.values(), *([self.raised] if ended and self.raised is not None else []))


@dataclass
class RingProbe:
    """Reads the ring of a rank: seconds since its heartbeat, records written, step. (-1, 0, -1) if the process `pid` has no
    ring.
    """

    folder: Path
    rank: int
    pid: int
    _reader: RingReader | None = None
    _ends: tuple[EndReport, ...] | None = None

    def look(self) -> tuple[float, int, int]:
        """Seconds since the heartbeat, records written and step."""
        if self._reader is None:
            with contextlib.suppress(FileError):
                reader = RingReader(ring_path(self.folder, self.rank))
                if reader.meta.pid == self.pid:
                    self._reader = reader
                else:
                    reader.close()
        if self._reader is None:
            return -1.0, 0, -1
        head = self._reader.head()
        tail = self._reader.read(head)
        return max(0.0, time.time() - tail.beat_ns * 1e-9), head, tail.step

    def ends(self, code: int, ordered: bool) -> tuple[EndReport, ...]:
        """How the process and its threads ended, once it has, with exit status `code` (negative for a signal). What it could not
        write itself is added to its ring, unless its end was `ordered`.
        """
        if self._ends is None:
            self._ends = ()
            with contextlib.suppress(FileError, ValueError, TypeError, KeyError, IndexError):  # a damaged ring
                self.look()  # it may have ended before its ring was seen
                if not ordered:
                    note_exit_in(ring_path(self.folder, self.rank), self.pid, code)
                if self._reader is not None:
                    self._ends = _end_reports(self._reader)
        return self._ends

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()


def _end_reports(reader: RingReader) -> tuple[EndReport, ...]:
    names = [str(value) for kind, value in reader.lines() if kind == "name"]
    rows = reader.read(0).rows
    rows = rows[(rows["section"] == Section.END) & (rows["name"] >= 0)][-MOST_ENDS:]
    return tuple(EndReport(float(row["begin"]) * 1e-9, names[row["name"]], int(row["step"])) for row in rows)


@dataclass
class CheckpointEvents:
    """Reads the checkpoint events of a rank. One that began without a checkpoint has loaded step 0."""

    path: Path
    since: float
    """Unix seconds; earlier events are ignored."""
    loaded: tuple[int, float] = (-1, 0.0)
    """The last load: (step, seconds)."""
    _at: int = 0

    def look(self) -> tuple[int, float]:
        """Reads new events; returns the last load: (step, seconds)."""
        with contextlib.suppress(OSError), self.path.open("rb") as file:
            file.seek(self._at)
            raw = file.read(READ_AT_ONCE)
            whole = raw[: raw.rfind(b"\n") + 1]
            self._at += len(whole)
            for line in whole.splitlines():
                with contextlib.suppress(ValueError, KeyError, TypeError):
                    event = json.loads(line)
                    if event["event"] in ("load", "began") and float(event["unix"]) >= self.since:
                        self.loaded = int(event["step"]), float(event.get("seconds") or 0.0)
        return self.loaded


def process_state(pid: int) -> str:
    """The state letter in /proc: R, S, D, T (stopped), Z (ended); empty if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def nic_bytes(root: Path = Path("/sys/class")) -> int:
    """Bytes moved by the InfiniBand or RoCE ports (their counters count units of 4 bytes), otherwise by all network interfaces
    except loopback; -1 if there are none.
    """
    ports = [*root.glob("infiniband/*/ports/*/counters/port_xmit_data"), *root.glob("infiniband/*/ports/*/counters/port_rcv_data")]
    if ports:
        return 4 * sum(_read_int(path) for path in ports)
    plain = [path for path in root.glob("net/*/statistics/[rt]x_bytes") if path.parts[-3] != "lo"]
    return sum(_read_int(path) for path in plain) if plain else -1


def link_drops(root: Path = Path("/sys/class")) -> int:
    """Total number of link losses of this node's ports: InfiniBand and RoCE ports, and physical Ethernet ports (in a container
    without physical ports, all except loopback).
    """
    ports = [*root.glob("infiniband/*/ports/*/counters/link_downed")]
    nets = [path for path in root.glob("net/*/carrier_down_count") if path.parts[-2] != "lo"]
    hardware = [path for path in nets if path.with_name("device").exists()]
    return sum(_read_int(path) for path in (*ports, *(hardware or nets)))


def own_addresses(root: Path = Path("/proc/net")) -> tuple[str, ...]:
    """IPv4 and IPv6 addresses of this node's ports without loopback; empty if the kernel does not list them."""
    found: list[IPv4Address | IPv6Address] = []
    with contextlib.suppress(OSError, ValueError):
        trie = (root / "fib_trie").read_text(encoding="ascii")
        found += [IPv4Address(text) for text in re.findall(r"\|-- (\S+)\s+/32 host LOCAL", trie)]
    with contextlib.suppress(OSError, ValueError):
        lines = (root / "if_inet6").read_text(encoding="ascii").splitlines()
        found += [IPv6Address(int(line.split()[0], 16)) for line in lines if line]
    return tuple(sorted({str(one) for one in found if not one.is_loopback}))


def _read_int(path: Path) -> int:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0


PATTERNS: tuple[tuple[str, str], ...] = (
    ("oom", r"CUDA out of memory|OutOfMemoryError|\bMemoryError\b|std::bad_alloc|Cannot allocate memory"),
    ("nccl", r"NCCL (error|failure)|ncclSystemError|ncclInternalError|ncclUnhandled|ncclRemoteError|Watchdog caught collective"),
    ("cuda", r"CUDA error|CUDA driver error|cudaError|CUBLAS_STATUS_|CUDNN_STATUS_(?!SUCCESS)|device-side assert|\bXid\b"),
    ("storage", r"No space left on device|Input/output error|Read-only file system|Stale file handle|Disk quota exceeded"),
    ("data", r"DataLoader worker|UnpicklingError|BadZipFile|zlib\.error|JSONDecodeError|corrupt(ed)? (record|sample|shard)"),
    ("nan", r"(?i:\b(loss|grad[a-z_]*|norm)\b[^\n]{0,24}[\s=:]-?(nan|inf)\b)|FloatingPointError|contains (NaN|inf)"),
    ("segfault", r"Segmentation fault|SIGSEGV"),
    ("port", r"EADDRINUSE|[Aa]ddress already in use"),
    (
        "peer",
        r"Connection (reset|closed|refused)|DistNetworkError(?![^\n]{0,400}EADDRINUSE)|DistStoreError|"
        r"Broken pipe|failed to connect|\[gloo/|recvValue",
    ),
)
"""(kind, expression). "peer": the rank ended because another one did; "port": another process already listens on its port."""
_ALL = re.compile("|".join(f"(?P<{kind}>{expression})" for kind, expression in PATTERNS))
KINDS = frozenset(kind for kind, _ in PATTERNS)
_RAISED = re.compile(r"^(?:\[\w+\]:\s?)*((?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Timeout)(?::[^\n]*)?)$", re.M)
LINE = 400
"""Longest line that is reported, in characters."""


def match_lines(text: str) -> list[LogFinding]:
    """The first matching line of each kind in `text`, in the order of the text."""
    seen: dict[str, LogFinding] = {}
    for match in _ALL.finditer(text):
        kind = match.lastgroup if match.lastgroup in KINDS else next(k for k, v in match.groupdict().items() if v and k in KINDS)
        if kind not in seen:
            start = text.rfind("\n", 0, match.start()) + 1
            end = text.find("\n", match.end())
            seen[kind] = LogFinding(kind, redact(text[start : end if end >= 0 else len(text)].strip())[:LINE])
    return list(seen.values())


def last_exception(text: str) -> LogFinding | None:
    """The last line of `text` that names an exception as Python's tracebacks do, with or without torch's prefix `[rank0]: `."""
    lines = _RAISED.findall(text)
    return LogFinding(EXCEPTION_LINE, redact(lines[-1].strip())[:LINE]) if lines else None
