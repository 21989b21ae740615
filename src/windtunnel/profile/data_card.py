"""The data card of a folder of datasets: content, method and conditions of measurement, limits.

Known fields are filled in; what only the operators know is a question in angle brackets. See docs/data-card.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from windtunnel.records import About, read

CARD = "DATA_CARD.md"

TEXT = Path(__file__).with_name("data_card.md").read_text(encoding="utf-8")


FILES_HOW = """
Files (level file): a checkpoint is one file of each rank, one `torch.save` of random bytes into a stream and its fsync; it is
read back by `torch.load` after the page cache was asked to drop it, and with O_DIRECT. A row's time is from the first rank's begin
to the last one's end. Samples are read out of a mapped file of tokens; a row is of one of them. Files have no names and are gone
when their processes are.
"""


def write_card(folder: Path, plan: str, template: str = TEXT) -> Path:
    """Write `DATA_CARD.md` beside the Parquet files of `folder`; write nothing if there are none.

    `template`: with the fields of `TEXT`.
    """
    files = sorted(folder.glob("*.parquet"))
    path = folder / CARD
    if files:
        sets = [read(file) for file in files]
        rows = [row for one in sets for row in one.rows()]
        path.write_text(card([one.about for one in sets], rows, plan, template), encoding="utf-8")
    return path


def card(abouts: Sequence[About], rows: Sequence[dict[str, Any]], plan: str, template: str = TEXT) -> str:
    """The text of the card of one device's files (at least one)."""
    first = abouts[0]
    drivers = ", ".join(sorted({one.driver or "not known" for one in abouts}))
    conditions = {
        "GPU": first.gpu,
        "device": first.device,
        "architecture": first.architecture,
        "driver": drivers,
        **first.libraries,
        **{name: value for one in abouts for name, value in one.settings.items()},
    }
    clocks = [row["clock_hz"] for row in rows if row.get("clock_hz")]
    throttling = [row for row in rows if row.get("throttled") is not None]
    reasons = Counter(word for row in throttling if row["throttled"] for word in row["throttled"].split(", "))
    throttled = f"{sum(1 for row in throttling if row['throttled']):,} of {len(throttling):,} rows" if throttling else "not known"
    throttled += "".join(f", {word} {n:,}" for word, n in reasons.most_common())
    span = f"{min(clocks) / 1e6:.0f} to {max(clocks) / 1e6:.0f} MHz, median {median(clocks) / 1e6:.0f}" if clocks else "not known"
    lost = sum(1 for row in rows if row["status"] == "oom")
    return template.format(
        device=first.device or first.gpu,
        rows=len(rows),
        files=len(abouts),
        version=first.version,
        plan=plan,
        table=_table(rows),
        conditions="\n".join(f"| {name} | {value} |" for name, value in conditions.items()),
        clock=span,
        throttled=throttled,
        licence=first.licence or "<licence>",
        source=first.source or "<source>",
        files_how=FILES_HOW if any(row["level"] == "file" for row in rows) else "",
        skipped=f"{lost:,} shapes did not fit into memory and have no time." if lost else "Every shape that was tried fitted.",
    )


def _table(rows: Sequence[dict[str, Any]]) -> str:
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["level"], row["op"], row["dtype"], row["mode"]), []).append(row)
    lines = []
    for group, rows_of_group in sorted(groups.items()):
        times = [row["seconds"] for row in rows_of_group if row["seconds"] is not None]
        span = [f"{one * 1e6:,.1f} µs" for one in (min(times), max(times))] if times else ["", ""]
        lines.append(
            f"| {' | '.join(group)} | {len(rows_of_group):,} | {len(rows_of_group) - len(times):,} | {span[0]} | {span[1]} |"
        )
    return "\n".join(lines)
