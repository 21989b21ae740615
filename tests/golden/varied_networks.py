"""Answers of networks to varied inputs whose numbers are watched: calls by every algorithm, their lanes, sends of files, NCCL's
settings, machines of several dimensions, and fabrics with faults. Each takes a fraction of a second."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from folding import folded, folded_list
from varied import or_refused

import windtunnel as wt
from windtunnel.base.comm import Comm

ALGORITHMS = ("ring", "tree", "nvls", "nvls_tree", "pat", "bruck", "direct", "halving_doubling", "hierarchical", "collnet_direct",
              "collnet_chain", "p2p")  # fmt: skip


def _algorithm(name: str, network: str) -> Any:
    rows = []
    for op, gpus, per_node in (
        ("all_reduce", 16, 8),
        ("all_gather", 12, 4),
        ("reduce_scatter", 8, 2),
        ("all_to_all", 6, 3),
        ("broadcast", 16, 8),
        ("send_recv", 16, 8),
        ("all_reduce", 8, 8),
        ("reduce_scatter", 5, 1),
        ("all_gather", 8, 1),
    ):
        for settings in ({}, {"NCCL_COLLNET_ENABLE": 1, "NCCL_PROTO": "Simple", "NCCL_MAX_NCHANNELS": 4}):
            asked = {"op": op, "gpus": gpus, "per_node": per_node, "sizes": [5e3, 3e6], "settings": settings, "network": network}
            found = or_refused(lambda asked=asked: wt.collective("h100-ib", algorithm=name, **asked))
            rows.append([len(found), *(float(row["time_us"]) for row in found if isinstance(row, dict))])
    return rows


def _lanes() -> Any:
    """Lanes of every algorithm: when slices come, split into connections, and in steps."""
    from windtunnel.network import flat_group
    from windtunnel.network.algorithm import ALGORITHMS
    from windtunnel.network.lanes.build import lanes_of
    from windtunnel.network.lanes.timing import arrivals, split, transfers

    cluster, answers = wt.load_cluster("h100-ib", ["gpus=16"]), {}
    for name in ALGORITHMS:
        for op, ranks, per_node in (
            (Comm.ALL_REDUCE, 8, 4),
            (Comm.ALL_GATHER, 6, 3),
            (Comm.ALL_TO_ALL, 4, 2),
            (Comm.REDUCE_SCATTER, 5, 1),
        ):

            def build(name: str = name, op: Comm = op, ranks: int = ranks, per_node: int = per_node) -> Any:
                ends, switches = np.arange(ranks, dtype=np.int32), np.arange(100, 108, dtype=np.int32)
                group = flat_group(cluster, ranks, per_node)
                made = lanes_of(cluster, op, 7e5, ends, group, algorithm=name, switches=switches, leaves=[0, 1])
                cut, old, part = split(made.lanes, made.lanes.src // per_node != made.lanes.dst // per_node, 3)
                listed = transfers(cut, part, made.ends, 500)
                times = [one for each in arrivals(made.lanes, np.full(len(made.lanes), 1e-6)) for one in each]
                return [made.seconds, made.latency, folded_list(times), folded_list(old.tolist()), folded(vars(listed))]

            answers[f"{name} {op.name}"] = or_refused(build)
    return answers


def _sends() -> Any:
    from windtunnel.network import flat_group
    from windtunnel.network.lanes.build import join, lanes_of_sends
    from windtunnel.network.lanes.send_files import csv_of, from_rows, rows_of
    from windtunnel.network.lanes.timing import transfers

    rows = [
        {"step": step, "src": (rank + hop) % 8, "dst": (rank + hop + 1) % 8, "bytes": 4096 * (1 + step % 2), "channel": rank % 2}
        for step in range(6) for rank in range(0, 8, 2) for hop in range(2)
    ]  # fmt: skip
    cluster = wt.load_cluster("h100-ib", ["gpus=16"])
    sends = from_rows(rows)
    made = lanes_of_sends(cluster, Comm.ALL_GATHER, 2e6, sends, np.arange(8, dtype=np.int32), flat_group(cluster, 8, 4))
    listed = transfers(made.lanes, np.arange(len(made.lanes), dtype=np.int32))
    again = folded(rows_of(listed, 8))
    return [
        made.seconds,
        made.latency,
        len(csv_of(listed, 8)),
        again,
        folded(vars(made.lanes)),
        folded(vars(join(sends.scale(9e5)))),
    ]


def _settings() -> Any:
    from windtunnel.network.nccl.settings import parse_settings

    return [
        folded(or_refused(lambda table=table: parse_settings(table)))
        for table in (
            {"NCCL_ALGO": "^Ring,NVLS", "NCCL_PROTO": "LL,Simple"}, {"NCCL_MIN_NCHANNELS": 4, "NCCL_MAX_CTAS": 8},
            {"NCCL_MIN_NCHANNELS": 9, "NCCL_MAX_NCHANNELS": 8}, {"NCCL_BUFFSIZE": 8388608, "NCCL_LL_BUFFSIZE": 2048},
            {"NCCL_P2P_LEVEL": "LOC", "NCCL_SHM_DISABLE": 1}, {"NCCL_P2P_LEVEL": 5}, {"NCCL_CROSS_NIC": 0, "NCCL_NTHREADS": 256},
            {"NCCL_IB_TIMEOUT": 18, "NCCL_IB_RETRY_CNT": 3, "NCCL_IB_QPS_PER_CONNECTION": 4}, {"NCCL_NTHREADS": 2048},
            {"NCCL_PXN_DISABLE": 1, "NCCL_P2P_PXN_LEVEL": 0, "NCCL_NVLS_ENABLE": 0, "NCCL_PAT_ENABLE": 0},
            {"NCCL_NVLS_ENABLE": "yes"}, {"NCCL_MAX_NCHANNELS": 16, "NCCL_MAX_CTAS": 8, "NCCL_NCHANNELS_PER_NET_PEER": 2},
        )
    ]  # fmt: skip


def _dimensions() -> Any:
    from windtunnel.network.closed.dimensions import Dimension, walk

    kinds = ("ring", "both_ways", "line", "fully_connected", "switch")
    shapes = [
        tuple(Dimension(kinds[(at + k) % 5], 2 + (3 * at + k) % 6, 1e10 * (1 + at % 4) * 2**-k, 1e-6 / (1 + k)) for k in range(3))
        for at in range(10)
    ]
    calls = (Comm.ALL_REDUCE, Comm.ALL_GATHER, Comm.REDUCE_SCATTER, Comm.ALL_TO_ALL)
    return [
        [found.seconds, *found.busy, *found.utilisation]
        for shape in shapes for call in calls for schedule in ("plain", "themis")
        for found in [walk(shape, call, 3e6, schedule, 5)]  # type: ignore[arg-type]
    ]  # fmt: skip


def _meshes() -> Any:
    from windtunnel.network.nccl.search import mesh_rings

    draw, answers = np.random.default_rng(5), []
    for count in (2, 3, 4, 5, 6, 8):
        for share in (1.0, 0.8, 0.6):
            room = {
                (a, b): int(draw.integers(1, 3)) for a in range(count) for b in range(count) if a != b and draw.random() < share
            }
            found = mesh_rings(count, room)
            answers.append([found.rings, found.through])
    return answers


FAULTS = (
    "tor*:down,share=50%,seed=3",
    "tor0->agg0.1:slow=0.25",
    "agg*--core*:slow=0.5,share=0.25",
    "core1.0:down",
    "tor0--agg0.0:down",
)


def _faulty() -> Any:
    from windtunnel.network.fabrics import parse_fabric
    from windtunnel.network.fabrics.faults import apply_faults, parse_errors, parse_fault, parse_flap

    tree = parse_fabric("fat_tree:k=4,link=400Gb/s")
    rates = [folded_list(apply_faults(tree, [parse_fault(text)]).link_rate.tolist()) for text in FAULTS]
    texts = ("tor0--agg0.0:down=10us,up=2ms", "tor0:loss=1e-5", "agg*:ber=1e-12,share=10%", "tor0:down=1,up=0.5", "tor0:loss=2")
    read = [
        folded(or_refused(lambda text=text, parse=parse: parse(text))) for text in texts for parse in (parse_flap, parse_errors)
    ]
    flows = [
        [float(row["time_us"]) for row in found] if isinstance(found[0], dict) else found
        for network in ("flow", "packet")
        for fault in (
            "leaf*--spine*:slow=0.5",
            "leaf*--spine*:down,share=20%,seed=2",
            "leaf0--spine0:loss=1e-3",
            "leaf*->spine*:ber=1e-9",
        )
        for found in [
            or_refused(
                lambda network=network, fault=fault: wt.collective(
                    wt.load_cluster("h100-ib", ["gpus=32", "fabric.leaf_nodes=1", f"fabric.faults=['{fault}']"]),
                    "all_reduce",
                    gpus=32,
                    sizes=[3e5],
                    network=network,
                )
            )
        ]
    ]
    return rates, read, flows


TOPOLOGIES = (
    "6 2 1 2 7 H100\n4 5\n0 4 400Gbps 1us 0\n1 4 400Gbps 1us 0\n2 5 400Gbps 1us 0\n3 5 400Gbps 2us 0\n4 5 800Gbps 1us 0\n",
    "9 2 1 2 9 H100\n0 4 2400Gbps 25ns 0\n1 4 2400Gbps 25ns 0\n"
    "0 5 400Gbps 1us 0\n1 6 400Gbps 1us 0\n2 5 400Gbps 1us 0\n3 6 400Gbps 1us 0\n"
    "5 7 400Gbps 1us 0\n6 7 400Gbps 1us 0\n5 8 400Gbps 500ns 0\n",
    "6 2 5\n4 5\n0 4 100Gbps 1us 0\n1 4 100Gbps 1us 0\n2 5 100Gbps 1us 0\n3 5 100Gbps 1us 0\n4 5 50Gbps 3us 0\n",
)


def _ports() -> Any:
    """Servers on the ports of groups and of files: how many, where, and what the closed form knows of them."""
    from windtunnel.engine.graph import NodeKind
    from windtunnel.network.fabrics.columns import Columns
    from windtunnel.network.fabrics.dragonfly import Dragonfly, DragonflyPlus
    from windtunnel.network.fabrics.drawn import GroupPorts, ports_of
    from windtunnel.network.fabrics.graph_file import graph_of
    from windtunnel.network.fabrics.text_topology import load_file

    builders: list[Any] = [
        Dragonfly(p=p, a=a, h=h, groups=groups) for p, a, h, groups in ((2, 4, 1, 3), (4, 8, 2, 5), (1, 2, 1, 2))
    ]
    builders += [DragonflyPlus(p=p, leaves=n, spines=n, h=h, groups=g) for p, n, h, g in ((4, 2, 1, 3), (8, 4, 2, 4))]
    wired = {
        "nodes": [
            {"name": "h", "kind": "host", "count": 4},
            {"name": "s", "kind": "switch", "count": 2},
            {"name": "t", "kind": "switch"},
        ],
        "links": [{"from": f"h{n}", "to": f"s{n // 2}", "rate": "400Gb/s", "latency": "1us"} for n in range(4)]
        + [{"from": f"s{n}", "to": "t", "rate": f"{400 * (n + 1)}Gb/s", "latency": f"{n + 1}us"} for n in range(2)],
    }
    answers = []
    with tempfile.TemporaryDirectory() as folder:
        files = [graph_of(wired)]
        for number, text in enumerate(TOPOLOGIES):
            path = Path(folder) / f"{number}.txt"
            path.write_text(text, encoding="utf-8")
            found = or_refused(lambda path=path: load_file(str(path)))
            files += [] if isinstance(found, list) else [found]
            answers.append(len(files))
    drawings = [GroupPorts(one, nics) for one in builders for nics in (1, 2, 4)] + [
        ports_of(one, n, "x") for one in files for n in (1, 2)
    ]
    for drawing in drawings:
        columns, servers = Columns(), max(1, min(drawing.servers, 6))
        nics = columns.nodes(NodeKind.NIC, [f"nic{n}" for n in range(servers * drawing.nics)]).reshape(servers, drawing.nics)

        def joined(drawing: Any = drawing, columns: Any = columns, nics: Any = nics) -> Any:
            drawing.attach(columns, nics, 50e9, 0.5)
            graph = columns.graph(nics.ravel())
            return [folded_list(getattr(graph, name).tolist()) for name in ("link_from", "link_to", "link_rate", "link_latency")]

        levels = [or_refused(lambda n=n, drawing=drawing: vars(drawing.levels(n, 50e9))) for n in (1, 2, servers)]
        answers.append([drawing.servers, levels, or_refused(joined) if drawing.servers else 0])
    return answers


def network_cases() -> dict[str, Callable[[], Any]]:
    """Name → what computes its figures."""
    table: dict[str, Callable[[], Any]] = {
        f"{name} over {network}": partial(_algorithm, name, network) for name in ALGORITHMS for network in ("closed", "flow")
    }
    table |= {
        "lanes": _lanes,
        "sends": _sends,
        "settings": _settings,
        "dimensions": _dimensions,
        "meshes": _meshes,
        "faults": _faulty,
        "ports": _ports,
    }
    return table
