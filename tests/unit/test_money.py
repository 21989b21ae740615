"""Dollars, joules and CO2 of a cluster by the hour and of a run. Numbers by hand."""

from __future__ import annotations

import pytest

from windtunnel.base.errors import SpecError, UnknownName
from windtunnel.predict import predict
from windtunnel.predict.answer.money import YEAR_HOURS, bill, region_of, run_price, tariff_of
from windtunnel.predict.answer.power import cluster_watts
from windtunnel.predict.sheet.bill import bill_lines
from windtunnel.spec import load_cluster, load_job, load_region, names

BOUGHT = ["gpus=512", "economics.mode=buy", "fabric.topology=rail", "region=france"]


def test_rent_is_gpu_hours_and_includes_power() -> None:
    cluster = load_cluster("h100-ib", ["gpus=512", "price_per_gpu_hour=2.5"])
    price = run_price(tariff_of(cluster), cluster_watts(cluster, 600.0), days=2.0)
    assert price.cost_parts == {"rent": pytest.approx(512 * 2.5 * 48)}
    assert price.cost == pytest.approx(61_440.0)


def test_a_bought_cluster_by_part() -> None:
    """64 nodes of $310,000 over 4 years, a tenth left, used 90 % of the time: 8 switches, 512 links."""
    hour = tariff_of(load_cluster("h100-ib", BOUGHT)).dollars_per_hour
    assert hour is not None
    used = YEAR_HOURS * 0.9
    assert hour["nodes"] == pytest.approx(64 * 310_000 * 0.9 / (4 * used))
    assert hour["network"] == pytest.approx((8 * 36_000 + 512 * 1_280) * 0.9 / (4 * used))
    assert hour["storage"] == pytest.approx(512 * 1_500 * 0.9 / (4 * used))
    assert hour["space"] == pytest.approx(64 * 10.2 * 184 * 12 / used)
    assert hour["people"] == pytest.approx(512 * 500 / used)


def test_power_of_a_bought_cluster_is_paid_by_the_kwh_and_emits_by_region() -> None:
    cluster = load_cluster("h100-ib", BOUGHT)
    watts = cluster_watts(cluster, 600.0)
    price = run_price(tariff_of(cluster), watts, days=10.0)
    kwh = watts.total * 240.0 / 1e3
    assert price.energy_j == pytest.approx(kwh * 3.6e6)
    assert price.cost_parts is not None and price.cost_parts["power"] == pytest.approx(kwh * 0.11)
    assert price.carbon_kg == pytest.approx(kwh * 0.056)


def test_no_price_no_cost_and_no_power_no_energy() -> None:
    cluster = load_cluster("h100-ib", ["price_per_gpu_hour=none", "gpus=8"])
    assert run_price(tariff_of(cluster), None, 1.0).cost is None
    assert run_price(tariff_of(cluster), None, 1.0).energy_j is None
    bought = load_cluster("h100-ib", [*BOUGHT])
    assert run_price(tariff_of(bought), None, 1.0).cost is None  # power is a part of it


def test_a_node_without_a_price_cannot_be_bought() -> None:
    with pytest.raises(SpecError, match="node_dollars"):
        tariff_of(load_cluster("jean-zay", ["economics.mode=buy"]))
    assert tariff_of(load_cluster("jean-zay", ["economics.mode=buy", "economics.node_dollars=80000"])).dollars_per_hour


def test_prices_and_watts_stay_finite() -> None:
    with pytest.raises(SpecError, match="finite"):
        tariff_of(load_cluster("h100-ib", ["economics.mode=buy", "economics.node_dollars=1e308"]))
    with pytest.raises(SpecError, match="finite"):
        predict(load_job("llama2-70b-64xh100", ["cluster.fabric.draw.switch_w=1e308"]))


def test_regions_are_named_or_written() -> None:
    assert region_of(load_cluster("h100-ib")).id == "united-states"
    assert region_of(load_cluster("h100-ib", ["region.base=france", "region.dollars_per_kwh=0.05"])).dollars_per_kwh == 0.05
    with pytest.raises(UnknownName, match="france"):
        load_cluster("h100-ib", ["region=frnce"])
    assert all(load_region(name).g_co2_per_kwh > 0 for name in names("regions"))


def test_a_prediction_carries_its_bill() -> None:
    job = load_job("llama2-70b-64xh100", ["cluster.economics.mode=buy"])
    p = predict(job)
    assert p.cost_parts and p.energy_parts and p.cost and p.energy_j and p.carbon_kg
    assert sum(p.cost_parts.values()) == pytest.approx(p.cost)
    assert sum(p.energy_parts.values()) == pytest.approx(p.energy_j)
    assert p.power_w is not None and p.energy_j_per_step == pytest.approx(p.power_w * p.step_time_s)
    assert p.carbon_kg == pytest.approx(p.energy_j / 3.6e6 * 0.369)
    text = " ".join(bill_lines(p))
    assert "J a token" in text and "a million tokens" in text and "United States" in text


def test_a_run_is_as_many_steps_as_its_tokens_take() -> None:
    """1e12 tokens in steps of 4e6 tokens and 2 s: 250,000 steps, 500,000 s; 8 GPUs at $3 an hour; a step costs 1/250,000 of it."""
    job = load_job("llama3-8b-8xh100", ["tokens=1e12", "cluster.price_per_gpu_hour=3"])
    told = bill(job, 2.0, 4e6, [{"compute": 2.0}])
    hours = 500_000 / 3600
    assert told.days == pytest.approx(hours / 24)
    assert told.cost == pytest.approx(8 * 3.0 * hours)
    assert told.cost_parts == {"rent": pytest.approx(told.cost)}
    assert told.cost_per_step == pytest.approx(8 * 3.0 * 2.0 / 3600)
    assert told.power_w is not None and told.energy_j == pytest.approx(told.power_w * 500_000)
    assert told.energy_j_per_step == pytest.approx(told.power_w * 2.0)
    assert told.carbon_kg == pytest.approx(told.energy_j / 3.6e6 * 0.369)
    assert told.carbon_kg_per_step == pytest.approx(told.carbon_kg / 250_000)


def test_a_job_without_tokens_has_the_bill_of_a_step() -> None:
    job = load_job("llama3-8b-8xh100", ["tokens=none", "cluster.price_per_gpu_hour=3"])
    told = bill(job, 2.0, 4e6, [{"compute": 2.0}])
    assert (told.days, told.cost, told.energy_j, told.carbon_kg) == (None, None, None, None)
    assert told.cost_parts == {"rent": pytest.approx(8 * 3.0 * 2.0 / 3600)}
    assert told.energy_parts is not None and sum(told.energy_parts.values()) == pytest.approx(told.energy_j_per_step)
