"""Scripts on a cluster that isn't there: their calls, splits, stages and memory are those that a hand counts."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from forked_ranks import RankForge

import windtunnel as wt
from windtunnel.base.comm import Comm
from windtunnel.capture.run import RankServer
from windtunnel.fleet.recorded import recorded_of_rings
from windtunnel.records.capture_file import EntryKind, steps_of
from windtunnel.records.sections import Section

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("loaded_once")]
pytest.importorskip("torch")
SCRIPTS = Path(__file__).parent / "scripts"


def captured(name: str, gpus: int, folder: Path, *arguments: str, **options: object) -> wt.Captured:
    command = ["torchrun", "--nproc-per-node", "8", str(SCRIPTS / f"{name}.py"), *arguments]
    return wt.capture(command, "h100-ib", gpus, out=folder, **options)  # type: ignore[arg-type]


def test_fsdp_over_tensor_parallelism_has_the_calls_that_a_hand_counts(tmp_path: Path) -> None:
    """Layers of 2 x 256 x 1024 weights over tp 2, sharded over dp 8. Gathered in bf16 forward and backward, but for the last layer,
    which stays; reduced in fp32. An all-reduce of bf16 activations forward and, but for the first layer, backward."""
    job = captured("sharded", 16, tmp_path)
    calls = {(calls.op, len(calls.ranks)): (calls.count, calls.bytes) for calls in job.calls}
    weights = 2 * 256 * 1024 // 2
    activations = 2 * 64 * 256 * 2
    assert calls[("reduce_scatter", 8)] == (3, 3 * 4 * weights)
    assert calls[("all_reduce", 2)] == (5, 5 * activations)
    assert calls[("all_gather", 8)][0] in (5, 6)
    assert calls[("all_gather", 8)][1] == calls[("all_gather", 8)][0] * 2 * weights
    assert job.operators["aten::mm"] == 3 * 6 - 1  # no gradient of the first layer's input
    assert job.world == 16
    assert 1e-4 < job.seconds < 5
    assert not job.values


ON_THE_HOST = frozenset((
    "aten::_local_scalar_dense", "aten::add_.Tensor", "aten::add.Tensor", "aten::div.Tensor", "aten::mul.Tensor",
))  # fmt: skip
"""Operators of a real run on a CPU that are others on a GPU: AdamW counts its steps on the host, scalars are wrapped there,
gradients are added up in place but where operators are listed, and DDP's own division of a bucket is not seen in a real run."""


def called(job: wt.Captured) -> list[tuple[str, int, tuple[int, ...]]]:
    """Calls of the first captured rank's last step in their order, with bytes and ranks."""
    rank = job.ranks[0]
    entries = rank.entries[steps_of(rank)[-1]]
    calls = entries[entries["kind"] == EntryKind.CALL]
    groups = rank.about["groups"]
    return [(rank.texts[call["name"]], int(call["b"]), tuple(groups[int(call["c"]) >> 32]["ranks"])) for call in calls]


A_NUMBER = 8
"""Bytes of a tensor of one number. Scalars that are wrapped lie on the host, and the steps that AdamW counts; on a CPU, among the
rest."""


def allocated(job: wt.Captured) -> tuple[int, list[int]]:
    """Bytes of tensors as the first captured rank's last step begins, and the allocations of the step, negative where they end."""
    rank = job.ranks[0]
    last = steps_of(rank)[-1]
    memory = np.isin(rank.entries["kind"], (EntryKind.ALLOCATE, EntryKind.FREE)) & (rank.entries["b"] > A_NUMBER)
    signed = np.where(rank.entries["kind"] == EntryKind.ALLOCATE, rank.entries["b"], -rank.entries["b"])
    return int(signed[: last.start][memory[: last.start]].sum()), signed[last][memory[last]].tolist()


def allocated_really(memory: list[tuple[int, int, int, list[str]]], step: int) -> tuple[int, list[int]]:
    """The same of PyTorch's own run. What a GPU does not allocate is left out: a tensor of one number; what gloo copies for itself
    in a call; and scratch of a CPU's kernel, which begins while its operator runs, and is freed by the operator itself."""
    live: dict[int, int] = {}
    left_out: set[int] = set()
    for number, (size, address, _, inside) in enumerate(memory):
        if size > 0:
            live[address] = number
            if size <= A_NUMBER or any(name.startswith(("c10d::", "gloo:")) for name in inside):
                left_out.add(number)
            continue
        begun = live.pop(address)
        if begun in left_out:
            left_out.add(number)
        elif inside and inside[-1].startswith("aten::") and inside[-1] in memory[begun][3]:
            left_out |= {begun, number}
    kept = [(when, size) for number, (size, _, when, _) in enumerate(memory) if number not in left_out]
    return sum(size for when, size in kept if when < step), [size for when, size in kept if when == step]


