"""Error patterns in training logs, from the most to the least specific."""

from __future__ import annotations

import re

from windtunnel.base.text import redact
from windtunnel.fleet.wire.messages import EXCEPTION_LINE, LogFinding

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
