"""An execution trace and the profiler's trace of a rank become one graph with measured times."""

from __future__ import annotations

import gzip
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kineto_files import Json, event, kernel, trace, written

from windtunnel.base.comm import Comm
from windtunnel.base.errors import FileError, SpecError
from windtunnel.formats.door import read_files
from windtunnel.formats.reading import Content
from windtunnel.formats.traces.pytorch_et.links import align
from windtunnel.formats.traces.pytorch_et.ranks import groups_of
from windtunnel.records.trace_graph import TraceGraph
from windtunnel.replay import ReplayOptions, replay
from windtunnel.spec.loading.load import load_cluster

SAMPLES = "samples/3_profiler_traces"
OPS = ("aten::mm", "aten::add")
INIT = '[{"pg_name": "5", "pg_desc": "tp", "ranks": [0, 2], "group_size": 2}, {"pg_name": "0", "ranks": [], "group_size": 4}]'


def tensor(number: int, storage: int, elements: int) -> list[Any]:
    return [number, storage, 0, elements, 4, "cuda:0"]


def node(number: int, name: str, parent: int, inputs: Any = ((), (), ()), outputs: Any = ((), (), ()), **attrs: Any) -> Json:
    """A node of schema 1.1.1; `rf_id` is its number where nothing else is said."""
    both = {
        key: {"values": list(values), "shapes": list(shapes), "types": list(types), "strides": []}
        for key, (values, shapes, types) in (("inputs", inputs), ("outputs", outputs))
    }
    given = {"rf_id": number, "seq_id": -1, "tid": 1, "op_schema": f"{name}(...)" if name.startswith("aten::") else "", **attrs}
    return {"id": number, "name": name, "ctrl_deps": parent, **both, "attrs": [{"name": k, "value": v} for k, v in given.items()]}


def floats(*tensors: tuple[int, int, list[int]]) -> tuple[Any, ...]:
    """Tensors (number, storage, shape) as values, shapes and types."""
    values = [tensor(number, storage, int(np.prod(shape))) for number, storage, shape in tensors]
    return values, [shape for _, _, shape in tensors], ["Tensor(float)"] * len(tensors)


def comms(number: int, parent: int, storage: int, rank: int, group: Any = ("5", "tp"), more: tuple[int, ...] = (0, 2, 2)) -> Json:
    """An all-reduce of 64 floats."""
    values = [[tensor(90, storage, 64)], 33, list(group) if isinstance(group, tuple) else group, rank, "allreduce", [], [], *more]
    kinds = ["GenericList[Tensor(float)]", "Int", "Tuple[String,String]" if isinstance(group, tuple) else "Int"]
    shapes = [[[64]], *[[]] * (len(values) - 1)]
    out = [[tensor(90, storage, 64)]], [[[64]]], kinds[:1]
    return node(number, "record_param_comms", parent, (values, shapes, kinds), out)


def execution_trace(rank: int = 0, **call: Any) -> Json:
    """mm (8 x 4 by 4 x 2) writes storage 30; its sum over ranks is what add reads."""
    nodes = [
        node(1, "[pytorch|profiler|execution_trace|process]", 1),
        node(2, "[pytorch|profiler|execution_trace|thread]", 1, rf_id=0),
        node(3, "## process_group:init ##", 2, ([INIT], [[]], ["String"])),
        node(10, "aten::mm", 2, floats((11, 21, [8, 4]), (12, 22, [4, 2])), floats((13, 30, [8, 2]))),
        node(40, "c10d::allreduce_", 2),
        comms(41, 40, 30, rank, **call),
        node(42, "nccl:all_reduce", 41, floats((13, 30, [8, 2]))),
        node(50, "aten::add", 2, floats((13, 30, [8, 2])), floats((14, 31, [8, 2]))),
    ]
    return {"schema": "1.1.1-chakra.0.0.4", "pid": 1, "start_ts": 1, "nodes": nodes, "finish_ts": 2}


def profile(rank: int = 0, world: int = 4, late: float = 0.0, numbers: bool = True) -> Json:
    """The same four operators measured: mm at 20-60 on stream 7, the call at 70-100 on stream 20, add at 110-115."""

    def host(name: str, number: int, begin: float, seconds: float, category: str = "cpu_op") -> Json:
        told = {"Record_function_id": number} if numbers else {}
        return event(name, category, begin, seconds, External_id=number + 5, **told)

    events = [
        host("aten::mm", 10, 0, 10),
        host("c10d::allreduce_", 40, 12, 10),
        host("record_param_comms", 41, 13, 8),
        host("nccl:all_reduce", 42, 14, 6, "user_annotation"),
        host("aten::add", 50, 30, 8),
        *kernel("gemm", 2, 20, 40, 1),
        *kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 15, 70 + late, 30 - late, 2, 20),
        *kernel("add", 32, 110, 5, 3),
    ]
    return trace(events, rank, world)


