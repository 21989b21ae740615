"""The tables of docs/congestion.md, from the core's registry and the catalogue. Run this file to write them into the document."""

from __future__ import annotations

import re
from pathlib import Path

from windtunnel.engine.packet import Parameter, controls
from windtunnel.network.congestion import Congestion, load_congestion, presets

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "congestion.md"
_PART = re.compile(r"(<!-- (parameters of (\w+)|presets)[^>]*-->\n)(.*?)(<!-- end -->)", re.DOTALL)


def with_tables(text: str) -> str:
    """The document with every table as it should be."""

    def part(match: re.Match[str]) -> str:
        table = preset_table() if match[3] is None else parameter_table(match[3])
        return match[1] + table + match[5]

    return _PART.sub(part, text)


def parameter_table(name: str) -> str:
    rows = ["| parameter | default | bounds | meaning |", "|---|---|---|---|"]
    for p in controls()[name].parameters:
        rows.append(f"| {p.name} | {_shown(p, p.default)} | {_shown(p, p.least)} to {_shown(p, p.most)} | {p.meaning} |")
    return "\n".join(rows) + "\n"


def preset_table() -> str:
    rows = ["| preset | algorithm | marks arrive as | kmin / kmax / pmax at 400 Gb/s |", "|---|---|---|---|"]
    for name in presets():
        made = load_congestion(name)
        rows.append(f"| `{name}` | {made.algorithm} | {_heard(made)} | {_marked(made)} |")
    return "\n".join(rows) + "\n"


def _heard(made: Congestion) -> str:
    kind, seconds = made.notification
    return {"none": "–", "ack": "bits in ACKs", "cnp": f"CNPs, {seconds * 1e6:g} µs apart"}[kind]


def _marked(made: Congestion) -> str:
    row = made.marking(50e9)
    return f"{row.kmin / 1e3:g} / {row.kmax / 1e3:g} KB / {row.pmax:g}" if row else "–"


def _shown(p: Parameter, value: float) -> str:
    if p.unit == "B/s" and value > 0:
        return f"{value * 8 / 1e6:.4g} Mb/s"
    if p.unit == "s" and 0 < value < 1:
        return f"{value * 1e6:.4g} µs"
    unit = "" if p.unit in ("", "0/1") or value == 0 else f" {p.unit}"
    return f"{value:.6g}{unit}"


if __name__ == "__main__":
    DOCUMENT.write_text(with_tables(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
