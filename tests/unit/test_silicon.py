"""Area and cost of a GPU's silicon: published dies, what makes them larger, and yields by hand."""

from __future__ import annotations

import math

import pytest

from windtunnel.predict.answer.silicon import Silicon, lacks_silicon, silicon_of
from windtunnel.spec import Node, load_cluster


def node(name: str, **fields: object) -> Node:
    found = load_cluster(name).node
    return found.model_copy(update={"gpu": found.gpu.model_copy(update=fields)})


def silicon(name: str, **fields: object) -> Silicon:
    found = silicon_of(node(name, **fields))
    assert found is not None
    return found


@pytest.mark.parametrize(("name", "published"), [("a100-ib", 826.0), ("h100-ib", 814.0)])
def test_dies_are_as_large_as_published(name: str, published: float) -> None:
    """NVIDIA's whitepapers state the dies; transistors and caches come from elsewhere."""
    found = silicon(name)
    assert found.area == pytest.approx(published, rel=0.08)
    assert (found.stacks, found.dies) == (5, 1)


def test_parts_add_up_and_links_are_counted() -> None:
    found = silicon("h100-ib")
    assert sum(found.parts.values()) == pytest.approx(found.area)
    assert found.links == 18
    assert found.dollars == pytest.approx(found.die_dollars + found.memory_dollars + found.package_dollars)


def test_blackwell_does_not_fit_one_reticle() -> None:
    found = silicon("b200-ib")
    assert (found.dies, found.stacks) == (2, 8)


@pytest.mark.parametrize(
    ("field", "factor", "part"), [("l2", 2.0, "L2"), ("memory_bandwidth", 2.0, "memory"), ("memory", 3.0, "memory")]
)
def test_more_of_a_thing_takes_its_part(field: str, factor: float, part: str) -> None:
    before = silicon("a100-ib")
    after = silicon("a100-ib", **{field: getattr(node("a100-ib").gpu, field) * factor})
    assert after.parts[part] >= before.parts[part] * factor * 0.85
    assert all(after.parts[name] == before.parts[name] for name in before.parts if name != part)
    assert after.dollars > before.dollars
    assert after.working < before.working or after.dies > before.dies


def test_matrix_units_grow_with_the_peak() -> None:
    """1,024 multiply-accumulates more in each of 144 built SMs: 25,345 transistors each, 98.3 million a mm2."""
    gpu = node("h100-ib").gpu
    more = 2.0 * 1024 * gpu.clock_hz * gpu.sms
    after = silicon("h100-ib", peak={**gpu.peak, "bf16": gpu.peak["bf16"] + more})
    grown = after.parts["SMs"] - silicon("h100-ib").parts["SMs"]
    assert grown == pytest.approx(132 * 1.0909 * 1024 * 25345 / 98.3e6, rel=1e-6)


def test_spare_sms_save_dies() -> None:
    """Without spares a die works with exp(-defects x area); twelve spare SMs of H100 forgive almost every defect in SMs."""
    found = silicon("h100-ib")
    outside = found.area - found.parts["SMs"]
    assert math.exp(-0.001 * found.area) < found.working <= math.exp(-0.001 * outside)
    assert found.working == pytest.approx(math.exp(-0.001 * outside), rel=1e-6)


@pytest.mark.parametrize(("name", "dies", "stacks", "gigabytes"), [("h100-ib", 1, 5, 85.52), ("b200-ib", 2, 8, None)])
def test_dollars_by_hand(name: str, dies: int, stacks: int, gigabytes: float | None) -> None:
    """Whole dies on a round wafer of 300 mm (pi r^2 / A, less those that its edge cuts, pi d / sqrt(2 A)) at 16,988 dollars; 15
    dollars a GB; 1.7 mm2 of interposer at 30 cents for each mm2 of dies and 110 mm2 of each stack."""
    found = silicon(name)
    one = found.area / dies
    whole = math.pi * 150.0**2 / one - math.pi * 300.0 / math.sqrt(2.0 * one)
    assert found.die_dollars == pytest.approx(dies * 16988 / (whole * found.working), rel=1e-9)
    assert found.package_dollars == pytest.approx(0.30 * 1.7 * (found.area + stacks * 110.0), rel=1e-9)
    if gigabytes is not None:
        assert found.memory_dollars == pytest.approx(15.0 * gigabytes, rel=1e-4)


@pytest.mark.parametrize(
    ("made", "words"),
    [(node("mi300x-roce"), "not of cdna3"), (node("a10"), "stacked memory"), (node("h100-ib", l2=None), "states no SMs")],
)
def test_what_is_not_known_is_said(made: Node, words: str) -> None:
    assert silicon_of(made) is None
    assert words in lacks_silicon(made)