def names(graph: TraceGraph) -> list[str]:
    return [graph.names[at] for at in graph.name]


def pair(folder: Path, nodes: Json, events: Json, number: int = 0) -> list[Path]:
    return [written(folder / f"et_{number}.json", nodes), written(folder / f"kineto_{number}.json", events)]


def test_times_are_measured_and_the_rest_is_from_the_execution_trace(tmp_path: Path) -> None:
    reading = read_files(pair(tmp_path, execution_trace(), profile()))
    graph = reading.value
    assert reading.content is Content.GRAPH and reading.facts["by_rank"][0]["by"] == "record function ids"
    gemm, call, add = (names(graph).index(name) for name in ("gemm", names(graph)[[*graph.kind].index(1)], "add"))
    assert graph.seconds[[gemm, call, add]] == pytest.approx([40e-6, 30e-6, 5e-6])
    assert graph.ids[[gemm, call, add]].tolist() == [10, 42, 50]
    assert graph.flops[gemm] == 2 * 8 * 4 * 2 and graph.bytes[gemm] == (32 + 8 + 16) * 4
    assert graph.bytes[add] == (16 + 16) * 4 and np.isnan(graph.flops[add])
    assert graph.groups == ((0, 2),) and graph.group[call] == 0 and graph.comm[call] == Comm.ALL_REDUCE
    assert graph.bytes[call] == 64 * 4  # the profiler has no shapes here
    assert call in graph.deps[graph.dep_start[add] : graph.dep_start[add + 1]]  # reads what the call wrote, on another stream
    assert gemm in graph.deps[graph.dep_start[call] : graph.dep_start[call + 1]]
    end = replay(graph, load_cluster("h100-ib", []), ReplayOptions(calls="trace")).as_dict()["end_s"]
    assert end == pytest.approx(113e-6)  # from the first launch at 2 us


def test_without_numbers_names_are_linked_in_order(tmp_path: Path) -> None:
    reading = read_files(pair(tmp_path, execution_trace(), profile(numbers=False)))
    assert reading.facts["by_rank"][0]["by"] == "their order" and reading.value.groups == ((0, 2),)
    assert any("by their order" in note for note in reading.assumed)


@pytest.mark.parametrize(
    ("group", "more", "world", "ranks"),
    [
        (("7", "x"), (1, 2, 2), 4, (1, 3)),  # start, stride and size of newer traces
        (94594108284448, (), 4, ()),  # an address without a size
        (94594108284448, (0, 1, 4), 4, (0, 1, 2, 3)),
        (("0", "default_pg"), (0, 1, 4), 4, (0, 1, 2, 3)),  # the group's ranks are left out where it is the whole job
    ],
)
def test_process_groups(tmp_path: Path, group: Any, more: tuple[int, ...], world: int, ranks: tuple[int, ...]) -> None:
    nodes = execution_trace(0, group=group, more=more)
    graph = read_files(pair(tmp_path, nodes, profile(ranks[0] if ranks else 0, world))).value
    assert graph.groups == ((ranks,) if ranks else ())


def test_a_list_of_groups_that_is_cut_off() -> None:
    assert groups_of([INIT[:-20]]) == {"5": (0, 2)}
    assert groups_of([INIT, 3, "{", '{"pg_name": {}}']) == {"5": (0, 2), "0": (0, 1, 2, 3)}


def steps(count: int, first: int = 0, sequence: int | None = 0, old: bool = True) -> tuple[list[Json], list[Json]]:
    """Nodes of schema 1.0.1 and events of equal steps of six operators; each step has its sequence number."""
    nodes, events = [], []
    for step in range(first, first + count):
        for at, name in enumerate(("aten::t", "aten::mm", "aten::relu", "aten::sum", "aten::mul", "aten::copy_")):
            number = 100 * step + 10 + at
            told = -1 if sequence is None else step + sequence
            nodes.append({"id": number, "name": name, "parent": 2, "rf_id": 7000 + number, "seq_id": told, "tid": 1,
                          "op_schema": name, "inputs": [], "outputs": []})  # fmt: skip
            begin = 100.0 * step + 10 * at
            args = {} if told < 0 else {"Sequence_number": told}
            events.append(event(name, "cpu_op", begin, 8, External_id=3000 + number, **args))
            events.extend(kernel(name[6:], begin + 1, begin + 5, 3, number))
    return nodes, events


