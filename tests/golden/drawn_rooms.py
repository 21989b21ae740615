"""Answers of rooms' own functions to inputs that whole answers seldom reach: groups, channels and calls on every kind of machine,
their traffic on fabrics, runs with failures of every kind. Each takes a fraction of a second."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from folding import digest, folded, folded_list
from varied import or_refused, said, unit

import windtunnel as wt
from windtunnel.base.comm import Comm

MACHINES = ("h100-ib", "a100-ib", "b200-roce", "gb200-nvl72", "dgx-1v", "dgx-2", "aws-p4d", "aws-p5", "h800-ib", "h100-nvl", "l40s",
            "a100-pcie", "rtx-3090", "mi300x-roce", "mi250x-slingshot", "gaudi3", "aws-trn2", "grand-teton", "megascale",
            "gh200-ib", "b300-ib")  # fmt: skip
CALLS = (Comm.ALL_REDUCE, Comm.ALL_GATHER, Comm.REDUCE_SCATTER, Comm.ALL_TO_ALL, Comm.SEND_RECV, Comm.BROADCAST)
SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"NCCL_COLLNET_ENABLE": 1, "NCCL_ALGO": "CollNetDirect,CollNetChain,NVLS,NVLSTree", "NCCL_PROTO": "Simple"},
    {"NCCL_MAX_CTAS": 6, "NCCL_BUFFSIZE": 1048576, "NCCL_ALGO": "Ring,Tree"},
    {"NCCL_MIN_NCHANNELS": 24, "NCCL_PXN_DISABLE": 1, "NCCL_IB_QPS_PER_CONNECTION": 4, "NCCL_NCHANNELS_PER_NET_PEER": 4},
)


CHANGED = (
    ("l40s", "node.scale_up.bandwidth=10GB/s per GPU each way"),
    ("h100-ib", "node.nic.count=2", "fabric.leaf_nodes=2", "fabric.pod_nodes=8", "fabric.oversubscription=3"),
    ("a100-ib", "node.nic.bandwidth=400Gb/s", "fabric.topology=rail_only"),
    ("b200-roce", "node.scale_up.bandwidth=300GB/s per GPU each way", "fabric.routing=ecmp", "fabric.ecmp_efficiency=0.7"),
)


def _shapes(cluster: Any) -> list[Any]:
    from windtunnel.network import flat_group

    size = cluster.domain
    asked = ((size, None, 1), (2, None, 1), (4 * size, None, 1), (2 * size, 1, size), (40 * size, None, 1), (3 * size, 2, 2))
    found = [or_refused(lambda one=one: flat_group(cluster, *one)) for one in asked]
    return [one for one in found if not isinstance(one, list) and one.ranks > 1]


def _channels(name: str, *changes: str) -> Any:
    """Groups of a machine, their links, the channels that NCCL has for them, and its own estimates."""
    from windtunnel.network.groups.bandwidth import above_leaf, group_links, hash_gain, uplink_share
    from windtunnel.network.nccl import channels
    from windtunnel.network.nccl.settings import parse_settings
    from windtunnel.network.nccl.tuner import options, pieces

    cluster, answers = wt.load_cluster(name, ["gpus=4096", *changes]), []
    for group in _shapes(cluster):
        links = or_refused(lambda group=group: group_links(cluster, group))
        if isinstance(links, list):
            continue
        shares = [
            uplink_share(cluster, group, comm, rails, thin) for comm in CALLS[2:4] for rails in (1, 4) for thin in (True, False)
        ]
        answers.append([folded(vars(group)), folded(vars(links)), shares, hash_gain(cluster, group, 4)])
        answers.append([above_leaf(cluster, links).inter, above_leaf(cluster, links).hop, channels.rails_of(cluster, group)])
        for table in SETTINGS:
            settings = parse_settings(table)
            graph = channels.graph(group, links, settings)
            sends = [
                [one.of(size), one.count_busy(size, 3), float(one.at_once(size))]
                for one in (graph.sends, graph.usual_sends) for size in (3e3, 3e5, 3e7)
            ]  # fmt: skip
            answers.append([folded(vars(graph)), sends, graph.limit, graph.reach(links.nics)])
            answers.append([channels.crosses_rails(cluster, group, settings), channels.relays_sends(cluster, settings)])
            for comm in CALLS[:4] if links.nvidia else ():
                told = [[*one[2:]] for one in options(comm, group, links, graph, settings)]
                kept = [[*one] for one in pieces(comm, group, links, graph, settings)]
                answers.append([told, len(told), kept[:6]])
    return digest(answers)


def _calls(name: str) -> Any:
    """Calls of groups of a machine in closed form, chosen and bounded."""
    from windtunnel.network.closed.collective import bus_factor, greatest_rate, prepare
    from windtunnel.network.nccl.settings import parse_settings

    cluster, answers = wt.load_cluster(name, ["gpus=4096"]), []
    for group, table, comm in product(_shapes(cluster), SETTINGS, CALLS):
        settings = parse_settings(table)
        setup = or_refused(lambda group=group, comm=comm, settings=settings: prepare(cluster, comm, group, settings))
        if isinstance(setup, list):
            continue
        rows = []
        for size in (2e3, 3e5, 2e7, 3e9):
            cost, algorithm, protocol, running = setup.best(size)
            parts = setup.parts(size, algorithm, protocol)
            rows.append([cost.seconds, cost.latency, running, setup.count_held(size), *parts, setup.greatest_rate(size)])
            rows[-1].append(greatest_rate(cluster, comm, group, size, settings))
        answers.append([rows, bus_factor(comm, group.ranks), setup.relative_error])
    return digest(answers)


def _searched(name: str) -> Any:
    """What NCCL's search finds on a node, and the channels and calls that its dump states."""
    import tempfile
    from pathlib import Path

    from windtunnel.exports.nccl_graph import export_cluster
    from windtunnel.network import flat_group
    from windtunnel.network.nccl.search import links_of, search_graphs

    cluster, answers = wt.load_cluster(name, ["gpus=64"]), []
    links = links_of(cluster.node)
    answers.append([folded_list(list(links.room.values())), links.gpus, links.nics])
    ways = [links.way(a, b) for a in range(len(links.kind)) for b in range(len(links.kind)) if a != b]
    answers.append([folded_list([len(one) for one in ways]), folded_list([sum(one) for one in ways])])
    answers.append(["".join(links.type_of(one)[-1] for one in ways if one)])
    for nodes in (1, 2):
        for one in search_graphs(cluster.node, nodes):
            answers.append([one.pattern, one.channels, one.intra, one.inter, one.type_intra, one.type_inter])
            answers.append([folded_list(np.ravel(one.orders)), folded_list(np.ravel(one.nets))])
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "graph.xml"
            path.write_text(str(next(iter(export_cluster(cluster, {"nodes": str(nodes)}).files.values()))), encoding="utf-8")

            def row(comm: Comm, nodes: int = nodes, path: Path = path) -> Any:
                from windtunnel.network import collective

                group = flat_group(cluster, nodes * cluster.node.gpus)
                found = [collective(cluster, comm, size, group, settings={"NCCL_GRAPH_FILE": str(path)}) for size in (3e4, 3e8)]
                return [[one.seconds, one.latency, one.channels] for one in found]

            answers.append([or_refused(partial(row, comm)) for comm in CALLS[:4]])
    return digest(answers)