TURNS = 12
"""Real runs at most. Where a thread of gloo is the last to hold a tensor of a call, PyTorch's profiler, of one thread, does
not see it go: that run has a free too few, and another one is made."""


@pytest.fixture(scope="module")
def forge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RankForge]:
    made = RankForge(Path(__file__).with_name("capture_ranks.py"), tmp_path_factory.mktemp("said"))
    yield made
    made.close()


@pytest.mark.parametrize(("kind", "world"), [("ddp", 2), ("attention", 2), ("tp", 2), ("fsdp", 4), ("mesh", 8)])
def test_a_step_is_that_of_a_real_run(kind: str, world: int, forge: RankForge, tmp_path: Path) -> None:
    """The same script on real processes over gloo, watched by the monitor and PyTorch's profiler: the same calls, bytes, groups and
    order; the same operators; and the same allocations from the first to the last of a step, so the same bytes at each moment."""
    script = str(SCRIPTS / "either.py")
    job = wt.capture(["torchrun", script, kind], "h100-ib", world, out=tmp_path / "captured", ranks=[0])
    held, sizes = allocated(job)
    for turn in range(TURNS):
        folder = tmp_path / f"{turn}"
        said = forge.ran("run", world, script, [kind], str(folder))[0][0]
        if allocated_really(said["memory"], 4) == (held, sizes):
            break
    table = recorded_of_rings(folder / "real").sections
    last = table.where((table.rank == 0) & (table.section == Section.CALL) & (table.step == 4))
    real = [
        (Comm(int(comm)).name.lower(), int(size), table.groups[group])
        for comm, size, group in zip(last.comm, last.bytes, last.group, strict=True)
    ]
    assert len(real) >= 3
    assert called(job) == real
    operators = Counter(said["operators"])
    shared = {name: count for name, count in operators.items() if name not in ON_THE_HOST and "attention" not in name}
    if kind not in ("fsdp", "mesh"):  # FSDP copies between buffers by other operators on a CPU
        assert {name: count for name, count in job.operators.items() if name in shared} == shared
        assert len(shared) >= 8
    assert (held, sizes) == allocated_really(said["memory"], 4)
    assert held > 3 * 4 * 32 * 1024 / world  # weights and their two moments, at least
    assert len(sizes) > 100


def test_experts_get_even_shares_and_values_that_are_known_are_known(tmp_path: Path) -> None:
    """256 tokens to 2 of 8 experts on 4 ranks: a quarter of 512 rows to each, there and back. Backward, only what comes back
    travels again: the tokens need no gradient."""
    job = captured("experts", 4, tmp_path, ranks=[1])
    calls = {calls.op: (calls.count, calls.bytes) for calls in job.calls}
    count, size = calls["all_to_all"]
    assert count == 1 + 2 + 1
    assert size == 4 * 8 + 3 * 512 * 128 * 4
    assert [value.rule for value in job.values] == ["Float is 1"]
    assert job.ranks[0].about["rank"] == 1


def test_stages_run_together_and_meet(tmp_path: Path) -> None:
    job = captured("stages", 4, tmp_path)
    assert [int(rank.about["rank"]) for rank in job.ranks] == [0, 1, 2, 3]
    calls = {calls.op: (calls.count, calls.bytes) for calls in job.calls}
    assert calls["send"] == calls["recv"] == (8, 8 * 4 * 8 * 512)
    assert not job.replayed.stuck
    middle = job.ranks[1]
    sent = middle.entries[steps_of(middle)[-1]]
    assert (sent["kind"] == EntryKind.CALL).sum() == 4 * 8 + 2  # and sums of a weight's and a bias's gradient


def test_a_model_that_is_larger_than_the_machine_takes_no_memory(tmp_path: Path) -> None:
    """150 GB on the host and half of it on the device, by a process that may have 3 GiB."""
    job = captured("large", 1, tmp_path)
    assert job.memory[0].tensors > 35 * 32768 * 32768 * 2
    said = (tmp_path / "rank-000000.log").read_text().splitlines()
    held = [int(line.rpartition(" ")[2]) for line in said if line.startswith("host memory")]
    assert held
    assert max(held) < 2 << 20