def linked_steps(folder: Path, nodes: list[Json], events: list[Json]) -> Any:
    et = {"schema": "1.0.1", "nodes": [{"id": 1, "name": "[pytorch|profiler|execution_graph|process]", "parent": 1}, *nodes]}
    return read_files(pair(folder, et, trace(events, 0, 1)))


@pytest.mark.parametrize(("sequence", "wanted", "said"), [(0, 2, ""), (None, 0, "5 windows"), (40, 0, "another step")])
def test_which_of_equal_steps_was_recorded(tmp_path: Path, sequence: int | None, wanted: int, said: str) -> None:
    """Autograd's numbers say it; without any the first one is taken, and told."""
    nodes, _ = steps(1, 2, None if sequence is None else sequence + 1)
    _, events = steps(5, 0, None if sequence is None else 1)
    extra = event("ProfilerStep#9", "user_annotation", 0, 900)
    reading = linked_steps(tmp_path, nodes, [extra, *events])
    graph = reading.value
    on_device = np.flatnonzero((graph.ids >= 0) & ~graph.on_host)
    assert graph.ids[on_device].tolist() == [210, 211, 212, 213, 214, 215]
    assert graph.begin[on_device[0]] == pytest.approx(wanted * 100e-6 + 4e-6)
    assert not said or any(said in note for note in reading.assumed)
    assert reading.facts["linked_kernels"] == 6 and reading.facts["kernels"] == 30


def test_an_execution_trace_of_more_steps_than_were_profiled(tmp_path: Path) -> None:
    nodes, _ = steps(5)
    _, events = steps(1, 3)
    graph = linked_steps(tmp_path, nodes, events).value
    assert sorted(set(graph.ids[~graph.on_host].tolist()) - {-1}) == [310, 311, 312, 313, 314, 315]


def test_traces_of_different_runs_are_refused(tmp_path: Path) -> None:
    nodes, _ = steps(2)
    with pytest.raises(FileError, match="two traces of one rank and one window") as refused:
        linked_steps(tmp_path, nodes, profile()["traceEvents"])
    assert "execution_trace_observer" in str(refused.value)
    with pytest.raises(SpecError, match="rank 2 and the profiler's of rank 0"):
        read_files(pair(tmp_path, execution_trace(1), profile(0)))
    log = written(tmp_path / "schedule.goal", "num_ranks 1\n\nrank 0 {\nl1: calc 100\n}\n")
    with pytest.raises(SpecError, match="files of one format"):
        read_files([*pair(tmp_path, execution_trace(), profile()), log])


def test_numbers_of_another_window_are_no_link(tmp_path: Path) -> None:
    """A few equal numbers with equal names are no accident: then the order is not asked."""
    nodes, events = steps(4, 0, None)
    for at, one in enumerate(e for e in events if e["cat"] == "cpu_op"):
        one["args"]["Record function id"] = 7000 + 10 + at % 6 if at < 6 else 10**6 + at
    with pytest.raises(FileError, match="6 of its 24 operators"):
        linked_steps(tmp_path, nodes, events)