AXES = (
    ("h100-ib", ("fabric.leaf_nodes=2",), "tp"),
    ("h100-ib", ("fabric.leaf_nodes=1", "fabric.ecmp_efficiency=0.8", "placement=random"), "dp"),
    ("aws-p5", ("fabric.flows_per_connection=3",), "dp"),
    ("h100-ib", ("fabric.leaf_nodes=1", "fabric.faults=['leaf*.*--spine*:slow=0.5']", "placement=nodes:3,2,1,0"), "pp"),
    ("dgx-1v", (), "dp"),
    ("gb200-nvl72", ("fabric.leaf_nodes=1",), "dp"),
    ("h100-roce", ("fabric.leaf_nodes=1", "fabric.nic_ports=2"), "dp"),
    ("tpu-v5p", (), "tp"),
    ("a100-pcie", (), "dp"),
    ("megascale", ("placement=random:7",), "tp"),
)


def _traffic(on: str, changes: tuple[str, ...], axis: str) -> Any:
    """Calls of all groups of an axis as traffic: lanes, paths, connections, and what the links carry."""
    from windtunnel.network.groups.shape import group, members
    from windtunnel.network.nccl.settings import parse_settings
    from windtunnel.network.simulate import axis_calls as room
    from windtunnel.network.simulate.paths import exits, latencies, nics_each
    from windtunnel.network.simulate.traffic import collisions, seconds_alone, traffic
    from windtunnel.workload.ops import Axis

    shape = ["plan.tp=2", "plan.pp=2", "plan.dp=none", "plan.global_batch=64", "model.layers=4", "plan.sharding=none"]
    job = wt.load("llama3-8b-8xh100", [f"cluster={on}", "cluster.gpus=32", *(f"cluster.{one}" for one in changes), *shape])
    which = {"tp": Axis.TP, "dp": Axis.DP, "pp": Axis.PP}[axis]
    axes = (("tp", 2), ("dp", 8), ("pp", 2))
    answers = []
    for table in ({}, {"NCCL_IB_QPS_PER_CONNECTION": 2, "NCCL_PXN_DISABLE": 1}):
        machine = room.machine(job.cluster, 32, parse_settings(table), axes=axes if job.cluster.fabric.is_grid else ())
        if not len(answers):
            machine = room.with_slow_nics(machine, np.arange(3), 0.7) if machine.grid is None else machine
        graph = machine.graph
        answers.append([machine.ports, machine.flows, machine.is_packed, machine.sprays, folded(graph.link_rate)])
        answers.append(folded(vars(machine.packets(4096))))
        rows = members(job, which)
        for comm in (Comm.SEND_RECV,) if axis == "pp" else (Comm.ALL_REDUCE, Comm.ALL_TO_ALL, Comm.ALL_GATHER):
            call = room.plan_of(machine, comm, 6e6, rows, group(job, which))
            for plan in (call, room.connections_of(machine, call), room.slow_down(call, 1.25)):
                lanes = {name: value for name, value in vars(plan.lanes).items() if isinstance(value, np.ndarray)}
                answers.append([folded(lanes), plan.seconds, plan.latency, plan.wait, plan.extra, plan.spine])
                answers.append([folded(plan.paths.links), folded(plan.way.astype(float))])
            carried = room.demand_of(machine, call)
            alone = seconds_alone(graph, call.paths, call.lanes.bytes)
            met = collisions(graph, call.paths, call.lanes.src, call.lanes.dst, call.lanes.bytes, call.options)
            shown = traffic(graph, "flow", carried, call.seconds, full=carried / graph.link_rate, most=5)
            left = exits(graph, call.paths)
            answers.append([folded(carried), folded(alone), folded(vars(met)), folded(shown), [folded(one) for one in left]])
            near, above = latencies(graph, call.paths, call.spine)
            answers.append([folded(near), folded(above), nics_each(graph, np.arange(4))])
    return digest(answers)


