"""Tables of measured energy and of power caps: how rows are read, and how far predictions are."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from windtunnel.calibrate.power import SHARED, fit_power, written_power
from windtunnel.compute.power import FILE, DrawShares, statics, stored_shares
from windtunnel.reality.rows import measurements
from windtunnel.reality.rows.measurements import fitted_families
from windtunnel.reality.score.power_caps import board_shares, cap_pairs, cap_scores, read_caps, under_cap
from windtunnel.reality.validate import validate

HEAD = "id,family,gpu,dataset,batch,cap_w,epoch_s,mean_power_w\n"


@pytest.fixture(scope="module")
def energy() -> dict[str, list[float]]:
    """Errors by quantity."""
    rows = [score for score in validate([measurements.ENERGY]).rows if score.error_pct is not None]
    assert not any(score.fitted for score in rows)
    return {q: [score.error_pct or 0.0 for score in rows if score.quantity == q] for q in ("node_power_w", "joule_per_token")}


def middle(errors: list[float]) -> float:
    ordered = sorted(map(abs, errors))
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def test_measured_power_and_energy(energy: dict[str, list[float]]) -> None:
    """The project's bar: a median error of at most 10 %. No constant was fitted on these rows."""
    assert len(energy["node_power_w"]) == 17 and middle(energy["node_power_w"]) <= 10.0
    assert len(energy["joule_per_token"]) == 8 and middle(energy["joule_per_token"]) <= 10.0


def test_rows_without_a_known_run_are_skipped_with_their_reason() -> None:
    skipped = {score.id: score.skipped for score in validate([measurements.ENERGY]).rows if score.skipped}
    assert set(skipped) == {"NE018", "NE019", "NE020"} and "not metered" in (skipped["NE020"] or "")


def test_measured_power_caps() -> None:
    """Time and energy over those without a cap, on families that the fit did not see."""
    report = validate([measurements.POWER_CAPS])
    for quantity in ("cap_time_ratio", "cap_energy_ratio"):
        errors = [s.error_pct or 0.0 for s in report.rows if s.quantity == quantity and not s.fitted and s.error_pct is not None]
        assert len(errors) == 44 and middle(errors) <= 5.0


def test_a_run_at_the_limit_is_the_reference() -> None:
    text = HEAD + "a,f,X,d,8,250,100,250\nb,f,X,d,8,125,150,125\nc,f,X,d,16,250,90,240\n"
    pairs = cap_pairs(read_caps(text)[0])
    assert [(pair.row.id, pair.limit.id) for pair in pairs] == [("b", "a")]
    assert (pairs[0].time, pairs[0].energy) == pytest.approx((1.5, 0.75))


def test_a_board_at_its_limit_all_the_time_does_only_products() -> None:
    """Mean power equal to the limit: everything lengthens as products do, by hand from the stored law."""
    text = HEAD + "a,f,X,d,8,200,100,200\nb,f,X,d,8,150,120,150\n"
    time = next(score for score in cap_scores(text, {}) if score.quantity == "cap_time_ratio")
    share = stored_shares()
    room = (150.0 - share.static * 200.0) / (200.0 - share.static * 200.0)
    assert time.predicted == pytest.approx(room ** (-1.0 / 3.0))


@pytest.mark.parametrize("cell", ["", "x", "-5", "nan"])
def test_a_cap_that_is_no_number_is_said(cell: str) -> None:
    scores = cap_scores(HEAD + f"a,f,X,d,8,{cell},100,250\n", {})
    assert len(scores) == 1 and "positive" in (scores[0].skipped or "")


def test_the_stored_constants_are_those_of_the_fit() -> None:
    shared, own, record = fit_power()
    text = FILE.read_text(encoding="utf-8")
    for name, value in shared.items():
        assert getattr(stored_shares(), name) == pytest.approx(value, rel=0.02), name
    assert set(record.rows) and len(own) == 4
    assert written_power(text, {"memory": 0.123}, {"V100": 0.111}).count("0.123") == 1
    fitted = {family for family, quantity in fitted_families() if quantity == "cap_time_ratio"}
    assert fitted == {f"Zeus-{board}-squad" for board in own}


def test_the_rows_of_the_fit_determine_each_fitted_constant() -> None:
    """A tenth more or less of any of them fits worse: none is where the search happened to stop."""
    rows, _ = read_caps(measurements.POWER_CAPS.read_text(encoding="utf-8"))
    fitted = {family for family, quantity in fitted_families() if quantity == "cap_time_ratio"}
    pairs = [pair for pair in cap_pairs(rows) if pair.row.family in fitted]

    def cost(shares: DrawShares) -> float:
        found = [under_cap(pair, board_shares(pair.row.gpu, statics(), shares)) for pair in pairs]
        return sum(
            math.log(time / pair.time) ** 2 + math.log(energy / pair.energy) ** 2
            for pair, (time, energy) in zip(pairs, found, strict=True)
        )

    for name in SHARED:
        for factor in (0.9, 1.1):
            assert cost(replace(stored_shares(), **{name: factor * getattr(stored_shares(), name)})) > 1.001 * cost(
                stored_shares()
            ), name
