"""A switch whose buffer is smaller than what its ports keep: how much it lacks, and a size that is enough."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from drawn import examples
from hypothesis import example, given
from hypothesis import strategies as st

from windtunnel import load
from windtunnel.base.errors import SpecError
from windtunnel.engine.packet import plain_lanes, run_packets
from windtunnel.engine.routes import route
from windtunnel.network import load_flows, parse_fabric
from windtunnel.network.api import collective
from windtunnel.network.flows.api import flows
from windtunnel.network.simulate.packet_settings import PacketSettings
from windtunnel.predict import predict
from windtunnel.spec.loading.load import load_cluster


def least(error: SpecError) -> int:
    return int(re.search(r"at least (\d+) B", error.allowed).group(1))  # type: ignore[union-attr]


def run_call(buffer: int, latency: float, path: str = "fabric.buffer") -> float:
    cluster = load_cluster("h100-roce", [f"{path}={buffer}", f"fabric.hop_latency={latency!r}s", "fabric.leaf_nodes=1"])
    return float(str(collective(cluster, "all_gather", 16, "64K", network="packet")[0]["time_us"]))


@examples(8)
@given(st.floats(1e-7, 3e-4))
def test_the_size_that_an_error_names_is_the_least_that_is_enough(latency: float) -> None:
    with pytest.raises(SpecError, match=r"cluster\.fabric\.buffer: got '10000 B'") as raised:
        run_call(10_000, latency)
    enough = least(raised.value)
    assert run_call(enough, latency) > 0
    with pytest.raises(SpecError, match=r"lacks 1 B"):
        run_call(enough - 1, latency)


def test_flows_name_their_option() -> None:
    def run(buffer: float) -> None:
        flows("fat_tree:k=4", "permutation:bytes=64KiB", "packet", packet=PacketSettings(buffer=buffer))

    with pytest.raises(SpecError, match="--buffer: got '20000 B'") as raised:
        run(20_000)
    run(least(raised.value))


def test_a_step_names_the_field_and_other_fidelities_say_that_they_do_not_read_it() -> None:
    sets = ["model.layers=1", "cluster=h100-roce", "cluster.gpus=16", "plan.global_batch=16", "cluster.fabric.buffer=20kB"]
    job = load("llama3-8b-8xh100", sets)
    with pytest.raises(SpecError, match=r"cluster\.fabric\.buffer"):
        predict(job, "packet")
    for network in ("closed", "flow"):
        assert any("cluster.fabric.buffer" in note for note in predict(job, network).assumptions)


@examples(12)
@given(
    st.sampled_from([1, 64, 512, 1024]), st.sampled_from([256, 1024]), st.sampled_from([1, 4]),
    st.sampled_from(["all_to_all:bytes=64KiB", "all_to_all:bytes=300B", "incast:senders=15,bytes=64KiB"]), st.booleans(),
)  # fmt: skip
@example(1024, 256, 4, "all_to_all:bytes=64KiB", False)
@example(1024, 256, 1, "all_to_all:bytes=64KiB", True)
def test_a_lossless_fabric_drops_nothing_whatever_the_size_of_its_control_frames(
    control: int, mtu: int, over: int, pattern: str, fixed: bool
) -> None:
    """ACKs as large as packets fill the way back, on which a pause waits for its turn."""
    graph = parse_fabric(f"fat_tree:k=4,oversubscription={over}")
    chosen = PacketSettings(cc="none", buffer=1e6, thresholds=(20e3, 12e3) if fixed else None)
    options = replace(chosen.options("ecmp", mtu, 1)[0], control=control)
    traffic = load_flows(pattern, graph.endpoints)
    lanes = plain_lanes(traffic.src, traffic.dst, traffic.bytes, traffic.start)
    run = run_packets(graph, route(graph, traffic.src, traffic.dst), lanes, options)
    assert run.stats["drops"] == 0 and run.stats["retransmits"] == 0
    assert not any(value != value for value in run.delivered)
