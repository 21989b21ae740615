"""Faults: which links a pattern hits, and what becomes of them."""

from __future__ import annotations

import numpy as np
import pytest

from windtunnel.base.errors import SpecError
from windtunnel.network.fabrics import apply_faults, flap_events, parse_fabric, parse_fault, parse_flap

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
