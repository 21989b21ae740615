"""A step packet by packet against the other networks, and with repeated transfers answered from memory."""

from __future__ import annotations

import pytest
from jobs import make_job

from windtunnel.base.errors import SpecError, UnknownName
from windtunnel.network.api import sweep
from windtunnel.predict import predict
from windtunnel.predict.engines import packet as over_packet
from windtunnel.spec import check, load_cluster, load_job
from windtunnel.spec.job import Job


def small(*sets: str) -> Job:
    """GPT 1.7B on four nodes of an H100 cluster: two stages of two replicas, tp 8."""
    base = ("model=gpt-1.7b", "cluster.gpus=32", "plan.tp=8", "plan.pp=2", "plan.vpp=1", "plan.dp=2", "plan.sharding=zero1",
            "plan.global_batch=32", "plan.seq=2048")  # fmt: skip
    return check(load_job("llama2-70b-64xh100", [*base, *sets]))


def test_the_three_networks_agree_where_little_is_shared() -> None:
    closed, flow, packet = (predict(small(), network) for network in ("closed", "flow", "packet"))
    assert flow.step_time_s == pytest.approx(closed.step_time_s, rel=0.01)
    assert packet.step_time_s == pytest.approx(flow.step_time_s, rel=0.01)
    assert packet.traffic is not None and packet.traffic.engine == "packet"
    assert packet.traffic.events["drops"] == 0.0 and packet.traffic.events["data_packet_hops"] > 1e5


def test_packets_and_fluids_carry_the_same_bytes() -> None:
    flow, packet = (predict(small(), network).traffic for network in ("flow", "packet"))
    assert flow is not None and packet is not None
    moved = {v.name: v.bytes for v in packet.levels}
    for level in flow.levels:  # packets add their ACKs, 64 B for 4 KiB, on the way back
        assert level.bytes <= moved[level.name] <= 1.04 * level.bytes
    assert all(v.max_utilisation <= 1.0 for v in packet.levels)


def test_repeated_transfers_come_from_memory() -> None:
    job = small("cluster.fabric=roce", "plan.pp=4", "plan.dp=1", "plan.sharding=none")
    full, quick = predict(job, "packet"), predict(job, "packet", skip=True)
    assert quick.step_time_s == pytest.approx(full.step_time_s, rel=0.005)
    assert full.traffic is not None and quick.traffic is not None
    assert quick.traffic.events["skipped_share by replay"] > 0.5
    nic = {v.name: v.bytes for v in full.traffic.levels}["NIC → leaf"]
    assert {v.name: v.bytes for v in quick.traffic.levels}["NIC → leaf"] == pytest.approx(nic, rel=0.02)


def test_hash_values_side_by_side_even_out() -> None:
    """Sixteen connections for one spread what one hash puts on one link: less is slowed down, the same bytes go out."""
    sets = ("cluster.fabric=roce", "cluster.fabric.leaf_nodes=2", "plan.pp=4", "plan.dp=1", "plan.sharding=none")
    one, many = (predict(small(*sets, f"cluster.fabric.flows_per_connection={n}"), "packet") for n in (1, 16))
    assert many.step_time_s <= one.step_time_s * (1.0 + 1e-6)  # the links are far from full
    assert one.traffic is not None and many.traffic is not None
    up = [{v.name: v for v in p.traffic.levels}["leaf → spine"] for p in (one, many) if p.traffic is not None]
    assert up[1].max_utilisation < up[0].max_utilisation
    assert up[1].bytes == pytest.approx(up[0].bytes, rel=0.02)


def test_progress_is_told() -> None:
    seen: list[float] = []
    predict(small(), "packet", progress=seen.append)
    assert len(seen) > 3 and seen == sorted(seen) and 0.0 <= seen[0] < seen[-1] <= 1.0


def test_a_step_of_too_many_packets_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(over_packet, "MOST_HOPS", 1e5)
    with pytest.raises(SpecError, match="--network flow"):
        predict(small(), "packet")


def test_congestion_control_is_the_fabrics() -> None:
    """An all-to-all over two leaves, three quarters of the up-links gone: DCQCN marks, HPCC keeps queues below any pause."""
    sets = ["fabric.leaf_nodes=1", "fabric.oversubscription=4"]
    rows = {
        name: sweep(load_cluster("h100-roce", [*sets, f"fabric.congestion={name}"]), "all_to_all", 16, [2**24], network="packet")[0]
        for name in ("none", "dcqcn", "hpcc")
    }
    assert rows["none"]["ecn_marks"] == 0 and int(str(rows["dcqcn"]["ecn_marks"])) > 0 and rows["hpcc"]["ecn_marks"] == 0
    assert rows["hpcc"]["pfc_pauses"] == 0
    with pytest.raises(UnknownName, match=r"fabric\.congestion.*'hpcc'"):
        sweep(load_cluster("h100-roce", ["fabric.congestion=hpc"]), "all_to_all", 16, [2**24], network="packet")


def test_steady_states_of_a_ring_are_skipped() -> None:
    cluster = load_cluster("h100-ib")
    full, quick = (sweep(cluster, "all_reduce", 64, [2**26], network="packet", algorithm="ring", skip=s)[0] for s in (False, True))
    assert float(str(quick["skipped_share"])) > 0.7 and full["skipped_share"] == 0.0
    assert quick["time_us"] == pytest.approx(float(str(full["time_us"])), rel=0.01)
    assert int(str(quick["packet_hops"])) < 0.3 * int(str(full["packet_hops"]))


def test_a_job_inside_one_domain_sends_its_packets_there() -> None:
    job = make_job(dp=2, tp=2, layers=1)
    packets = predict(job, "packet")
    assert packets.step_time_s == pytest.approx(predict(job).step_time_s, rel=1e-3)
    assert packets.traffic is not None and {level.name for level in packets.traffic.levels} == {"GPU → NVSwitch", "NVSwitch → GPU"}