def test_products_of_8_bits_gather_8_bits(tmp_path: Path) -> None:
    """Transformer Engine 2.6, module/base.py grad_output_preprocess and distributed.py _all_gather_fp8: what is gathered is cast
    before, the gradient of a row-parallel product too, and ranks agree on the scale (linear.py, with_amax_reduction)."""
    job = captured("fused", 2, tmp_path, "fp8", ranks=[0])
    calls = {calls.op: (calls.count, calls.bytes) for calls in job.calls}
    rows = 2 * 64 * 256
    largest = (2, 2 * 4)  # of the column-parallel input and of the row-parallel gradient
    assert calls == {"all_gather": (3, 3 * rows), "reduce_scatter": (2, 2 * 2 * rows), "all_reduce": largest}


def test_stand_ins_make_the_kernels_and_calls_of_what_they_stand_for(tmp_path: Path) -> None:
    """Forward a gather before the norm's product and a sum after the other one; backward both again, and the norm's output gathered
    once more for its weight's gradient. Gradients of weights are added to fp32 ones by the product itself."""
    job = captured("fused", 2, tmp_path, ranks=[0])
    calls = {calls.op: (calls.count, calls.bytes) for calls in job.calls}
    rows = 2 * 64 * 256 * 2
    assert calls == {"all_gather": (3, 3 * rows), "reduce_scatter": (2, 2 * rows)}
    operators = job.operators
    assert operators["aten::mm"] == 4
    assert operators["fused_weight_gradient::wgrad_gemm_accum"] == 2
    assert operators["transformer_engine::norm_fwd"] == operators["transformer_engine::norm_bwd"] == 1
    assert operators["aten::_scaled_dot_product_flash_attention"] == 1
    assert operators["multi_tensor::adam"] == 1
    products = job.replayed.graph.products
    sides = sorted(tuple(sorted(row[1:4])) for row in products[products[:, 0] > 0].tolist())
    assert sides == [(128, 256, 512)] * 6
    said = " ".join(job.ranks[0].about["notes"])
    assert "flash-attn is not installed" in said
    assert "Transformer Engine is not installed" in said


def test_a_replayed_graph_is_one_launch_and_has_a_step_of_its_own(tmp_path: Path) -> None:
    job = captured("graphs", 1, tmp_path, steps=4)
    rank = job.ranks[0]
    assert rank.about["steps"] == 4
    assert "torch.compile: the code runs as it is written, without fusion" in rank.about["notes"]
    graph = job.replayed.graph
    names = [graph.names[name] for name in graph.name[graph.on_host].tolist()]
    assert [name for name in names if name.startswith("launch")] == [
        "launch aten::normal_", "launch aten::copy_", names[-1],
    ]  # fmt: skip
    assert job.operators["aten::addmm"] == 2
    assert job.operators["aten::mm"] == 3


def test_steps_of_a_script_without_an_optimizer_end_where_it_writes_its_parameters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it saves after each of them is left out: no file but the capture's comes."""
    monkeypatch.chdir(tmp_path)
    job = captured("own_update", 1, tmp_path / "captured")
    made = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*"))
    assert made == ["captured", "captured/rank-000000.log", "captured/rank-000000.parquet"]
    assert "saves are left out" in job.ranks[0].about["notes"]
    assert job.ranks[0].about["steps"] == 3
    assert job.operators["aten::addmm"] == 2 * 2
    assert job.operators["aten::sub_.Tensor"] == 4
    assert any("no optimizer of torch" in note for note in job.ranks[0].about["notes"])


def test_a_script_that_breaks_says_its_own_line_and_reaches_nobody(tmp_path: Path) -> None:
    with pytest.raises(wt.EngineError, match=r"broken\.py, line 12: model") as raised:
        captured("broken", 1, tmp_path)
    assert "[4, 9] X [8, 8]" in str(raised.value)
    assert "refused: a captured script has no network" in (tmp_path / "rank-000000.log").read_text()


