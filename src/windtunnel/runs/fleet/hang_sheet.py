"""What a job that does not move shows: the culprits, who waits for whom, and the culprits' stacks where there are any."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from windtunnel.sheet.blocks import Cell, Column, Figure, Lines, Section, Sheet, Table
from windtunnel.sheet.sentence import Sentence, quote

MOST_LINES = 12


def hang_sheet(facts: Mapping[str, Any]) -> Sheet:
    """What `fleet hang` shows. `facts`: as `windtunnel.fleet.find_hang` returns them."""
    verdict = tuple(quote(f"{line[:1].upper()}{line[1:]}.") for line in str(facts["text"]).splitlines())
    calls = Counter((other, call) for on in facts["waits"].values() for other, call in on.items()).most_common()
    waits: list[str] = ["", "Ranks that others wait for"] if calls else []
    for (other, call), count in calls[:MOST_LINES]:
        ranks = "rank" if count == 1 else "ranks"
        waits.append(Sentence(f"  rank {{other}}: {{count}} {ranks} in {{call}}", other=other, count=count, call=call))
    stacks: list[str] = []
    for rank, stack in facts.get("stacks", {}).items():
        stacks += ["", Sentence("Stack of rank {rank}", rank=rank), quote(str(stack))]
    rows = []
    for (other, call), count in calls:
        rows.append((Cell(str(other), float(other)), Cell(f"{count:,}", float(count)), Cell(str(call))))
    columns = (Column("rank", True), Column("ranks that wait for it", True), Column("in"))
    waiting = len(facts["waits"])
    return Sheet(
        "Who holds the job up", "", (Figure("waits.ranks", "ranks that wait", waiting, "", None, f"{waiting:,}"),),
        (
            Section("", (Lines((*verdict, *waits, *stacks), brief=True),)),
            Section("The verdict", (Lines(verdict, detail=True),)),
            Section("Ranks that others wait for", (Table("waits", columns, tuple(rows), detail=True),) if rows else ()),
            *(
                Section(Sentence("Stack of rank {rank}", rank=rank), (Lines((quote(str(stack)),), mood="code", detail=True),))
                for rank, stack in facts.get("stacks", {}).items()
            ),
        ),
        titled=True,
    )  # fmt: skip