def test_files_that_are_cut_off_are_linked_as_far_as_they_go(tmp_path: Path) -> None:
    nodes, events = steps(6)
    whole = {"schema": "1.0.1", "nodes": nodes}, trace(events, 0, 1)
    texts = [json.dumps(one, indent=1) for one in whole]
    for cut in (0, 1):
        paths = [
            written(tmp_path / f"{cut}{at}.json", text[: int(len(text) * 0.6)] if at == cut else text)
            for at, text in enumerate(texts)
        ]
        reading = read_files(paths)
        assert reading.facts["linked_kernels"] >= 15 and sum("ends inside" in line for line in reading.broken) == 1
    packed = gzip.compress(texts[0].encode())
    (tmp_path / "et.json.gz").write_bytes(packed[: len(packed) * 2 // 3])
    reading = read_files([tmp_path / "et.json.gz", written(tmp_path / "k.json", texts[1])])
    assert any("gzip stream ends early" in line for line in reading.broken) and reading.facts["linked_kernels"] > 0


def test_two_ranks_meet_in_the_group_that_only_the_execution_traces_name(tmp_path: Path) -> None:
    files = pair(tmp_path, execution_trace(1), profile(2, late=10.0), 7) + pair(tmp_path, execution_trace(0), profile(0), 3)
    reading = read_files(files)
    graph = reading.value
    assert graph.rank_ids.tolist() == [0, 2] and graph.groups == ((0, 2),)
    calls = np.flatnonzero(graph.group == 0)
    assert len(calls) == 2 and graph.seconds[calls] == pytest.approx([20e-6, 20e-6])  # from the last arrival
    assert [one["rank"] for one in reading.facts["by_rank"]] == [0, 2] and not any(
        "order of the files" in n for n in reading.assumed
    )
    with tarfile.open(tmp_path / "ets.tar.gz", "w:gz") as archive:
        for path in files[::2]:
            archive.add(path, path.name)
    packed = read_files([tmp_path / "ets.tar.gz", *files[1::2]]).value
    assert packed.deps.tolist() == graph.deps.tolist() and packed.ids.tolist() == graph.ids.tolist()
    alone = read_files([*files[:2], files[3]])
    assert any("no execution trace of rank 0" in note for note in alone.assumed) and alone.facts["linked_ranks"] == 1


def test_ranks_that_no_file_states_are_paired_in_order(tmp_path: Path) -> None:
    nodes, events = steps(2)
    ets = [written(tmp_path / f"et_{name}.json", {"schema": "1.0.1", "nodes": nodes}) for name in (11, 12)]
    traces = [written(tmp_path / f"{name}.json", trace(events, rank, 2)) for rank, name in enumerate("ab")]
    reading = read_files([*ets, *traces])
    assert reading.facts["linked_ranks"] == 2 and sum("by the order of the files" in note for note in reading.assumed) == 2


def test_two_threads_whose_order_differs(tmp_path: Path) -> None:
    """Each thread is followed by itself; the threads have other numbers in both traces."""
    nodes, events = steps(2, 0, None)
    back, other = steps(2, 3, None)
    for one in back:
        one["tid"], one["name"] = 2, one["name"] + "_backward"
    for one in other:
        one["tid"] = 77 if one["cat"] != "kernel" else one["tid"]
        one["name"] += "_backward" if one["cat"] == "cpu_op" else ""
    reading = linked_steps(tmp_path, [*back, *nodes], [*events, *other])
    assert reading.facts["linked_kernels"] == 24 and reading.facts["by_rank"][0]["found"] == 24


@given(st.lists(st.integers(0, 9), min_size=1, max_size=60), st.data())
def test_alignment_pairs_equal_names_in_order(names_of_one: list[int], data: st.DataObject) -> None:
    first = np.array(names_of_one, np.int64)
    second = np.array(data.draw(st.lists(st.integers(0, 9), max_size=60)), np.int64)
    none = np.full(100, -1, np.int64)
    pairs = align(first, second, none[: len(first)], none[: len(second)])
    assert np.array_equal(first[pairs.first], second[pairs.second])
    assert (np.diff(pairs.first) > 0).all() and (np.diff(pairs.second) > 0).all()


def test_alignment_leaves_out_what_one_observer_lacks() -> None:
    names_of_one = np.arange(500) % 97
    other = np.concatenate([names_of_one[:100], [3, 3, 3], names_of_one[100:250], names_of_one[260:]])
    none = np.full(600, -1, np.int64)
    pairs = align(names_of_one, other, none[:500], none[: len(other)])
    wanted = [*range(100), *range(100, 250), *range(260, 500)]
    assert len(np.intersect1d(pairs.first, wanted)) == len(wanted)


@pytest.mark.parametrize(
    ("nodes", "events", "ranks", "linked"),
    [
        ("dlrm_pytorch_et.tar.gz", "dlrm_kineto.tar.gz", 8, 2116 / 2244),  # the rest was launched before the trace begins
        ("linear_et.json.gz", "linear_kineto.json.gz", 1, 261 / 10356),  # one step of 41
    ],
)
def test_pairs_of_the_samples(shared: Path, nodes: str, events: str, ranks: int, linked: float) -> None:
    """All operators are found, and the replay ends when the trace does."""
    folder = shared / SAMPLES / "param_pairs"
    reading = read_files([folder / nodes, folder / events])
    facts, graph = reading.facts, reading.value
    assert facts["linked_ranks"] == ranks and all(one["found"] == one["operators"] for one in facts["by_rank"])
    assert facts["linked_kernels"] / facts["kernels"] == pytest.approx(linked)
    assert graph.groups == ((tuple(range(8)),) if ranks == 8 else ())
    ends = replay(graph, load_cluster("h100-ib", []), ReplayOptions(calls="trace")).as_dict()["rank_end_s"]
    for rank, end in enumerate(ends):
        mine = slice(graph.rank_start[rank], graph.rank_start[rank + 1])
        measured = float((graph.begin[mine] + graph.seconds[mine]).max())  # the host's last wait included
        assert end == pytest.approx(measured, rel=1e-3)


def test_the_small_pair_of_the_samples(shared: Path) -> None:
    folder = shared / SAMPLES / "hta/execution_trace"
    reading = read_files([folder / "benchmark_simple_add_et.json.gz", folder / "benchmark_simple_add_trace.json.gz"])
    assert reading.facts["by_rank"][0]["found"] == 28 and reading.facts["linked_kernels"] == 4
