"""Plain flows under a step, and checkpoints that are saved to storage servers on the compute fabric."""

from __future__ import annotations

from pathlib import Path

import pytest

import windtunnel as wt
from windtunnel.api.prediction_sheet import prediction_sheet
from windtunnel.base.errors import WindtunnelError
from windtunnel.draw.page.sheet import page
from windtunnel.engine.graph import NodeKind
from windtunnel.goodput.run import BESIDE
from windtunnel.memory.state import state_bytes_of
from windtunnel.network.fabrics import cluster_graph
from windtunnel.predict import Prediction, predict
from windtunnel.predict.sheet.others import saving_sentence
from windtunnel.spec import Job, check, load_cluster, load_job

SMALL = (
    "model.layers=2", "plan.seq=2048", "plan.tp=1", "cluster.gpus=16", "plan.dp=16", "plan.global_batch=16", "tokens=1e11",
    "cluster.fabric.leaf_nodes=1", "cluster.fabric.oversubscription=4", "reliability=llama3-2024",
)  # fmt: skip
STORAGE = ("cluster.fabric.storage.servers=2",)


def job(*more: str) -> Job:
    return check(load_job("llama3-8b-8xh100", [*SMALL, *more]))


def beside(*background: str) -> Prediction:
    return predict(job(), "flow", background=background)


def test_flows_on_the_steps_links_slow_it() -> None:
    shared = beside("ring:shift=8,bytes=20MiB@5ms").sharing
    assert shared is not None
    own, flows = shared.traffics
    assert own.mean_s > 1.02 * own.alone_s and (flows.kind, flows.name) == ("flows", "flows")
    assert flows.alone_s == pytest.approx(5e-3, rel=1e-6) or flows.alone_s > 5e-3
    assert shared.links and set(shared.links[0].asked) == {"llama3-8b-8xh100", "flows"}


def test_flows_inside_a_node_on_other_links_change_nothing() -> None:
    """A message of a kilobyte now and then is lost in a step."""
    shared = beside("incast:dst=0,senders=1,bytes=1KiB@50ms").sharing
    assert shared is not None and shared.traffics[0].mean_s == pytest.approx(shared.traffics[0].alone_s, rel=1e-3)


def test_more_flows_never_make_a_step_faster() -> None:
    seconds = [beside(f"ring:shift=8,bytes={size}MiB@5ms").sharing.traffics[0].mean_s for size in (1, 8, 32)]  # type: ignore[union-attr]
    assert all(more >= less * (1 - 1e-3) for less, more in zip(seconds, seconds[1:], strict=False))


def test_flows_of_a_file_begin_at_their_starts(tmp_path: Path) -> None:
    path = tmp_path / "flows.csv"
    path.write_text("src,dst,bytes,start_s\n0,8,1000000,1.0\n8,0,1000000,1.02\n")
    shared = beside(str(path)).sharing
    assert shared is not None and 0.02 < shared.traffics[1].alone_s < 0.021


@pytest.mark.parametrize(
    ("text", "network", "words"),
    [
        ("ring:shift=8@5ms", "closed", "--background.*--network flow"),
        ("ring:shift=8@soon", "flow", "--background.*FLOWS@PERIOD"),
        ("missing.csv", "flow", r"missing\.csv"),
        ("incast:dst=99,senders=1", "flow", "99"),
    ],
)
def test_flows_that_are_none_are_named(text: str, network: str, words: str) -> None:
    with pytest.raises(WindtunnelError, match=words):
        predict(job(), network, background=[text])


def test_storage_servers_are_hosts_on_the_leaves() -> None:
    machine = load_cluster("h100-ib", ["fabric.storage.servers=3", "fabric.storage.bandwidth=200Gb/s", "fabric.leaf_nodes=2"])
    placed = cluster_graph(machine, 4)
    graph = placed.graph
    hosts = graph.endpoint[placed.storage]
    assert (graph.node_kind[hosts] == NodeKind.HOST).all() and len(placed.endpoint) == 32 and len(hosts) == 3
    up = graph.link_from.tolist().index(int(hosts[0]))
    assert graph.link_rate[up] == pytest.approx(25e9 * machine.fabric.efficiency)
    leaves = [graph.names[graph.link_to[graph.link_from == host][0]] for host in hosts]
    assert leaves == ["leaf0.0", "leaf1.0", "leaf0.1"]


def test_a_save_on_the_fabric_slows_steps_and_is_given_to_goodput() -> None:
    prediction = predict(job(*STORAGE), "flow")
    saving = prediction.saving
    assert saving is not None and saving.servers == 2
    assert saving.bytes == state_bytes_of(job()).total
    assert saving.whole_step_time_s == prediction.step_time_s and saving.slowdown > 0.02
    rate = 2 * 50e9 * job().cluster.fabric.efficiency
    assert saving.alone_s >= 0.999 * saving.bytes / rate and saving.beside_s >= 0.999 * saving.alone_s
    assert saving_sentence(saving) in page(prediction_sheet(prediction)).replace("&#39;", "'")
    run = wt.goodput(job(*STORAGE), replicas=0, network="flow")
    assert run.conditions.checkpoint.drag == pytest.approx(BESIDE + saving.slowdown)
    assert run.conditions.checkpoint.flush == pytest.approx(saving.beside_s)


def test_the_storages_own_rate_bounds_a_save() -> None:
    saving = predict(job(*STORAGE, "reliability.checkpoint.write=1GB/s"), "flow").saving
    assert saving is not None and saving.alone_s == pytest.approx(saving.bytes / 1e9, rel=0.01)
    fast = predict(job(*STORAGE), "flow").saving
    assert fast is not None and 0.0 <= saving.slowdown + 1e-3 < fast.slowdown


@pytest.mark.parametrize(
    "sets",
    [(), (*STORAGE, "reliability.checkpoint.flush_over=own"), (*STORAGE, "reliability.checkpoint.mode=blocking")],
)
def test_a_save_elsewhere_meets_nothing(sets: tuple[str, ...]) -> None:
    assert predict(job(*sets), "flow").saving is None


def test_storage_changes_no_step_by_itself() -> None:
    assert predict(job(*STORAGE), "flow").step_time_s == pytest.approx(predict(job(), "flow").step_time_s, rel=1e-3)
    assert predict(job(*STORAGE)).step_time_s == predict(job()).step_time_s
