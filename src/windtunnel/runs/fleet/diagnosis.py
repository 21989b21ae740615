"""The self-tests of a cluster's nodes with the figures that its description expects, as plain data for whoever runs them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from windtunnel.base.dataclasses import asdict, dataclass
from windtunnel.memory.tiers import host_memory_rate, legs
from windtunnel.network.api import sweep
from windtunnel.sheet.blocks import Cell, Column, Figure, Section, Sheet, Table
from windtunnel.sheet.sentence import Sentence
from windtunnel.spec.machine import GPU, Cluster

SCHEMA = "windtunnel.diagnosis/1"
NEIGHBOURS = 4
"""Nodes of a collective, all under one leaf switch."""
GROUP_BYTES = 256 << 20
"""Bytes that a rank holds in a collective."""
SHARE, CPU_SHARE, SHEET_SHARE = 0.8, 0.3, 0.5
"""Least shares of an expected figure that pass: of one that rests on measured rates; of one that numpy on the CPU reaches; of a
data sheet's peak that nobody has measured. Assumed; the fleet's own figures should replace them."""


@dataclass(frozen=True)
class ExpectedTest:
    """A self-test to run on each node: `test` by its name, `expect` in `unit`, the least `share` of it, `limit` in seconds. `size`:
    bytes of its buffer. `ranks`: nodes that run it together. `why`: where the figure comes from."""

    test: str
    expect: float | None
    unit: str
    share: float
    limit: float
    size: int
    ranks: int
    why: str

    def options(self) -> list[str]:
        """The options of `python -m windtunnel.fleet.diagnose NAME`."""
        expected = [] if self.expect is None else ["--expect", f"{self.expect:.6g}", "--share", f"{self.share:g}"]
        return [*expected, "--limit", f"{self.limit:g}", "--size", str(self.size)]


def expected_tests(cluster: Cluster) -> tuple[ExpectedTest, ...]:
    """The tests that a node of the cluster can do, in the order from cheap to expensive."""
    return tuple(_tests(cluster))


def diagnosis_dict(cluster: Cluster) -> dict[str, Any]:
    """The tests as JSON data."""
    return {"schema": SCHEMA, "cluster": cluster.id, "tests": [asdict(one) for one in expected_tests(cluster)]}


def diagnosis_sheet(results: Sequence[Mapping[str, Any]]) -> Sheet:
    """What `fleet diagnose` shows of results of `windtunnel.fleet.run_node_tests`."""
    states = {True: "passed", False: "FAILED", None: "not here"}
    rows = tuple(
        (Cell(one["test"]), Cell(Sentence(states[one["passed"]])), _rate_cell(one, "measured"), _rate_cell(one, "expected"),
         Cell(one["why"]), Cell(one["backend"]))
        for one in results
    )  # fmt: skip
    columns = (
        Column("test"), Column("result"), Column("measured", True), Column("expected", True, left_out="narrow"),
        Column("why", wraps=True), Column("ran on"),
    )  # fmt: skip
    failed = sum(one["passed"] is False for one in results)
    figures = (Figure("tests", "tests", len(results)), Figure("failed", "failed", failed, mood="bad" if failed else "good"))
    return Sheet("Self-tests of this node", "", figures, (Section("Tests", (Table("tests", columns, rows),)),))


def _rate_cell(result: Mapping[str, Any], name: str) -> Cell:
    value = result.get(name)
    return Cell("") if value is None else Cell(f"{value:.4g} {result['unit']}", value)


def _tests(cluster: Cluster) -> Iterator[ExpectedTest]:
    node, size = cluster.node, 64 << 20
    copies = host_memory_rate(node)
    yield ExpectedTest("memory-copy", copies, "B/s", CPU_SHARE, 30.0, 1 << 30, 1, "the host's memory, as streams reach it")
    for name, out in (("gpu-copy-in", False), ("gpu-copy-out", True)):
        rate = legs(cluster, "host", out)[0].rate
        yield ExpectedTest(name, rate, "B/s", SHARE, 30.0, 256 << 20, 1, "the link between GPU and host, all GPUs at once")
    yield ExpectedTest(
        "gpu-copy-within", node.gpu.memory_bandwidth, "B/s", SHARE, 30.0, 1 << 30, 1, "the GPU's memory, by its data sheet"
    )
    products, share, why = _products(node.gpu)
    yield ExpectedTest("gpu-burn", products, "FLOP/s", share, 60.0, size, 1, why)
    if node.gpus > 1 and node.scale_up.size > 1:
        yield ExpectedTest(
            "gpu-peer",
            node.scale_up.bandwidth,
            "B/s",
            SHEET_SHARE,
            60.0,
            256 << 20,
            1,
            "all links of a GPU; a mesh has fewer to a peer",
        )
        yield ExpectedTest(
            "gpu-all-to-all",
            _bus_bandwidth(cluster, "all_to_all", node.gpus, node.gpus),
            "B/s",
            SHARE,
            120.0,
            GROUP_BYTES,
            1,
            "all GPUs of the node, as predicted",
        )
    if node.nic is None:
        return
    yield ExpectedTest("nic-loopback", node.nic.bandwidth, "B/s", SHARE, 60.0, size, 1, "line rate of a NIC; TCP does not count")
    yield ExpectedTest(
        "pair", None, "B/s", SHARE, 60.0, size, 2, "one TCP connection does not fill a NIC: compare with other pairs"
    )
    ranks = min(NEIGHBOURS, max(1, cluster.gpus // cluster.gpus_of_node))
    if ranks > 1:
        for name in ("all-reduce", "all-to-all"):
            rate = _bus_bandwidth(cluster, name.replace("-", "_"), ranks, 1)
            yield ExpectedTest(name, rate, "B/s", SHARE, 120.0, GROUP_BYTES, ranks, "one GPU of each neighbour, as predicted")


def _bus_bandwidth(cluster: Cluster, call: str, ranks: int, per_node: int) -> float:
    """Predicted bus bandwidth of a call in bytes per second."""
    return float(str(sweep(cluster, call, ranks, [GROUP_BYTES], per_node=per_node)[0]["busbw_GBs"])) * 1e9


def _products(gpu: GPU) -> tuple[float | None, float, str]:
    """Rate of products in bfloat16, the share of it that passes, and where it comes from."""
    measured, peak = gpu.achievable.get("bf16"), gpu.peak.get("bf16")
    if measured is not None:
        return measured, SHARE, "the best rate that was measured on such a GPU"
    return peak, SHEET_SHARE, "the data sheet's peak; nobody's best rate is known"
