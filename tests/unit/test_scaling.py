"""The law of the loss, and decoders of a given size. Numbers by hand or as printed."""

from __future__ import annotations

import pytest

from windtunnel.base.errors import SpecError
from windtunnel.search.budget.planner import decoder
from windtunnel.search.budget.wish import Sizing, compute_for, loss, tokens_for
from windtunnel.spec import load_law, load_model, names
from windtunnel.workload import parameter_count

EPOCH, HOFFMANN = load_law("epoch"), load_law("hoffmann")


def test_the_loss_by_hand() -> None:
    """Powers of ten: 1.69 + 406.4 / 10^3.4 + 410.7 / 10^3.08 for 10^10 parameters and 10^11 tokens."""
    assert loss(HOFFMANN, 1e10, 1e11) == pytest.approx(1.69 + 406.4 / 2511.886 + 410.7 / 1202.264, rel=1e-6)
    assert tokens_for(HOFFMANN, 1e10, loss(HOFFMANN, 1e10, 1e11)) == pytest.approx(1e11)


def test_the_replication_finds_chinchilla() -> None:
    """Hoffmann et al. trained 70 billion parameters on 1.4 trillion tokens as the best for 5.76e23 FLOP; the replication agrees."""
    size, tokens = Sizing(EPOCH).of(5.76e23)
    assert size == pytest.approx(70e9, rel=0.06) and tokens == pytest.approx(1.4e12, rel=0.06)


def test_the_best_split_is_best() -> None:
    for law in (EPOCH, HOFFMANN):
        size, tokens = Sizing(law).of(1e22)
        assert 6 * size * tokens == pytest.approx(1e22)
        best = loss(law, size, tokens)
        for factor in (0.7, 0.95, 1.05, 1.4):
            assert loss(law, size * factor, tokens / factor) > best


def test_compute_with_something_fixed() -> None:
    assert Sizing(EPOCH, parameters=7e9).of(4.2e22) == (7e9, pytest.approx(1e12))
    assert Sizing(EPOCH, tokens=1e12).of(4.2e22) == (pytest.approx(7e9), 1e12)
    assert Sizing(EPOCH, tokens_per_parameter=20).of(6 * 20 * 1e18) == pytest.approx((1e9, 20e9))


@pytest.mark.parametrize("sizing", [Sizing(EPOCH), Sizing(EPOCH, parameters=20e9), Sizing(EPOCH, tokens_per_parameter=50)])
def test_compute_for_a_loss_reaches_it(sizing: Sizing) -> None:
    assert loss(EPOCH, *sizing.of(compute_for(sizing, 2.1))) == pytest.approx(2.1, abs=1e-6)


@pytest.mark.parametrize(
    ("sizing", "target", "why"),
    [
        (Sizing(EPOCH), 1.8, "no model of any size"),
        (Sizing(EPOCH, parameters=1e9), 2.0, "ever more tokens"),
        (Sizing(EPOCH), 40.0, "reach already"),
        (Sizing(EPOCH, tokens=1e6), 2.0, "FLOP reach"),
    ],
)
def test_a_loss_out_of_reach_is_refused(sizing: Sizing, target: float, why: str) -> None:
    with pytest.raises(SpecError, match=why):
        compute_for(sizing, target)


def test_a_law_of_ones_own() -> None:
    assert load_law("epoch", ["E=1.5"]).E == 1.5 and set(names("laws")) == {"epoch", "hoffmann"}
    with pytest.raises(SpecError, match=r"law\.alpha"):
        load_law({"id": "x", "E": 1.0, "A": 1.0, "B": 1.0, "alpha": -1.0, "beta": 0.3})


@pytest.mark.parametrize("billions", [0.5, 1, 3, 8, 13, 32, 70, 175, 405, 1000])
def test_decoders_have_about_the_size_that_is_asked_for(billions: float) -> None:
    model = decoder(billions * 1e9)
    assert parameter_count(model) == pytest.approx(billions * 1e9, rel=0.09)
    assert model.heads % model.groups == 0 and 0.3 < model.hidden / model.layers / 128 < 3.1


def test_the_rule_builds_llama_3() -> None:
    for name, billions in (("llama3-8b", 8.03), ("llama3-70b", 70.55)):
        known, built = load_model(name), decoder(billions * 1e9)
        assert (built.layers, built.hidden, built.heads, built.groups, built.ffn, built.vocab) == (
            known.layers,
            known.hidden,
            known.heads,
            known.groups,
            known.ffn,
            known.vocab,
        )


def test_decoders_end_somewhere() -> None:
    assert parameter_count(decoder(1.0)) < 4e7
    with pytest.raises(SpecError, match="largest"):
        decoder(1e15)