@pytest.mark.parametrize(("preset", "forward", "backward"), [("fsdp2", (32, 1), (45, 2)), ("fsdp", (30, 1), (46, 2))])
def test_the_host_of_a_preset_is_that_of_its_layers(
    preset: str, forward: tuple[int, int], backward: tuple[int, int], tmp_path: Path
) -> None:
    """A block gathers its parameters forward, and backward again before their gradients are scattered. What FSDP's hooks take is
    several times what Python takes for a launch and a call."""
    host = wt.profile_host([preset], steps=8, out=str(tmp_path / "host.toml"))
    assert (host.times.layers, host.times.passes) == (12, 1)
    assert (host.times.forward.kernels, host.times.forward.calls) == forward
    assert (host.times.backward.kernels, host.times.backward.calls) == backward
    assert host.whole is not None
    assert (host.whole.forward.kernels, host.whole.forward.calls) == (18, 0)
    assert host.constants["sharded"] > 10 * host.times.call > 0
    runtime = wt.load("llama3-8b-8xh100", [f"runtime.host={tmp_path / 'host.toml'}"]).runtime
    assert runtime.host.sharded == host.constants["sharded"]
    assert host.times.processor in runtime.host.source


def test_tokens_of_deep_ep_travel_once_to_each_rank(tmp_path: Path) -> None:
    """256 tokens go to experts 2t and 2t + 1 of 8 on 4 ranks, which are on one rank. A row has 128 numbers of 16 bits; there,
    also 2 numbers of experts and 2 weights, and back in the backward pass the weights."""
    job = captured("deep_ep_experts", 4, tmp_path, ranks=[1])
    calls = {calls.op: (calls.count, calls.bytes) for calls in job.calls}
    assert calls == {"all_to_all": (4, 256 * (4 * 256 + 2 * (8 + 4) + 2 * 4))}
    assert job.operators["deep_ep::get_dispatch_layout"] == 1
    assert not job.values
    assert "DeepEP is not installed" in " ".join(job.ranks[0].about["notes"])


def test_low_latency_kernels_send_each_expert_a_copy_in_8_bits(tmp_path: Path) -> None:
    job = captured("deep_ep_experts", 4, tmp_path, "low", ranks=[1])
    calls = {calls.op: (calls.count, calls.bytes) for calls in job.calls}
    assert calls == {"all_to_all": (2, 2 * 256 * (128 + 4 + 256))}  # a scale for 128 numbers there, 16 bits back


def test_a_triton_kernel_is_recorded_with_its_grid_and_takes_its_arrays_once_through_memory(tmp_path: Path) -> None:
    job = captured("triton_kernels", 1, tmp_path)
    assert job.operators["triton::add_kernel"] == job.operators["triton::softmax_kernel"] == 1
    rank = job.ranks[0]
    launched = rank.entries[steps_of(rank)[-1]]
    grids = {
        rank.texts[entry["name"]]: json.loads(rank.texts[entry["signature"]].partition(">")[0])[1]
        for entry in launched
        if rank.texts[entry["name"]].startswith("triton::")
    }
    assert grids == {"triton::add_kernel": [4096 * 512 // 1024], "triton::softmax_kernel": [4096 // 4, 1]}
    graph = job.replayed.graph
    named = {graph.names[number]: float(size) for number, size in zip(graph.name, graph.bytes, strict=True)}
    sizes = {name: size for name, size in named.items() if name.startswith("triton::")}
    assert sizes == {"triton::add_kernel": 3 * 4096 * 512 * 4, "triton::softmax_kernel": 2 * 4096 * 512 * 4}
    assert any("2 Triton kernels" in said and "assumed" in said for said in job.replayed.assumed)


def test_attention_is_the_first_kernel_in_the_scripts_order_that_takes_its_inputs(tmp_path: Path) -> None:
    """FlashAttention takes values as wide as queries, the memory-efficient one and cuDNN's (192 and 128) narrower ones too.
    Groups in 32 bits are none's: they are products. Latent attention's FLOPs are those of the mean of its widths."""
    job = captured("attentions", 1, tmp_path)
    fused = {name: count for name, count in job.operators.items() if "attention" in name}
    names = [f"aten::_scaled_dot_product_{kind}_attention" for kind in ("flash", "efficient", "cudnn")]
    assert fused == dict.fromkeys([*names, *(f"{name}_backward" for name in names)], 1)
    assert job.operators["aten::bmm"] == 6
    assert [int(row[7]) for row in job.replayed.graph.attentions] == [128, 128, 160, 160, 160, 160]


def test_a_device_that_cannot_be_loaded_says_why(tmp_path: Path) -> None:
    card = {"name": "GPU", "capability": [9, 0], "memory": 1, "processors": 1, "count": 1}
    server = RankServer(str(tmp_path / "missing.so"), card)
    server.begin(tmp_path / "plan.json")
    with pytest.raises(wt.EngineError, match=r"(?s)ended with 1:.*missing\.so"):
        while server.read_status(tmp_path / "plan.json") is None:
            time.sleep(0.02)
    server.close()
