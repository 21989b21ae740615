"""Attempts that have claimed a store, oldest first, each with the step from which it began: what the object OWNER contains.

A step counts unless an attempt that claimed the store after its own began from an earlier step. So one object that is put at once
fences earlier attempts and sets their later steps aside.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_LINE = re.compile(r"([0-9a-f]+)(?: (\d+))?")


@dataclass(frozen=True)
class Lineage:
    """(attempt, step from which it began; None: unknown), oldest first."""

    claims: tuple[tuple[str, int | None], ...] = ()

    @classmethod
    def of(cls, text: str) -> Lineage:
        """Parses OWNER; a line that is none of ours is passed over."""
        lines = [_LINE.fullmatch(line.strip()) for line in text.splitlines()]
        return cls(tuple((one[1], int(one[2]) if one[2] else None) for one in lines if one))

    @property
    def owner(self) -> str:
        """The attempt that may commit; empty if none has claimed the store."""
        return self.claims[-1][0] if self.claims else ""

    def is_superseded(self, step: int, attempt: str) -> bool:
        """Whether a later attempt began before `step`. An attempt that is not listed is earlier than all."""
        at = max((index for index, (name, _) in enumerate(self.claims) if name == attempt), default=-1)
        return any(began is not None and began < step for _, began in self.claims[at + 1 :])

    def claim(self, attempt: str, began: int) -> Lineage:
        """With `attempt` as the owner. Earlier claims that decide nothing any more are left out."""
        kept = []
        for index, (name, start) in enumerate(self.claims):
            later = [one for _, one in self.claims[index + 1 :] if one is not None] + [began]
            if start is None or start < min(later) or name == attempt:
                kept.append((name, start))
        return Lineage((*(one for one in kept if one[0] != attempt), (attempt, began)))

    def text(self) -> str:
        """What OWNER contains."""
        return "".join(f"{name}\n" if began is None else f"{name} {began}\n" for name, began in self.claims)
