"""Plain flows: files and patterns, times by formula, collisions, the verb."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from windtunnel.base.errors import EngineError, FileError, SpecError, UnknownName
from windtunnel.base.rng import Draws
from windtunnel.cli import main
from windtunnel.engine.flow import closed_flows
from windtunnel.engine.packet import LossRecovery, Spread
from windtunnel.engine.routes import Policy, RouteOptions, route, spread
from windtunnel.network.fabrics import apply_faults, graph_of, parse_fabric, parse_fault, parse_flap
from windtunnel.network.flows.flow_list import load_flows, make_flows, read_flows
from windtunnel.network.flows.run import ROUTINGS, FlowOptions, FlowsResult, flows_json, run_flows
from windtunnel.network.simulate.packet_settings import PacketSettings
from windtunnel.network.simulate.traffic import collisions

TREE = parse_fabric("fat_tree:k=4,link=8Gb/s,latency=1us")  # 1 GB/s


def test_patterns_are_those_of_the_published_runs(shared: Path) -> None:
    for pattern, file in (
        ("permutation:bytes=1MiB", "perm_128_1MB"),
        ("incast:senders=31", "incast_128_31to1_1MB"),
        ("all_to_all:bytes=64KiB", "a2a_128_64KB"),
        ("ring:shift=8,bytes=10MiB", "ring_128_shift8_10MB"),
    ):
        made, read = load_flows(pattern, 128), read_flows(str(shared / "reality" / "network" / f"{file}.csv"), 128)
        for column in ("src", "dst", "bytes", "start"):
            assert (getattr(made, column) == getattr(read, column)).all(), (file, column)


@pytest.mark.parametrize("seed", [0, 1, 7, 2**40 + 3])
def test_draws_are_those_of_cpython(seed: int) -> None:
    ours, theirs = Draws(seed), random.Random(seed)
    mine, yours = list(range(300)), list(range(300))
    ours.shuffle(mine)
    theirs.shuffle(yours)
    assert mine == yours
    assert ours.sample(list(range(127)), 31) == theirs.sample(range(127), 31)


def test_csv(tmp_path: Path) -> None:
    file = tmp_path / "f.csv"
    file.write_bytes(b"\xef\xbb\xbfdst, src,bytes,start_s\r\n1,0,1e3,0.5\r\n\r\n3,2,7,0\r\n")
    flows = read_flows(str(file), 4)
    assert flows.src.tolist() == [0, 2] and flows.dst.tolist() == [1, 3] and flows.bytes.tolist() == [1000, 7]
    assert flows.start.tolist() == [0.5, 0.0]
    file.write_text("src,dst,bytes\n0,1,5")
    assert read_flows(str(file), 4).start.tolist() == [0.0]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("src,dst,bytes,when\n0,1,2,3\n", "start_s|when"),
        ("src,dst\n0,1\n", "bytes"),
        ("src,dst,bytes,bytes\n0,1,1,1\n", "once"),
        ("src,dst,bytes\n", "at least one flow"),
        ("src,dst,bytes\n0,1,2\n0,x,3\n", "row 2"),
        ("src,dst,bytes\n0,1,2\n0,1\n3,1,1,1\n", "row 2"),
        ("src,dst,bytes\n0,1,2\n0,99,3\n", "row 2, dst.*99.*0 to 3"),
        ("src,dst,bytes\n-1,1,2\n", "row 1, src.*-1"),
        ("src,dst,bytes\n0,1,-5\n", "row 1, bytes.*-5"),
        ("src,dst,bytes\n0,1,nan\n", "row 1, bytes.*nan"),
        ("src,dst,bytes\n0,1,1.5\n", "row 1, bytes"),
        ("src,dst,bytes\n0,1,inf\n", "row 1, bytes"),
        ("src,dst,bytes\n0.5,1,1\n", "row 1, src"),
        ("src,dst,bytes,start_s\n0,1,1,-1\n", "row 1, start_s"),
        ("", "src"),
    ],
)
def test_wrong_files_are_told(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "f.csv"
    file.write_text(text)
    with pytest.raises(SpecError, match=rf"(?s){told}"):
        read_flows(str(file), 4)


def test_wrong_patterns_are_told(tmp_path: Path) -> None:
    for text, kind in (("permutatoin", UnknownName), ("permutation:sed=1", UnknownName), ("permutation:seed=x", SpecError),
                       ("permutation:seed=-1", SpecError), ("incast:dst=9", SpecError), ("incast:senders=4", SpecError),
                       ("ring:bytes=-1", SpecError), ("none.csv", FileError), (str(tmp_path), FileError)):  # fmt: skip
        with pytest.raises(kind):
            load_flows(text, 4)
    with pytest.raises(SpecError, match="at least two"):
        load_flows("permutation", 1)
    with pytest.raises(SpecError, match="at most"):
        load_flows("all_to_all", 20_000)


@pytest.mark.parametrize("network", ["closed", "flow"])
def test_one_flow_alone(network: str) -> None:
    for dst, hops in ((1, 2), (3, 4), (15, 6)):
        for until, back in (("delivered", 0.0), ("acked", hops * (1e-6 + 64e-9))):
            result = run_flows(TREE, make_flows([0], [dst], [10_000], [2.0], 16), FlowOptions(network, until=until))
            # bytes, propagation, and the last packet stored once more in each switch
            assert result.fct[0] == pytest.approx(1e-5 + hops * 1e-6 + (hops - 1) * 4096e-9 + back, abs=1e-12)
    small = run_flows(TREE, make_flows([0], [1], [100], [0.0], 16), FlowOptions(network, until="delivered"))
    assert small.fct[0] == pytest.approx(2e-6 + 2 * 100e-9, abs=1e-12)


def test_a_shared_link_serves_equally_from_the_starts_on() -> None:
    def times(sizes: list[float], starts: list[float]) -> list[float]:
        paths = route(TREE, [1, 2, 3][: len(sizes)], [0] * len(sizes))
        return (closed_flows(TREE, paths, sizes, starts) * 1e6).round(9).tolist()

    assert times([1000, 1000, 4000], [0, 0, 0]) == [3.0, 3.0, 6.0]  # us: a third each, then the rest of the large one alone
    # 1000 alone for 0.5 us, half each for 1 us until it ends; then 500 of the second one are left
    assert times([1000, 1000], [0, 0.5e-6]) == [1.5, 1.5]
    assert times([1000, 1000], [0, 5e-6]) == [1.0, 1.0]
    assert times([1000, 1000], [5e-6, 0]) == [1.0, 1.0]


@pytest.mark.parametrize("pattern", ["permutation:bytes=1MiB", "incast:senders=7,bytes=1MiB", "all_to_all:bytes=64KiB"])
def test_fluid_and_formula_agree_where_they_must(pattern: str) -> None:
    flows = load_flows(pattern, TREE.endpoints)
    formula, fluid = (run_flows(TREE, flows, FlowOptions(network)) for network in ("closed", "flow"))
    assert (fluid.fct <= formula.fct * (1 + 1e-9)).all()  # equal flows that start together
    np.testing.assert_allclose(fluid.link_bytes, formula.link_bytes)
    for result in (formula, fluid):
        assert max(float(str(link["utilisation"])) for link in result.hot_links()) <= 1.0
    if pattern.startswith("incast"):
        bound = 7 * 2**20 / 1e9
        assert fluid.makespan() == pytest.approx(bound, rel=0.02) and formula.makespan() == pytest.approx(bound, rel=0.02)


@pytest.mark.parametrize("hops", [2, 4, 6])
def test_packets_agree_with_the_formula_where_nothing_is_shared(hops: int) -> None:
    flows = make_flows([0], [{2: 1, 4: 3, 6: 15}[hops]], [2**20], [0.5], 16)
    formula, packet = (run_flows(TREE, flows, FlowOptions(network)) for network in ("closed", "packet"))
    assert packet.fct[0] == pytest.approx(formula.fct[0], rel=0.01)
    assert packet.stats["data_packet_hops"] == 256 * hops and packet.stats["ack_packet_hops"] == 256 * hops


@pytest.mark.parametrize("routing", [name for name in ROUTINGS if ROUTINGS[name] is None])
def test_packets_choose_on_the_way(routing: str) -> None:
    flows = load_flows("permutation:bytes=256KiB", TREE.endpoints)
    result = run_flows(TREE, flows, FlowOptions("packet", routing))
    assert result.collisions is None and (result.fct > 0).all() and result.finished
    assert result.link_bytes.sum() >= flows.bytes.sum() * 2


def test_packets_take_the_settings_of_the_user() -> None:
    flows = load_flows("incast:senders=9,bytes=256KiB", TREE.endpoints)

    def run(**settings: object) -> FlowsResult:
        return run_flows(TREE, flows, FlowOptions("packet", packet=PacketSettings(**settings)))  # type: ignore[arg-type]

    paused = run(cc="none", buffer=2e5)
    assert paused.stats["pfc_pauses"] > 0 and paused.stats["drops"] == 0
    dropped = run(cc="none", buffer=2e5, loss="drop")
    assert dropped.stats["drops"] > 0 and dropped.stats["pfc_pauses"] == 0
    assert run(cc="none", loss="credits").stats["drops"] == 0
    assert run(cc="dcqcn").stats["ecn_marks"] > 0 and run(cc="dcqcn").assumed["congestion_control"]
    few = run(cc="none", ack_every=4)
    assert few.stats["ack_packet_hops"] < few.stats["data_packet_hops"] / 3
    assert (run(threads=1).fct == run(threads=3).fct).all()
    bound = 9 * 2**18 / 1e9
    assert paused.makespan() == pytest.approx(bound, rel=0.05)


@pytest.mark.parametrize(
    ("settings", "told"),
    [({"cc": "dcqn"}, "dcqcn"), ({"loss": "pcf"}, "pfc"), ({"recovery": "x"}, "selective"), ({"threads": 0}, "threads"),
     ({"buffer": -1.0}, "buffer"), ({"ack_every": 0}, "ack"), ({"header": -1}, "header")],
)  # fmt: skip
def test_wrong_settings_are_told(settings: dict[str, object], told: str) -> None:
    with pytest.raises(SpecError, match=told):
        PacketSettings(**settings).options("ecmp", 4096, 1)  # type: ignore[arg-type]


def test_a_cable_that_goes_down_loses_time_and_nothing_else() -> None:
    flows = make_flows([0], [4], [2**20], [0.0], 16)
    calm = run_flows(TREE, flows, FlowOptions("packet", packet=PacketSettings(cc="none")))
    way = route(TREE, [0], [4]).links
    name = "--".join(TREE.names[n] for n in (TREE.link_from[way[1]], TREE.link_to[way[1]]))
    broken = PacketSettings(cc="none", flaps=(parse_flap(f"{name}:down=100us"),), convergence=1e-4)
    rough = run_flows(TREE, flows, FlowOptions("packet", packet=broken))
    assert rough.finished and rough.fct[0] > calm.fct[0] + 1e-4
    assert rough.stats["losses"] > 0 and rough.stats["retransmits"] > 0
    assert rough.link_bytes[way[-1]] > 2**20 / 2  # it arrived over another way


@pytest.mark.parametrize(
    ("routing", "recovery", "spread", "chosen"),
    [
        ("ecmp", "", Spread.PATH, LossRecovery.GO_BACK_N),
        ("ecmp", "selective", Spread.PATH, LossRecovery.SELECTIVE),
        ("spray", "", Spread.ROUND, LossRecovery.SELECTIVE),  # packets of a flow arrive in any order
        ("adaptive", "", Spread.ADAPTIVE, LossRecovery.SELECTIVE),
        ("flowlet", "go-back-n", Spread.FLOWLET, LossRecovery.GO_BACK_N),
    ],
)
def test_what_is_sent_again_follows_the_routing(routing: str, recovery: str, spread: Spread, chosen: LossRecovery) -> None:
    options, _ = PacketSettings(recovery=recovery).options(routing, 4096, 1)
    assert (options.spread, options.recovery, options.xoff, options.xon) == (spread, chosen, 0.0, 0.0)
    paused, _ = PacketSettings(thresholds=(2e5, 1e5)).options(routing, 4096, 1)
    assert (paused.xoff, paused.xon) == (2e5, 1e5)


def test_a_run_that_is_stopped_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def reports(*_: object, progress: Callable[[float], None], **__: object) -> None:
        progress(0.5)
        raise AssertionError("the run went on")

    monkeypatch.setattr("windtunnel.network.flows.run.run_fluid", reports)
    shares = []
    flows = make_flows([0, 1, 2], [1, 1, 3], [5, 0, 7], 0.0, TREE.endpoints)
    stopped = run_flows(TREE, flows, FlowOptions("flow"), lambda share: shares.append(share) is None)
    assert shares == [0.5] and not stopped.finished and stopped.summary()["max"] == 0.0
    data = json.loads(flows_json(stopped, "tree"))
    assert [flow["fct_s"] for flow in data["flows"]] == [None, 0.0, None] and data["finished"] is False


def test_spread_and_collisions_by_hand() -> None:
    star = graph_of(
        {
            "nodes": [{"name": "h", "kind": "host", "count": 4}, {"name": "leaf", "count": 2}, {"name": "spine", "count": 2}],
            "links": [
                *({"from": f"h{i}", "to": f"leaf{i // 2}", "rate": "8Gb/s"} for i in range(4)),
                *({"from": f"leaf{i}", "to": f"spine{j}", "rate": "8Gb/s"} for i in range(2) for j in range(2)),
            ],
        }
    )
    even = spread(star, [0, 1], [2, 3], [1.0, 1.0])
    assert even[star.link_from == 0].tolist() == [1.0] and sorted(even[star.link_axis == -1].tolist())[-8:] == [1.0] * 8
    static = RouteOptions(Policy.FIRST)  # both on the first spine
    met = collisions(star, route(star, [0, 1], [2, 3], options=static), [0, 1], [2, 3], [500, 500], static)
    assert (met.links, met.worst_factor, met.mean_factor, met.worst_flows) == (8 - 4, 2.0, 2.0, 2)
    assert met.worst_flows_even == 1.0
    alone = collisions(star, route(star, [0], [2], options=static), [0], [2], [500], static)
    assert (alone.worst_factor, alone.mean_factor) == (1.0, 1.0)  # one flow on a link is no collision


def test_up_links_of_twice_the_rate_have_no_collision_of_two() -> None:
    def worst(rate: str) -> float:
        graph = graph_of(
            {
                "nodes": [{"name": "h", "kind": "host", "count": 4}, {"name": "leaf", "count": 2}, {"name": "spine", "count": 2}],
                "links": [
                    *({"from": f"h{i}", "to": f"leaf{i // 2}", "rate": "8Gb/s"} for i in range(4)),
                    *({"from": f"leaf{i}", "to": f"spine{j}", "rate": rate} for i in range(2) for j in range(2)),
                ],
            }
        )
        static = RouteOptions(Policy.FIRST)
        return collisions(graph, route(graph, [0, 1], [2, 3], options=static), [0, 1], [2, 3], [500, 500], static).worst_factor

    assert (worst("8Gb/s"), worst("16Gb/s")) == (2.0, 1.0)


def test_nothing_to_send_ends_as_it_starts() -> None:
    flows = make_flows([0, 1, 2], [0, 2, 3], [500, 0, 1000], [0.0, 1.0, 2.0], TREE.endpoints)
    assert run_flows(TREE, flows).fct.tolist()[:2] == [0.0, 0.0]
    nothing = run_flows(TREE, make_flows([0], [0], [500], [0.0], TREE.endpoints))
    assert nothing.summary()["max"] == 0.0 and nothing.hot_links() == [] and nothing.makespan() == 0.0


def test_a_partition_names_both_ends() -> None:
    cut = apply_faults(TREE, [parse_fault("tor0:down")])
    with pytest.raises(SpecError, match=r"0 \(host0\) to 5 \(host5\).*partitioned"):
        run_flows(cut, make_flows([3, 0], [4, 5], [1, 1], [0.0, 0.0], 16))


def test_options_are_checked() -> None:
    flows = make_flows([0], [1], [1], [0.0], 16)
    for options, kind in ((FlowOptions(network="flwo"), UnknownName), (FlowOptions(routing="ecpm"), UnknownName),
                          (FlowOptions(nic="near"), UnknownName), (FlowOptions(routing="spray"), SpecError)):  # fmt: skip
        with pytest.raises(kind):
            run_flows(TREE, flows, options)
    with pytest.raises(EngineError, match="seed"):
        run_flows(TREE, flows, FlowOptions(seed=-1))


def test_the_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "o.json"
    assert main(["flows", "--fabric", "fat_tree:k=4", "--flows", "permutation:bytes=1MiB", "--json", str(out)]) == 0
    assert "completion time" in capsys.readouterr().out
    data = json.loads(out.read_text())
    assert len(data["flows"]) == 16 and set(data["flows"][0]) == {"src", "dst", "bytes", "start_s", "fct_s"}
    assert list(data["fct_s"]) == sorted(["min", "p50", "mean", "p99", "max"])
    assert {"data_packet_hops", "ack_packet_hops", "events", "drops", "pfc_pauses", "ecn_marks", "cpu_s"} <= set(data["stats"])
    assert data["finished"] and data["collisions"]["links"] > 0 and data["links"] and data["assumed"]
    assert main(["flows", "--fabric", "fat_tree:k=4", "--flows", "ring", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["network"] == "closed"


def test_series_of_an_incast(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two senders into one port of 100 Gb/s: half of what comes in waits, and the rest goes out at the port's rate."""
    flows = tmp_path / "flows.csv"
    flows.write_text("src,dst,bytes,start_s\n5,5,9,0\n1,0,3000000,0\n4,0,3000000,0\n")
    line = [
        "flows",
        "--fabric",
        "fat_tree:k=4,link=100Gb/s",
        "--flows",
        str(flows),
        "--network",
        "packet",
        "-q",
        "--cc",
        "none",
        "--buffer",
        "1GB",
        "--no-pfc",
        "--watch",
        "2",
    ]
    for name in ("s.csv", "s.json"):
        assert main([*line, "--series", str(tmp_path / name), "--sample", "100us"]) == 0
    data = json.loads((tmp_path / "s.json").read_text())
    assert data["time_s"][:3] == [0.0, 1e-4, 2e-4]
    links = {one["of"]: one for one in data["series"] if "queue_B" in one}
    rates = {one["of"]: one for one in data["series"] if "rate_Bps" in one}
    assert len(links) == 2 and set(rates) == {"flow 1", "flow 2"}  # flow 0 needs no network
    port = links["tor0->host0"]
    assert port["queue_B"][1] == pytest.approx(1.25e6, rel=0.1) and port["sent_B"][1] == pytest.approx(1.25e6, rel=0.05)
    assert set(port["pfc_pauses"]) == {0} and port["sent_B"][4] == pytest.approx(5e6, rel=0.02)
    assert sum(one["acked_B"][4] for one in rates.values()) == pytest.approx(5e6, rel=0.02)
    assert set(rates["flow 1"]["cnps"]) == {0} and rates["flow 1"]["rate_Bps"][1] == 12.5e9
    rows = (tmp_path / "s.csv").read_text().splitlines()
    assert rows[0] == "time_s,of,quantity,value" and len(rows) == 1 + 4 * 3 * len(data["time_s"])


