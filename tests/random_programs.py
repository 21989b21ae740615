"""Random programs of the exec core."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st

from windtunnel.engine import Program, ProgramBuilder, Timeline

CATEGORIES = 3
STREAMS = 3


@dataclass
class Draft:
    """A random program, kept so that it can be built again with its ranks in another order."""

    templates: list[dict[str, list[float]]]
    ranks: list[list[dict[str, object]]] = field(default_factory=list)
    tax: float = 0.0
    window: int = 0

    def build(self, order: list[int] | None = None) -> Program:
        builder = ProgramBuilder(CATEGORIES, self.tax, self.window)
        for template in self.templates:
            builder.add_template(**template)  # type: ignore[arg-type]
        for r in order or range(len(self.ranks)):
            rank = builder.rank()
            for instance in self.ranks[r]:
                (rank.add_rendezvous if "parts" in instance else rank.add)(**instance)  # type: ignore[operator]
        return builder.build()


@st.composite
def drafts(draw: st.DrawFn, tax: bool = False, host: bool = True) -> Draft:
    seconds = st.floats(0.0, 10.0, allow_subnormal=False)
    hosts = st.one_of(st.just(0.0), st.floats(0.0, 3.0, allow_subnormal=False)) if host else st.just(0.0)
    templates = []
    for _ in range(draw(st.integers(1, 3))):
        n = draw(st.integers(1, 4))
        templates.append(
            {
                "seconds": [draw(seconds) for _ in range(n)],
                "category": [draw(st.integers(0, CATEGORIES - 1)) for _ in range(n)],
                "stream": [draw(st.integers(0, STREAMS - 1)) for _ in range(n)],
                "host": [draw(hosts) for _ in range(n)],
                "comm": [draw(st.booleans()) for _ in range(n)],
                "wait0": [draw(st.integers(-1, k - 1)) for k in range(n)],
            }
        )
    count = draw(st.integers(1, 4))
    draft = Draft(templates, [[] for _ in range(count)])
    if tax:
        draft.tax = draw(st.sampled_from([0.1, 0.3, 1.0]))
    draft.window = draw(st.sampled_from([0, 0, 1, 4]))
    for step in range(draw(st.integers(1, 12))):
        if count > 1 and draw(st.booleans()):
            who = draw(st.lists(st.integers(0, count - 1), min_size=2, max_size=count, unique=True))
            stream = draw(st.integers(0, STREAMS - 1))
            for r in who:
                waits = draw(st.lists(st.integers(0, len(draft.ranks[r]) - 1), max_size=2)) if draft.ranks[r] else []
                parts = [(step, draw(seconds), len(who))]
                draft.ranks[r].append({"stream": stream, "parts": parts, "waits": waits, "cat_wait": 1, "cat_transfer": 2})
        else:
            r = draw(st.integers(0, count - 1))
            waits = draw(st.lists(st.integers(0, len(draft.ranks[r]) - 1), max_size=2)) if draft.ranks[r] else []
            template = draw(st.integers(0, len(templates) - 1))
            sync, join = draw(st.booleans()), draw(st.booleans())
            times = draw(st.integers(1, 3))
            draft.ranks[r].append({"template": template, "waits": waits, "times": times, "host_sync": sync, "join": join})
    return draft


def assert_same_rank(a: Timeline, b: Timeline, rank_a: int, rank_b: int) -> None:
    for name in ("begin", "end", "transfer_begin"):
        assert np.array_equal(getattr(a, name)[a.of_rank(rank_a)], getattr(b, name)[b.of_rank(rank_b)], equal_nan=True)
    for name in ("busy", "idle", "stretch", "rank_end", "host_end"):
        assert np.array_equal(getattr(a, name)[rank_a], getattr(b, name)[rank_b])
