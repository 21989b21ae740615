"""Faults of a fabric under collectives and steps: what timers say they cost, in flows and packets; wrong ones are named."""

from __future__ import annotations

import io
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from drawn import examples
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from windtunnel import load
from windtunnel.api.json import to_json
from windtunnel.api.prediction_sheet import prediction_sheet
from windtunnel.base.errors import SpecError
from windtunnel.draw.page.sheet import write_page
from windtunnel.draw.terminal import print_sheet
from windtunnel.network.api import collective
from windtunnel.network.simulate.fabric_faults import parse_any
from windtunnel.predict import predict
from windtunnel.predict.prediction import Prediction
from windtunnel.spec.loading.load import load_cluster
from windtunnel.spec.machine import Cluster

NIC = "n0.nic0--leaf0.0"
TICK = 4.096e-6
SMALL = ["model.layers=2", "cluster.gpus=16", "plan.global_batch=16", "plan.seq=512", "model.vocab=8192"]


def cluster(*faults: str, name: str = "h100-ib") -> Cluster:
    whole = load_cluster(name)
    return whole.model_copy(update={"fabric": whole.fabric.model_copy(update={"faults": faults})})


def call(faults: tuple[str, ...], network: str, timeout: int = 8, size: str = "16M") -> dict[str, float]:
    row = collective(cluster(*faults), "all_reduce", 16, size, network=network, settings={"NCCL_IB_TIMEOUT": timeout})[0]
    return {key: float(str(row[key])) * 1e-6 for key in ("time_us", "whole_us") if key in row}


def step(*faults: str, network: str, timeouts: str = "1e-3,2e-3,4e-3") -> Prediction:
    listed = ",".join(f'"{fault}"' for fault in faults)
    sets = [*SMALL, f"cluster.fabric.faults=[{listed}]", f"cluster.node.nic.timeouts=[{timeouts}]"]
    return predict(load("llama3-8b-8xh100", sets), network)


@pytest.mark.parametrize("network", ["flow", "packet"])
@pytest.mark.parametrize("exponent", [7, 9])
def test_a_flap_in_a_collective_costs_its_timer(network: str, exponent: int) -> None:
    timer = TICK * 2**exponent
    took = call((f"{NIC}:down=60us,up=61us",), network, exponent)
    cost = took["time_us"] - took["whole_us"]
    assert 0.9 * timer < cost < timer + 0.5 * took["whole_us"]


@examples(25)
@given(st.integers(1, 8), st.floats(1e-6, 40e-3), st.integers(20, 90))
def test_a_flap_of_flows_lasts_to_the_first_timer_behind_it(exponent: int, lasts: float, down: int) -> None:
    """A call stands still until the first of equal timers that ends when the cable is back; beyond the last it is refused."""
    timer, start = TICK * 2**exponent, down * 1e-6
    fault = f"{NIC}:down={start!r}s,up={start + lasts!r}s"
    waited = next((n * timer for n in range(1, 8) if start + n * timer >= start + lasts), None)
    if waited is None:
        with pytest.raises(SpecError, match=r"cluster\.fabric\.faults.*NCCL_IB_TIMEOUT"):
            call((fault,), "flow", exponent)
        return
    took = call((fault,), "flow", exponent)
    assert took["time_us"] - took["whole_us"] == pytest.approx(waited, rel=1e-6, abs=1e-9)


@examples(10)
@given(st.floats(0.1, 1.0), st.floats(0.1, 1.0))
def test_a_slower_link_is_no_faster(one: float, other: float) -> None:
    slow, fast = (call((f"{NIC}:slow={share!r}",), "flow")["time_us"] for share in sorted((one, other)))
    assert slow >= fast * (1 - 1e-9) and fast >= call((f"{NIC}:slow=1",), "flow")["whole_us"] * (1 - 1e-9)


@pytest.mark.parametrize("rate", ["loss=1e-3", "ber=3e-8"])
def test_lost_packets_cost_timers_and_retransmissions(rate: str) -> None:
    row = collective(cluster(f"{NIC}:{rate}"), "all_reduce", 16, "16M", network="packet", settings={"NCCL_IB_TIMEOUT": 6})[0]
    assert float(str(row["losses"])) > 0 and float(str(row["retransmits"])) > 0
    assert float(str(row["time_us"])) > float(str(row["whole_us"]))


@cache
def busy_moment(network: str) -> float:
    """A moment of the small step at which a flap costs something."""
    whole = step(network=network).step_time_s
    for at in (10, 20, 30, 40, 50, 60, 70, 80, 90):
        share = at / 100
        if step(f"{NIC}:down={share * whole!r}s,up={share * whole + 1e-4!r}s", network=network, timeouts="0.5").faults.cost_s > 0.1:
            return share * whole
    raise AssertionError("no call is on the NIC")