def test_skipping_says_where_it_works(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["flows", "--fabric", "fat_tree:k=4", "--flows", "permutation", "--network", "packet", "--skip"]) == 2
    assert "windtunnel collective --network packet --skip" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--fabric", "fat_tre"], "fat_tree"),
        (["--fault", "nowhere:down"], "--fault"),
        (["--flows", "nothing"], "--flows"),
        (["--network", "pakcet"], "--network"),
        (["--routing", "ecpm"], "ecmp"),
        (["--nic", "x"], "--nic"),
        (["--fault", "tor0:down"], "partitioned"),
        (["--json", "/nowhere/at/all.json"], "--json"),
        (["--series", "q.csv"], "--network packet"),
        (["--series", "q.txt", "--network", "packet"], ".csv or .json"),
        (["--series", "q.csv", "--network", "packet", "--sample", "0s"], "--sample"),
        (["--series", "q.csv", "--network", "packet", "--watch", "0"], "--watch"),
    ],
)
def test_the_verb_tells_what_is_wrong(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    base = {"--fabric": "fat_tree:k=4", "--flows": "permutation"}
    given = dict(zip(arguments[::2], arguments[1::2], strict=True))
    line = [part for pair in {**base, **given}.items() for part in pair]
    assert main(["flows", *line]) == 2
    error = capsys.readouterr().err
    assert told in error and error.count("\n") == 1
