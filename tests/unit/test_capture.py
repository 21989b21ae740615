"""Captured ranks: commands, files, steps, and the graph of a step, from entries written by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from windtunnel.api.capture import HeldByModule, moments_of, peak_of
from windtunnel.base.comm import Comm
from windtunnel.base.errors import FileError, SpecError
from windtunnel.capture.launch import script_of, variables_of
from windtunnel.capture.run import card_of, different_ranks
from windtunnel.exports.chakra import graph_traces
from windtunnel.formats.door import read_files
from windtunnel.formats.traces.captured import LAUNCH, graph_of_captured, shapes_of
from windtunnel.records.capture_file import ENTRY, STEP, CapturedRank, EntryKind, read_captured, steps_of, write_captured
from windtunnel.records.trace_graph import TaskKind
from windtunnel.replay import ReplayOptions, replay
from windtunnel.spec import load_cluster

MM = '[{"d":"BFloat16","s":[128,64]},{"d":"BFloat16","s":[64,32]}]>[{"d":"BFloat16","s":[128,32]}]'
ADD = '[{"d":"Float","s":[8,4],"n":4},{"d":"Float","s":[8,4]},1]>[{"d":"Float","s":[8,4]}]'
TEXTS = (STEP, "aten::mm", MM, "aten::add.Tensor", ADD, "all_reduce", "send", "Float is 1|train.py:3", "compiled", "compiled end")
GROUPS = [{"number": 0, "name": "0", "ranks": [0, 1, 2, 3]}, {"number": 1, "name": "1", "ranks": [0, 2]}]


def rank_of(*entries: dict[str, Any], rank: int = 0) -> CapturedRank:
    rows = np.zeros(len(entries), ENTRY)
    for name in ("name", "signature", "module"):
        rows[name] = -1
    for row, entry in zip(rows, entries, strict=True):
        for name, value in entry.items():
            row[name] = value
    about = {"rank": rank, "world": 4, "groups": GROUPS, "steps": 1, "notes": [], "command": ["torchrun"], "peak_bytes": 0}
    return CapturedRank(rows, TEXTS, about)


def mark(**more: Any) -> dict[str, Any]:
    return {"kind": EntryKind.MARK, "name": 0, **more}


def operator(name: int, stream: int = 0, **more: Any) -> dict[str, Any]:
    return {"kind": EntryKind.OPERATOR, "name": name, "signature": name + 1, "stream": stream, **more}


def call(number: int, *, name: int = 5, group: int = 0, peer: int = -1, size: int = 1 << 20, current: int = 0) -> dict[str, Any]:
    return {
        "kind": EntryKind.CALL, "name": name, "a": number, "b": size, "c": group << 32 | peer + 1, "stream": (1 << 20) + group,
        "signature": current,
    }  # fmt: skip


def deps_of(graph: Any, task: int) -> list[str]:
    return [graph.names[graph.name[dep]] for dep in graph.deps[graph.dep_start[task] : graph.dep_start[task + 1]]]


def test_a_product_has_its_shape_and_bytes_of_all_three_matrices() -> None:
    shapes = shapes_of("aten::mm", MM)
    assert shapes.product == (1, 128, 32, 64, 2)
    assert shapes.bytes == 2 * (128 * 64 + 64 * 32 + 128 * 32)


def test_expanded_extents_are_read_once() -> None:
    assert shapes_of("aten::add.Tensor", ADD).bytes == 4 * (4 + 32 + 32)


@pytest.mark.parametrize(
    ("name", "signature", "size"),
    [
        ("aten::fill_.Scalar", '[{"d":"Float","s":[8]},0]>[{"d":"Float","s":[8]}]', 32),
        ("aten::copy_", '[{"d":"Float","s":[8]},{"d":"Half","s":[8]}]>[{"d":"Float","s":[8]}]', 32 + 16),
        ("aten::add.out", '[{"d":"Float","s":[8]},{"d":"Float","s":[8]},1,{"d":"Float","s":[8]}]>[{"d":"Float","s":[8]}]', 96),
        ("aten::embedding", '[{"d":"Half","s":[50000,8]},{"d":"Long","s":[4]}]>[{"d":"Half","s":[4,8]}]', 64 + 32 + 64),
    ],
)
def test_what_is_only_written_or_read_in_part_counts_so(name: str, signature: str, size: float) -> None:
    assert shapes_of(name, signature).bytes == size


def test_a_call_begins_after_its_stream_and_who_waits_for_it_goes_on_after_it() -> None:
    graph = graph_of_captured(
        [rank_of(mark(), operator(1), call(0), operator(3), {"kind": EntryKind.CALL_WAIT, "a": 0}, operator(1))]
    )
    names = [graph.names[name] for name in graph.name]
    kernels = ["aten::mm", "all_reduce", "aten::add.Tensor", "aten::mm"]
    assert names == [name for kernel in kernels for name in (f"launch {kernel}", kernel)]
    assert "aten::mm" in deps_of(graph, 3)
    assert "all_reduce" not in deps_of(graph, 5)
    assert "all_reduce" in deps_of(graph, 7)
    assert (graph.kind[3], graph.comm[3], graph.bytes[3]) == (TaskKind.COLLECTIVE, Comm.ALL_REDUCE, 1 << 20)
    assert graph.groups[graph.group[3]] == (0, 1, 2, 3)


def test_streams_wait_by_events_and_the_host_by_a_value() -> None:
    record = {"kind": EntryKind.RECORD, "a": 9}
    block = {"kind": EntryKind.BLOCK, "a": 9, "stream": 1}
    read = {"kind": EntryKind.READ, "signature": 7, "stream": 1}
    graph = graph_of_captured([rank_of(mark(), operator(1), record, block, operator(3, stream=1), read)])
    names = [graph.names[name] for name in graph.name]
    assert "aten::mm" in deps_of(graph, names.index("aten::add.Tensor"))
    assert "aten::add.Tensor" in deps_of(graph, names.index("read a value"))


def test_the_host_takes_what_it_took_and_a_launch() -> None:
    graph = graph_of_captured(
        [rank_of(mark(host=5000), operator(1, host=7000), {"kind": EntryKind.FREE, "host": 3000}, operator(1))]
    )
    assert graph.seconds[0] == pytest.approx(12e-6 + LAUNCH)
    assert graph.seconds[2] == pytest.approx(3e-6 + LAUNCH)


def test_the_shortest_of_equal_steps_counts_but_not_the_first() -> None:
    def step(host: int) -> list[dict[str, Any]]:
        return [mark(), operator(1, host=host)]

    graph = graph_of_captured([rank_of(*step(1000), *step(4000), *step(9000))])
    assert graph.seconds[0] == pytest.approx(4e-6 + LAUNCH)
    assert len(steps_of(rank_of(*step(1), *step(1)))) == 2


def test_messages_of_stages_meet_and_the_step_ends() -> None:
    """Rank 0 sends to rank 2, its partner in group 1, which receives."""
    first = rank_of(mark(), operator(1), call(0, name=6, group=1, peer=1))
    texts = (*TEXTS[:6], "recv", *TEXTS[7:])
    second = rank_of(mark(), call(0, name=6, group=1, peer=0), {"kind": EntryKind.CALL_WAIT, "a": 0}, operator(1), rank=2)
    graph = graph_of_captured([first, CapturedRank(second.entries, texts, second.about)])
    assert graph.peer[graph.kind == TaskKind.SEND].tolist() == [2]
    assert graph.peer[graph.kind == TaskKind.RECEIVE].tolist() == [0]
    result = replay(graph, load_cluster("h100-ib", ["gpus=4"]), ReplayOptions(compute="kernels"))
    assert not result.stuck
    assert result.rank_end[1] > result.rank_end[0] - 1e-3


def test_a_file_comes_back_and_is_known_by_its_content(tmp_path: Path) -> None:
    rank = rank_of(mark(), operator(1), call(0))
    write_captured(rank, tmp_path / "rank-000000.parquet")
    again = read_captured(tmp_path / "rank-000000.parquet")
    assert (again.entries == rank.entries).all()
    assert again.texts == rank.texts
    reading = read_files([str(tmp_path / "rank-000000.parquet")])
    assert reading.format == "captured"
    assert reading.facts["world"] == 4


def test_a_broken_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "rank.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(FileError, match="capture"):
        read_captured(tmp_path / "rank.parquet")


def test_the_peak_is_that_of_pytorchs_blocks() -> None:
    """Two tensors of 3 MiB and 100 B at once: 512 B for the small one, and segments of 20 and 2 MiB."""
    take = [{"kind": EntryKind.ALLOCATE, "a": 1, "b": 3 << 20}, {"kind": EntryKind.ALLOCATE, "a": 2, "b": 100}]
    drop = [{"kind": EntryKind.FREE, "a": 1, "b": 3 << 20}]
    peak = peak_of(rank_of(*take, *drop, {"kind": EntryKind.ALLOCATE, "a": 3, "b": 1 << 20}))
    assert (peak.tensors, peak.allocated, peak.reserved) == ((3 << 20) + 100, (3 << 20) + 512, 22 << 20)


def test_what_a_compiled_function_frees_itself_never_was_unless_it_multiplies() -> None:
    def inside(*more: dict[str, Any]) -> CapturedRank:
        temporary, result = ({"kind": EntryKind.ALLOCATE, "a": address, "b": 8 << 20} for address in (1, 2))
        freed = {"kind": EntryKind.FREE, "a": 1, "b": 8 << 20}
        return rank_of(mark(name=8), temporary, *more, result, freed, mark(name=9))

    assert peak_of(inside()).tensors == 8 << 20
    assert peak_of(inside(mark(name=8), operator(3), mark(name=9))).tensors == 8 << 20
    assert peak_of(inside(operator(1))).tensors == 16 << 20


def test_each_stream_with_products_has_a_workspace() -> None:
    take = {"kind": EntryKind.ALLOCATE, "a": 1, "b": 3 << 20}
    assert peak_of(rank_of(take, operator(3)), 32 << 20).tensors == 3 << 20
    rank = rank_of(mark(), operator(1), operator(1), operator(1, stream=2), take)
    assert peak_of(rank, 32 << 20).tensors == (2 * 32 + 3) << 20
    moments = moments_of(rank, np.zeros(len(rank.entries)), 80e9, 32 << 20)
    assert moments.moments.allocated.max() == (2 * 32 + 3) << 20
    assert moments.highest[0] == HeldByModule("", "buffers", 64 << 20, 2)


def test_a_captured_graph_comes_back_from_its_chakra_traces(tmp_path: Path) -> None:
    """Two ranks: a call of two of four ranks, a message between stages, products, dependencies and seconds."""
    ranks = [
        rank_of(mark(), operator(1), call(0, group=1), call(1, name=6, group=1, peer=1, size=4096), operator(3), rank=0),
        rank_of(mark(), operator(1), call(0, group=1), operator(3), rank=2),
    ]
    graph = graph_of_captured(ranks)
    seconds = np.linspace(1e-6, 2e-6, len(graph))
    written = graph_traces(graph, seconds, 4)
    assert json.loads(written.files["comm_group.json"]) == {"1": [0, 2]}
    written.save(tmp_path)
    back = read_files([str(path) for path in sorted(tmp_path.iterdir())]).value
    assert back.numbers.tolist() == [0, 2]
    for name in ("kind", "on_host", "lane", "comm"):
        assert getattr(back, name).tolist() == getattr(graph, name).tolist()
    assert back.seconds == pytest.approx(seconds)
    assert back.deps.tolist() == graph.deps.tolist()
    assert [back.names[name] for name in back.name] == [graph.names[name] for name in graph.name]
    calls = graph.kind == TaskKind.COLLECTIVE
    assert back.bytes[calls].tolist() == graph.bytes[calls].tolist()
    sends = graph.kind == TaskKind.SEND
    assert back.peer[sends].tolist() == graph.peer[sends].tolist() and back.bytes[sends].tolist() == [4096]
    with pytest.raises(SpecError, match="prefix"):
        graph_traces(graph, seconds, 4, "a/b")


def test_ranks_that_differ_are_those_of_the_pipeline_and_the_last() -> None:
    assert different_ranks(rank_of(mark(), call(0)), 4) == [3]
    assert different_ranks(rank_of(mark(), call(0, name=6, group=1, peer=1)), 4) == [2, 3]


@pytest.mark.parametrize(
    ("command", "script", "module", "arguments"),
    [
        ("torchrun --nproc-per-node 8 --nnodes 4 {}/train.py --lr 1", "train.py", False, ["--lr", "1"]),
        ("python -m torch.distributed.run --nproc-per-node 8 {}/train.py", "train.py", False, []),
        ("torchrun --nproc-per-node 8 -m torchtitan.train --module llama3", "torchtitan.train", True, ["--module", "llama3"]),
        ("python {}/train.py x.py", "train.py", False, ["x.py"]),
        ("python -m pkg.train", "pkg.train", True, []),
    ],
)
def test_the_script_of_a_command(tmp_path: Path, command: str, script: str, module: bool, arguments: list[str]) -> None:
    (tmp_path / "train.py").touch()
    found = script_of(command.format(tmp_path).split())
    assert (Path(found.script).name, found.module, list(found.arguments)) == (script, module, arguments)


@pytest.mark.parametrize("command", [[], ["torchrun"], ["python", "gone.py"], ["ls", "-l"]])
def test_a_command_without_a_script_is_said(command: list[str]) -> None:
    with pytest.raises(SpecError, match="script"):
        script_of(command)


def test_variables_are_those_of_torchrun() -> None:
    said = variables_of(13, 16, 8)
    assert {name: said[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK")} == {
        "RANK": "13", "WORLD_SIZE": "16", "LOCAL_RANK": "5", "LOCAL_WORLD_SIZE": "8", "GROUP_RANK": "1",
    }  # fmt: skip


def test_a_card_is_the_clusters() -> None:
    card = card_of(load_cluster("h100-ib", ["gpus=4"]))
    assert (card.capability, card.processors, card.count) == ((9, 0), 132, 4)
    assert card_of(load_cluster("gb200-nvl72")).capability == (10, 0)
    with pytest.raises(SpecError, match="cuda"):
        card_of(load_cluster("tpu-v5p"))
