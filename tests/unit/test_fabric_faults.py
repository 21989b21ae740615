"""Faults: which links a pattern hits, and what becomes of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from windtunnel.base.errors import SpecError
from windtunnel.network.fabrics import apply_faults, flap_events, parse_fabric, parse_fault, parse_flap
from windtunnel.network.simulate.fabric_faults import FabricFaults, capacity_changes, stalls_of, timer_changes

TREE = parse_fabric("fat_tree:k=4")


def hit(text: str) -> list[str]:
    after = apply_faults(TREE, [parse_fault(text)])
    changed = (after.link_up != TREE.link_up) | (after.link_rate != TREE.link_rate)
    return [f"{TREE.names[TREE.link_from[i]]}>{TREE.names[TREE.link_to[i]]}" for i in np.flatnonzero(changed)]


def test_patterns() -> None:
    assert hit("host3:down") == ["host3>tor1", "tor1>host3"]
    assert hit("tor0--agg0.1:down") == ["tor0>agg0.1", "agg0.1>tor0"]
    assert hit("tor0->agg0.1:slow=0.5") == ["tor0>agg0.1"]
    assert hit("agg0.1->tor0:slow=0") == ["agg0.1>tor0"]
    assert len(hit("tor*--agg*:down")) == 2 * 16
    assert len(hit("core0.?:down")) == 2 * 2 * 4


def test_effects() -> None:
    slow = apply_faults(TREE, [parse_fault("tor0->agg0.1:slow=0.25"), parse_fault("tor0->agg0.1:slow=0.5")])
    assert slow.link_rate.min() == TREE.link_rate.min() / 8 and slow.link_up.all()
    assert (TREE.link_up == 1).all()  # the graph itself is as it was


def test_shares_are_drawn_with_a_seed() -> None:
    quarter = hit("tor*--agg*:down,share=25%,seed=7")
    assert len(quarter) == 2 * 4 and quarter == hit("tor*--agg*:down,share=0.25,seed=7")
    assert quarter != hit("tor*--agg*:down,share=25%,seed=8")
    assert len(hit("host*:down,share=1%")) == 2  # at least one
    assert len(hit("tor*->agg*:down,share=25%")) == 4


@pytest.mark.parametrize(
    "text",
    ["", "tor0", "tor0:dwn", "tor0:slow", "tor0:slow=2", "tor0:slow=-1", "tor0:slow=nan", "tor0:down,share=0",
     "tor0:down,share=200%", "tor0:down,seed=-1", "tor0:down,what=1", "tor0:down,share", ":down", "tor0--:down", "tor0:slow=x"],
)  # fmt: skip
def test_wrong_faults_are_told(text: str) -> None:
    with pytest.raises(SpecError, match="--fault"):
        parse_fault(text)


@pytest.mark.parametrize("text", ["leaf9:down", "host0--host1:down", "tor0->core0.0:down"])
def test_faults_that_hit_nothing_are_told(text: str) -> None:
    with pytest.raises(SpecError, match="--fault"):
        apply_faults(TREE, [parse_fault(text)])


def test_flaps_are_events_of_cables() -> None:
    link = next(i for i in range(TREE.links) if TREE.names[TREE.link_from[i]] == "tor0" and TREE.names[TREE.link_to[i]] == "agg0.1")
    events = flap_events(TREE, [parse_flap("tor0--agg0.1:down=10us,up=2ms"), parse_flap("agg0.1--tor0:down=3ms")])
    assert [event[1:] for event in events] == [(link // 2 * 2, False), (link // 2 * 2, True), (link // 2 * 2, False)]
    assert [event[0] for event in events] == pytest.approx([1e-5, 2e-3, 3e-3])
    assert len(flap_events(TREE, [parse_flap("tor*--agg*:down=1us,share=25%,seed=2")])) == 4


@pytest.mark.parametrize("text", ["tor0", "tor0:down", "tor0:up=1us", "tor0:down=2us,up=1us", "tor0:down=x", "tor0:down=1us,x=1"])
def test_wrong_flaps_are_told(text: str) -> None:
    with pytest.raises(SpecError, match="--f"):
        parse_flap(text)


SERVED = replace(TREE, node_site=np.array([n if name.startswith("host") else -1 for n, name in enumerate(TREE.names)], np.int32))
"""Each host is a server of its own."""


def faults_of(text: str, timeouts: tuple[float, ...] = (2e-3, 4e-3), retries: int = 7) -> FabricFaults:
    """One flap; routing takes another way after 5 ms."""
    return FabricFaults((text,), flaps=(parse_flap(text),), convergence=5e-3, timeouts=timeouts, retries=retries)


BESIDE, ALONE = "tor0--agg0.1", "host3--tor1"
"""One of two cables of tor0 to switches above it; the only one of a host."""

FLAPS = [
    # cable, sprays, up; until when packets are lost and when they are sent again; shares of the rate over time; all in ms
    (BESIDE, False, 20, (6, 7), [(1, 0.0), (6, 0.5), (25, 1.0)]),  # another way from 1 + 5 on; timers of 2 and 4 end at 3 and 7
    (BESIDE, False, 4, (4, 7), [(1, 0.0), (4, 1.0)]),  # it is back before routing has found one
    (BESIDE, True, 20, None, [(1, 0.5), (20, 1.0)]),  # switches avoid it packet by packet
    (ALONE, False, 20, (20, 23), [(1, 0.0), (20, 1.0)]),  # no other way: 2 + 4 + 4 + 4 + 4 + 4 after 1 ms
    (ALONE, True, 20, (20, 23), [(1, 0.0), (20, 1.0)]),
    ("tor0--agg*", False, 20, (20, 23), [(1, 0.0), (20, 1.0)]),  # both cables at once: none is beside them
]


@pytest.mark.parametrize(("cable", "sprays", "up", "stall", "shares"), FLAPS)
def test_flaps_by_hand(cable: str, sprays: bool, up: int, stall: tuple[int, int] | None, shares: list[tuple[int, float]]) -> None:
    faults = faults_of(f"{cable}:down=1ms,up={up}ms")
    stalls = stalls_of(SERVED, faults, sprays)
    assert [(one.down, one.ready, one.resumed) for one in stalls] == (
        [pytest.approx((1e-3, stall[0] * 1e-3, stall[1] * 1e-3))] if stall else []
    )
    links = sorted({int(link) for event in flap_events(SERVED, faults.flaps) for link in (event[1], event[1] + 1)})
    assert all(np.flatnonzero(one.links).tolist() == links for one in stalls)
    for changes, resumed in ((capacity_changes(SERVED, faults, sprays), 0), (timer_changes(SERVED, faults, sprays), stall)):
        for link in links:
            mine = changes.link == link
            later = [(max(at, resumed[1]) if resumed and share else at, share) for at, share in shares]
            assert changes.time[mine] == pytest.approx([at * 1e-3 for at, _ in later])
            assert changes.capacity[mine] == pytest.approx([share * float(TREE.link_rate[link]) for _, share in later])


def test_senders_give_up_after_their_timers() -> None:
    """4 timers of 2 + 4 + 4 + 4 ms end 15 ms after the start, before the cable is back at 20."""
    with pytest.raises(SpecError, match="back 14 ms after it went down"):
        stalls_of(SERVED, faults_of(f"{ALONE}:down=1ms,up=20ms", retries=4), False)