def _placed(text: str) -> Any:
    from windtunnel.network.simulate.tenants import Tenant, node_ranges, settle

    cluster = wt.load_cluster("h100-ib", ["gpus=24", "fabric.leaf_nodes=2"])
    tenants = [
        Tenant(f"job {n}", cluster.model_copy(update={"gpus": gpus, "placement": place}))
        for n, (gpus, place) in enumerate(((24, text), (16, "random:3"), (8, "packed"), (12, "leaf")))
    ]
    found = settle(tenants)
    return [found.nodes, *(folded(one) for one in found.gpus), *(node_ranges(np.unique(one // 8)) for one in found.gpus)]


FLAPS = ("leaf*.*--spine*:down=10us,up=90us", "leaf0.*--spine*:down=1ms,up=5ms", "leaf*:loss=1e-4", "nic*:ber=1e-11",
         "leaf0.*--spine*:slow=0.5", "leaf*.*--spine*:down=2s,up=60s")  # fmt: skip


def _broken(fault: str) -> Any:
    from windtunnel.network.fabrics.cluster import cluster_graph
    from windtunnel.network.simulate import fabric_faults as room

    cluster = wt.load_cluster("h100-ib", ["gpus=32", "fabric.leaf_nodes=1", f"fabric.faults=['{fault}']"])
    graph = cluster_graph(cluster).graph
    faults = room.faults_of(cluster, (0.1, 0.4), 3)
    broken, answers = faults.break_links(graph), []
    answers.append([folded(broken.link_rate), len(room.without_faults(cluster).fabric.faults), bool(faults)])
    answers += [faults.outage(one) for one in faults.flaps]
    for sprays in (True, False):
        answers += [folded(or_refused(lambda sprays=sprays: room.capacity_changes(broken, faults, sprays)))]
        answers += [folded(or_refused(lambda sprays=sprays: room.timer_changes(broken, faults, sprays)))]
        answers += [folded([vars(one) for one in room.stalls_of(broken, faults, sprays)])]
    return digest(answers)


RELIABILITIES = ("byterobust", "llama3-2024", "megascale", "opt-175b", "rsc-1", "rsc-2")
POLICIES: tuple[tuple[str, ...], ...] = (
    (),
    ("checkpoint.mode=blocking", "spares=0", "queue=20min"),
    ("checkpoint.flush_over=own", "checkpoint.load=all", "spare_share=0.02", "network.per_job_day=3", "network.repair=30s",
     "network.restarts=false"),
    ("checkpoint.every=best", "checkpoint.steps=4000", "checkpoint.slowdown=0.2", "checkpoint.block=3s", "crash.per_node_day=0.3",
     "crash.returns=0.4"),
    ("checkpoint.every=2h", "checkpoint.load_time=90s", "slow_node.per_job_day=2", "slow_node.detect=1h", "slow_node.slows=1.3",
     "slow_node.saves_first=true"),
    ("checkpoint.write=5GB/s", "checkpoint.read=2GB/s", "planned.gap=12h", "planned.saves_first=true", "planned.repair=10min",
     "gpus_of_node=16"),
    ("crash.per_node_day=40", "crash.detect=10min", "crash.replaces_node=true", "crash.automatic=0.5", "crash.by_hand=1h",
     "node_repair=72h"),
    ("hang.per_job_day=4", "hang.detect.mean=600s", "hang.detect.law=lognormal", "hang.detect.spread=0.8", "hang.while_down=false",
     "swap=5min", "spares=3"),
)  # fmt: skip


def _failing(source: str, name: str) -> Any:
    """Runs of a job under failures of a catalogue entry, whose conditions change one after the other."""
    from windtunnel.goodput.answer import goodput, run_data
    from windtunnel.goodput.run import run_of, stated_conditions, with_saving
    from windtunnel.predict.prediction import SaveCost

    prediction, answers = wt.predict(wt.load(source)), []
    for policy in POLICIES:
        sets = [f"reliability={name}", *(f"reliability.{one}" for one in policy)]

        def asked(sets: list[str] = sets) -> Any:
            job = wt.check(wt.load(source, [*sets, "tokens=2e12"]))
            found = goodput(job, replicas=6, prediction=prediction)
            facts = job.reliability.model_copy(update={"checkpoint": job.reliability.checkpoint.model_copy(update={"size": 3e12})})
            saving = (
                with_saving(job, SaveCost(2e12, 2, 40.0, 60.0, 5.0, 5.4, ()))
                if job.reliability.checkpoint.slowdown is None
                else job
            )
            whole = [run_of(one, prediction.step_time_s, exposed) for one, exposed in ((job, 0.0), (job, 0.3), (saving, 0.1))]
            stated = stated_conditions(facts, 40, prediction.step_time_s)
            data = {key: value for key, value in run_data(found).items() if key not in ("job", "simulated")}
            return [
                data,
                said(data["reasons"]),
                whole,
                stated.checkpoint,
                stated.interval,
                found.simulated and vars(found.simulated),
            ]

        answers.append(or_refused(asked))
    return digest(answers)


def _told(report: Any) -> Any:
    if report is None:
        return 0
    data = report.as_dict()
    keys = [[*data[key]] for key in ("culprits", "waits", "chain", "cycle", "stuck")]
    return [*keys, [list(on) for on in data["waits"].values()], said([report.text, *data["culprits"].values()]), report.crash]


def _hangs(seed: int) -> Any:
    """Who blocks jobs of drawn groups, calls and processes."""
    from windtunnel.fleet.findings.hang import PendingCall, RankState, hang_report, unclear_ranks

    draw, answers = np.random.default_rng(seed), []
    for turn in range(60):
        world = int(draw.integers(2, 7))
        groups = {f"g{n}": tuple(sorted(draw.choice(world, int(draw.integers(1, world + 1)), False).tolist())) for n in range(3)}
        states = {}
        for rank in range(world):
            begun, finished, pending = {}, {}, []
            for name, members in groups.items():
                how = draw.choice(["no", "done", "open", "joins", "rooted"], p=[0.1, 0.3, 0.4, 0.1, 0.1])
                if rank not in members or how == "no":
                    continue
                begun[name] = last = int(draw.integers(3, 5))
                finished[name] = last if how == "done" else last - 1
                if how != "done":
                    comm = Comm.BROADCAST if how == "rooted" else Comm.ALL_REDUCE
                    pending.append(PendingCall(name, last, comm, "call", begin=5.0 + rank, joins=how == "joins"))
            if draw.random() < 0.2:
                peer, sends = int(draw.integers(world)), bool(draw.random() < 0.5)
                pending.append(PendingCall("g0", 1, Comm.SEND_RECV, "send", peer, sends))
            process = str(
                draw.choice(["running", "sleeping", "ended", "stopped", "gone", ""], p=[0.7, 0.1, 0.05, 0.05, 0.05, 0.05])
            )
            silent = float(draw.choice([0.0, 1.9, 30.0], p=[0.9, 0.05, 0.05]))
            if draw.random() < 0.93:
                states[rank] = RankState(rank, tuple(pending), begun, finished, silent, process, "x", 3.0)
        starting = {rank: int(rank % 2) for rank in range(world) if rank not in states}
        found = hang_report(states, groups, silence=2.0, settled=turn % 4 > 0, starting=starting if turn % 2 else {})
        answers.append([_told(found), unclear_ranks(states, groups)])
    return digest(answers)


ENDS = ("ValueError: shard 17 (a.py:3 in load)", "RuntimeError: Connection closed by peer [127.0.0.1]:6021", "KeyboardInterrupt",
        "socket.gaierror: Name or service not known", "exit status 0", "exit status 9", "SIGTERM", "SIGKILL",
        "SIGSEGV")  # fmt: skip


def _ended(seed: int) -> Any:
    """Why jobs ended whose ranks ended as drawn, and what a watch says of them as time goes by."""
    from windtunnel.fleet.findings import failures as room
    from windtunnel.fleet.findings.hang import find_mismatches
    from windtunnel.fleet.findings.liveness import Beat, HangWatch, diagnose_failure, diagnose_stall, group_labels, rank_states
    from windtunnel.records.ends import EndKind

    draw, answers, job = np.random.default_rng(seed), [], unit("test_fleet_failures").job
    for turn in range(40):
        ends = []
        for rank in range(4):
            for _ in range(int(draw.choice([0, 1, 2], p=[0.4, 0.5, 0.1]))):
                text = ENDS[int(draw.integers(len(ENDS)))]
                kind = EndKind.SIGNAL if text.startswith("SIG") else EndKind.EXIT if text.startswith("exit") else EndKind.RAISED
                kind = EndKind.THREAD if kind is EndKind.RAISED and draw.random() < 0.2 else kind
                ends.append((rank, 6.0 + float(draw.choice([0.0, 0.01, 0.5, 20.0])), kind, text))
        inside = {rank: ("all_reduce" if draw.random() < 0.8 else "broadcast", 64 + 64 * int(draw.random() < 0.1))
                  for rank in range(4) if draw.random() < 0.6}  # fmt: skip
        table = job(ends, float(draw.choice([5.0, 5.9])), inside)
        beats = {
            rank: Beat(rank, float(draw.choice([0.5, 3.0])), 30, 4, str(draw.choice(["running", "gone", "stopped", "zombie"])),
                       [None, None, 0, 3][int(draw.integers(4))], f"n{rank // 2}")
            for rank in range(4) if draw.random() < 0.9
        }  # fmt: skip
        failure = room.failure_of(table, beats, 110.0)
        answers.append(failure and [failure, said([room.failure_text(failure), *(end.why for end in failure.causes)])])
        answers += [_told(diagnose_failure(table, beats, now, ended=ended)) for now, ended in ((107.0, False), (190.0, True))]
        answers.append([[one.number, one.ranks, said(one.reasons.values())] for one in find_mismatches(table, group_labels(table))])
        answers.append([vars(one) for one in rank_states(table, beats, 120.0)[0].values()])
        answers.append(_told(diagnose_stall(table, beats, 120.0, 2.0, turn % 3 > 0)))
        watch, living = HangWatch(), {rank: replace(beat, process="running", ended=None) for rank, beat in beats.items()}
        for now in (105.0, 106.5, 109.0, 119.0, 150.0):
            waited = {rank: (now - 105.0) * 0.3 * (turn % 2) for rank in living}
            told = watch.look(table, living, now, lambda waited=waited: waited)
            answers.append([_told(told), watch.next_look(living)])
    return digest(answers)


LOG_LINES = (
    "step 10 | loss: 2.31 | grad_norm: 1,234.5", "{'loss': 1.25, 'grad_norm': 0.7, 'epoch': 0.1}", "eval loss: 9.5",
    "iteration 100/ 500 | lm loss: 3.1E+00 | grad norm: 0.52 |", "train/loss 4.5 val_loss 3.2", "loss=tensor(nan) gnorm=inf",
    "global_avg loss 2.5%, step time: 3.0", "total gradient norm: 8 loss scale: 65536.0", "batch loss: -0.5",
)  # fmt: skip


def _losses() -> Any:
    from windtunnel.fleet.findings.losses import LossSeries, values_in

    answers: list[Any] = [[[name, value] for name, value in values_in(line)] for line in LOG_LINES]
    for seed, what in product(range(4), ("loss", "gradient norm")):
        draw, series = np.random.default_rng(seed), LossSeries(what)
        values = 3.0 * np.exp(-np.arange(120) / 200.0) * draw.lognormal(0.0, 0.02, 120)
        values[[5, 40, 41, 70]] *= (10.0, 1.2 + 0.1 * seed, 9.0, 1.31)
        values[90:94] = (np.nan, np.inf, 5.0, np.nan) if seed % 2 else (8.0, np.inf, np.nan, 3.0)
        values -= 3.0 * (seed == 3)
        found = [(at, series.add(float(value))) for at, value in enumerate(values)]
        answers.append([[at, one.over, said([one.text])] for at, one in found if one is not None])
    return digest(answers)


def _remembered(seed: int) -> Any:
    """Steps that a watch adds look by look, keeps, and reads again."""
    import tempfile
    from pathlib import Path

    from tests.helpers.fleet_synthetic import job
    from windtunnel.fleet.findings.history import StepHistory, load_history
    from windtunnel.fleet.findings.steps import join_tables, step_table

    table = step_table(job(ranks=4, steps=60, seed=seed, hiccups=0.1, slow=lambda rank, step: 1.0 + 0.3 * (step % 9 == rank)))
    history, answers = StepHistory(), []
    for first, last in ((0, 20), (15, 33), (33, 35), (30, 60), (4, 9)):
        history.add(table.take(np.arange(first, last)), ended=first % 2 > 0)
        answers.append([history.times(), history.steps_ended, history.first, history.last, history.total, history.seconds])
    answers.append([history._quantile(0.5), history._quantile(0.99)])
    with tempfile.TemporaryDirectory() as folder:
        history.save(Path(folder) / "history.npz")
        again = load_history(Path(folder) / "history.npz")
        answers.append([again is None, load_history(Path(folder) / "none.npz") is None, again and again.times()])
    joined = join_tables(table.take(np.arange(30)), table.take(np.arange(20, 50)))
    answers.append([np.nan_to_num(joined.own).sum(axis=0), joined.steps, joined.steps_ended])
    return digest(answers)


RINGS: tuple[dict[str, Any], ...] = (
    {"ranks": 16, "sends": True, "transfer": lambda a, b, step: 0.03 if "node2" in (a, b) else 0.003},
    {"ranks": 12, "transfer": lambda a, b, step: 0.2},
    {"ranks": 8, "sends": True, "transfer": lambda a, b, step: 0.002 + 0.0004 * step, "steps": 60},
    {"gap": lambda rank, step: 0.02 + 0.05 * (rank == 3), "slow": lambda rank, step: 1.0 + 0.5 * (step > 25 and rank > 3)},
    {"data": lambda rank, step: 0.04, "slow": lambda rank, step: 1.2 if rank in (1, 5) else 1.0, "steps": 70},
    {"slow": lambda rank, step: 1.4 if step % 7 == 3 else 1.0, "hiccups": 0.3, "steps": 90},
    {"ranks": 4, "steps": 45, "slow": lambda rank, step: 1.0 + 0.004 * max(0, step - 20), "noise": 0.005},
    {"ranks": 2, "steps": 9},
)


def _grouped(seed: int) -> Any:
    """Slow links among calls of three machines and of two, which clear each other, share machines or stand alone."""
    from windtunnel.fleet.findings.slow_links import Transfers, slow_links

    draw = np.random.default_rng(seed)
    machines = (("a", "b", "c"), ("a", "d", "e"), ("b", "d", "f"), ("a", "b"), ("e", "f"), ("c", "e", "f"), ("a",), ("g", "h"))
    slow = (("a", "b"), ("d", "e"), ("e", "f"), ("b", "d"))[seed % 4]
    joins = np.tile(np.arange(len(machines)), 40)
    factor = np.array([2.0 if set(slow) <= set(one) else 1.0 for one in machines])[joins]
    kind = np.where(joins % 2 == 0, 0, seed % 2)
    seconds = 0.01 * factor * draw.lognormal(0.0, 0.03, len(joins)) * np.where(kind == 0, 1.0, 3.0)
    steps = np.repeat(np.arange(40), len(machines))
    moved = Transfers(seconds, np.full(len(joins), 1e6), kind, ((3, 1000000, 12), (4, 1000000, 8)), joins, machines, steps)
    found = [slow_links(moved), slow_links(moved, lambda comm, size, pair: 0.009)]
    return digest([[[one.size, one.cost, one.hosts, one.confidence] for one in each] for each in found])


def _ringed(number: int) -> Any:
    """Findings on a ring of ranks with a fault, and the parts they rest on."""
    from tests.helpers.fleet_synthetic import job
    from windtunnel.fleet.findings import decline, slow_links, slow_ranks, steps
    from windtunnel.fleet.findings.clocks import align, clocks_of
    from windtunnel.fleet.findings.judge import judge, parts_beside
    from windtunnel.fleet.findings.rare import rare_causes

    sections, answers = job(seed=number + 50, **RINGS[number]), []
    found = judge(sections, [{"names": ["dp"], "shape": [sections.rank.max() + 1], "ranks": list(range(sections.rank.max() + 1))}])
    table, moved = found.table, found.transfers
    answers.append([[one.as_dict(), said([one.text, *one.evidence])] for one in (*found.findings, *found.routine)])
    answers.append([slow_links.transfers_of_a_step(moved, table), slow_links.slow_links(moved, lambda comm, size, pair: 0.004)])
    answers.append([slow_links.quickest_calls(moved, np.arange(len(moved))), len(moved), rare_causes(table)])
    for series in (table.step[0], table.own.mean(axis=0), np.diff(table.own[-1], prepend=0.0)):
        answers.append([decline.trend_of(series), decline.fit_theil_line(np.arange(len(series)) * 1.0, series)])
    answers.append(decline.fading_machines(table.steps, moved))
    answers.append([decline.chance_of_greater(table.own[0], table.own[-1]), slow_ranks.since_step(table, [0])])
    answers.append([slow_ranks.cost_of(table.own[:1], table.own[1:]), *parts_beside(table).values()])
    answers.append([steps.waits_of_ranks(sections, [0, 1], 5), list(steps.waited_for(sections, [0, 1], 8).values())])
    clocks = clocks_of(sections)
    answers.append([[clocks.offset(node), clocks.drift(node), clocks.correction(node, 2.0)] for node in ("node0", "node1")])
    answers.append(align(sections, clocks).begin)
    return digest(answers)


def room_cases() -> dict[str, Callable[[], Any]]:
    """Name → what computes its figures."""
    table: dict[str, Callable[[], Any]] = {f"channels of {name}": partial(_channels, name) for name in MACHINES}
    table |= {f"channels of {' '.join(one)}": partial(_channels, *one) for one in CHANGED}
    table |= {f"calls of {name}": partial(_calls, name) for name in MACHINES}
    table |= {f"graph search on {name}": partial(_searched, name) for name in MACHINES[:12]}
    table |= {f"traffic {number}": partial(_traffic, *one) for number, one in enumerate(AXES)}
    table |= {
        f"jobs beside {text}": partial(or_refused, partial(_placed, text))
        for text in ("packed", "random:5", "nodes:0-1,4", "pod", "nodes:1-0")
    }
    table |= {f"failures of {name} on {source}": partial(_failing, source, name) for name, source in zip(
        RELIABILITIES, ("llama3-8b-8xh100", "llama3.1-405b-16384", "megascale-175b-12288", "gpt3-175b-64", "mixtral-8x7b-64xh100",
                        "llama2-70b-64xh100"), strict=True)}  # fmt: skip
    table |= {f"hangs {seed}": partial(_hangs, seed) for seed in range(3)}
    table |= {f"ends {seed}": partial(_ended, seed) for seed in range(3)}
    table |= {f"remembered steps {seed}": partial(_remembered, seed) for seed in range(2)}
    table |= {f"ring {number}": partial(_ringed, number) for number in range(len(RINGS))}
    table |= {f"links of groups {seed}": partial(_grouped, seed) for seed in range(4)}
    table["losses in lines"] = _losses
    return table | {f"fault {text}": partial(or_refused, partial(_broken, text)) for text in FLAPS}