def test_a_flap_in_a_step_costs_what_its_timers_say_in_flows_and_packets() -> None:
    at = busy_moment("flow")
    for lasts, timer in ((1e-4, 0.5), (0.6, 1.0)):
        fault = f"{NIC}:down={at!r}s,up={at + lasts!r}s"
        flow, packet = (step(fault, network=network, timeouts="0.5") for network in ("flow", "packet"))
        hidden = flow.faults.whole_step_time_s
        assert timer - hidden <= flow.faults.cost_s <= timer + 1e-6
        assert packet.faults.cost_s == pytest.approx(flow.faults.cost_s, rel=0.01)
        assert packet.faults.counts["timeouts"] >= 1
        assert flow.step_time_s == pytest.approx(flow.faults.whole_step_time_s + flow.faults.cost_s)


@pytest.mark.parametrize("network", ["flow", "packet"])
def test_bins_of_a_link_show_the_stall_and_add_up(network: str) -> None:
    at = busy_moment("flow")
    fault = f"{NIC}:down={at!r}s,up={at + 1e-4!r}s"
    job = load("llama3-8b-8xh100", [*SMALL, f'cluster.fabric.faults=["{fault}"]', "cluster.node.nic.timeouts=[0.5]"])
    seen = predict(job, network, loads=True).traffic
    assert seen is not None and seen.over_time is not None
    over, edges = seen.over_time, np.arange(len(seen.over_time.mean[0]) + 1) * seen.over_time.width
    for hot, moved in zip(seen.hot, over.hot_bytes, strict=True):
        assert sum(moved) == pytest.approx(hot.bytes, rel=1e-3)
    stalled = (edges[:-1] > at + 0.05) & (edges[1:] < at + 0.45)
    assert stalled.any()
    for level, mean in zip(seen.levels, over.mean, strict=True):
        assert sum(mean) > 0 and not np.array(mean)[stalled].any(), level.name  # the whole step waits for the cable


def test_a_flap_while_nothing_is_on_the_cable_costs_nothing() -> None:
    for network in ("flow", "packet"):
        assert step(f"{NIC}:down=1us,up=2us", network=network).faults.cost_s == pytest.approx(0.0, abs=1e-9)


def test_adaptive_retransmission_costs_less_than_nccls_timer() -> None:
    at = busy_moment("flow")
    fault = f"{NIC}:down={at!r}s,up={at + 1e-4!r}s"
    adaptive, nccl = (step(fault, network="flow", timeouts=timers).faults.cost_s for timers in ("4e-3,16e-3", ""))
    assert adaptive <= 4e-3 + 1e-9 < 4.0 < nccl + step(network="flow").step_time_s


def test_reports_say_what_faults_cost(tmp_path: Path) -> None:
    prediction = step(f"{NIC}:slow=0.1", network="flow")
    assert prediction.faults.cost_s > 0
    console = Console(width=100, record=True, file=io.StringIO())
    print_sheet(prediction_sheet(prediction), console)
    shown = " ".join(console.export_text().split())
    assert f"The fault {NIC}:slow=0.1 of the fabric" in shown and "more a step" in shown
    write_page(prediction_sheet(prediction), str(tmp_path / "page.html"), "windtunnel predict")
    assert "of the fabric" in (tmp_path / "page.html").read_text()
    assert to_json(prediction)["faults"]["cost_s"] == prediction.faults.cost_s
    assert "faults" not in to_json(step(network="flow"))


@pytest.mark.parametrize(
    ("fault", "network", "says"),
    [
        ("nothing9:down", "flow", "the name of a node"),
        (f"{NIC}:up=1ms", "flow", "PATTERN:down"),
        (f"{NIC}:loss=1.5", "packet", "below 1"),
        (f"{NIC}:ber=x", "packet", "below 1"),
        (f"{NIC}:down=2ms,up=1ms", "packet", "down=10us"),
        (f"{NIC}:down=1us", "packet", "NCCL_IB_TIMEOUT"),
        (f"{NIC}:down=1us", "flow", "NCCL_IB_TIMEOUT"),
        (f"{NIC}:loss=1e-4", "flow", "--network packet"),
        (f"{NIC}:down", "closed", "--network flow"),
    ],
)
def test_a_wrong_fault_is_named_with_its_field(fault: str, network: str, says: str) -> None:
    with pytest.raises(SpecError, match=r"cluster\.fabric\.faults") as raised:
        step(fault, network=network)
    assert says in str(raised.value)
    with pytest.raises(SpecError, match=r"cluster\.fabric\.faults"):
        collective(cluster(fault), "all_reduce", 16, "1M", network=network)


@given(st.text(max_size=30))
def test_any_text_is_a_fault_or_refused(text: str) -> None:
    try:
        parse_any(text)
    except SpecError as error:
        assert error.path == "cluster.fabric.faults"
