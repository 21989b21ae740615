"""`perfquery` of infiniband-diags: counters of InfiniBand ports, and what they say is wrong.

`# Port extended counters: Lid 1719 port 1 (…)`, then `SymbolErrorCounter:..............0`. Data counters are in units of 4 bytes
(IBA, PortXmitData); PortXmitWait counts ticks in which data waited for credits.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from windtunnel.base.errors import FileError
from windtunnel.formats.head import Head
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.formats.text.lines import LogLines

_PORT = re.compile(r"#.*counters: Lid (\d{1,9}) port (\d{1,5}|ALL).*", re.IGNORECASE)
_COUNTER = re.compile(r"(\w{1,60}):\.+\s*(\S{1,24})")
_NOT_COUNTED = ("PortSelect", "CounterSelect")
_DATA = ("PortXmitData", "PortRcvData", "XmtData", "RcvData")
_TROUBLE = re.compile(r"Error|Err$|Errs|Discard|Down|Recover|Overrun|Integrity|Dropped", re.IGNORECASE)
_MOST = 100_000
_SHOWN = 20


def recognises(head: Head) -> bool:
    """The heading of a port, and a counter with its dots."""
    lines = head.lines[:200]
    return any(map(_PORT.fullmatch, lines)) and any(map(_COUNTER.fullmatch, lines))


def read(files: Sequence[Path], context: Context) -> Reading:
    """Sums of all counters, and the ports with errors. FileError for files without a counter."""
    ports: dict[str, dict[str, int]] = {}
    broken: list[str] = []
    bad = 0
    for path in files:
        here: dict[str, int] = {}
        for text in LogLines(path, context.progress, broken):
            if match := _PORT.fullmatch(text):
                name = f"lid {match[1]} port {match[2]}"
                here = ports.setdefault(name, {}) if name in ports or len(ports) < _MOST else {}
            elif match := _COUNTER.fullmatch(text):
                if not match[2].isdigit():
                    bad += not match[2].lower().startswith("0x")
                elif not match[1].startswith(_NOT_COUNTED):
                    here[match[1]] = here.get(match[1], 0) + int(match[2])
    if not any(ports.values()):
        raise FileError(str(files[0]), "no counter of a port", "what `perfquery -x` prints")
    if bad:
        broken.append(f"{bad} counters that are no numbers")
    return _reading(ports, broken)


def _reading(ports: dict[str, dict[str, int]], broken: list[str]) -> Reading:
    sums: dict[str, int] = {}
    for counters in ports.values():
        for name, value in counters.items():
            sums[name] = sums.get(name, 0) + value
    troubled = {
        port: wrong
        for port, counters in ports.items()
        if (wrong := {name: value for name, value in counters.items() if value and _TROUBLE.search(name)})
    }
    worst = sorted(troubled, key=lambda port: -sum(troubled[port].values()))[:_SHOWN]
    facts: dict[str, Any] = {
        "ports": len(ports),
        "bytes": {name: 4 * sums[name] for name in _DATA if name in sums},
        "counters": sums,
        "ports_with_errors": len(troubled),
        "errors": {port: troubled[port] for port in worst},
    }
    built = [f"counters of {len(ports)} ports; {len(troubled)} with errors"]
    built += [f"{port}: {', '.join(f'{value} {name}' for name, value in troubled[port].items())}" for port in worst[:5]]
    return Reading("perfquery", Content.SETTINGS, facts, facts, tuple(built), (), (), tuple(broken))
