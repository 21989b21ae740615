"""Verbs of a job on a captured one: what they say of a file that is written by hand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from windtunnel.api.against import against
from windtunnel.api.capture import passes_of_entries, read_capture
from windtunnel.api.captured_whatif import what_if_captured
from windtunnel.base.errors import SpecError
from windtunnel.cli import main
from windtunnel.formats.traces.captured import shapes_of
from windtunnel.records.capture_file import (
    ENTRY,
    OPTIMIZER,
    OPTIMIZER_END,
    REPLAYED,
    STEP,
    CapturedRank,
    EntryKind,
    captured_files,
    write_captured,
)
from windtunnel.spec import load_job

MM = '[{"d":"BFloat16","s":[4096,4096]},{"d":"BFloat16","s":[4096,8192]}]>[{"d":"BFloat16","s":[4096,8192]}]'
TEXTS = (STEP, OPTIMIZER, OPTIMIZER_END, "aten::mm", MM, "all_reduce", "block")
WEIGHTS, ACTIVATIONS, TEMPORARY, GRADIENTS, STATE, CUBLAS = (size << 20 for size in (10, 20, 40, 5, 2, 32))


def entry(kind: EntryKind, **fields: int) -> np.void:
    row = np.zeros((), ENTRY)
    row["kind"], row["name"], row["module"], row["signature"], row["host"] = kind, -1, -1, -1, 1000
    for name, value in fields.items():
        row[name] = value
    return row[()]


def mark(text: str) -> np.void:
    return entry(EntryKind.MARK, name=TEXTS.index(text))


def captured(folder: Path) -> Path:
    """A step of 8 ranks: a product forward and one backward, an all-reduce of 8 MiB, states that the update makes."""
    product = {"name": TEXTS.index("aten::mm"), "signature": TEXTS.index(MM)}
    entries = [
        entry(EntryKind.ALLOCATE, a=1, b=WEIGHTS),
        mark(STEP),
        entry(EntryKind.ALLOCATE, a=2, b=ACTIVATIONS, module=TEXTS.index("block")),
        entry(EntryKind.ALLOCATE, a=3, b=TEMPORARY),
        entry(EntryKind.OPERATOR, **product),
        entry(EntryKind.FREE, a=3, b=TEMPORARY),
        entry(EntryKind.ALLOCATE, a=4, b=GRADIENTS, backward=1),
        entry(EntryKind.OPERATOR, **product, backward=1, flag=REPLAYED),
        entry(EntryKind.FREE, a=2, b=ACTIVATIONS, backward=1),
        entry(EntryKind.CALL, name=TEXTS.index("all_reduce"), a=0, b=8 << 20, c=0, stream=1 << 20, signature=0),
        entry(EntryKind.CALL_WAIT, a=0),
        mark(OPTIMIZER),
        entry(EntryKind.ALLOCATE, a=5, b=STATE),
        mark(OPTIMIZER_END),
    ]
    about = {
        "rank": 0, "world": 8, "steps": 1, "groups": [{"number": 0, "name": "0", "ranks": list(range(8))}], "notes": [],
        "command": ["train.py"], "cluster": "h100-ib", "peak_bytes": 0, "live_bytes": 0,
    }  # fmt: skip
    folder.mkdir()
    write_captured(CapturedRank(np.array(entries, ENTRY), TEXTS, about), folder / "rank-000000.parquet")
    (folder / "rank-000000.log").write_text("what the script printed")
    return folder


def test_the_contents_of_tensors_follow_from_when_they_are_made_and_freed(tmp_path: Path) -> None:
    job = read_capture(captured(tmp_path / "captured"))
    (moments,) = job.moments
    highest = int(moments.moments.allocated.argmax())
    assert moments.moments.parts[highest].tolist() == [WEIGHTS, 0, 0, ACTIVATIONS, TEMPORARY, CUBLAS]
    assert moments.moments.parts[-1].tolist() == [WEIGHTS, GRADIENTS, STATE, 0, 0, CUBLAS]
    assert [(held.module, held.content, held.bytes) for held in moments.highest] == [
        ("", "temporary", TEMPORARY), ("", "buffers", CUBLAS), ("block", "activations", ACTIVATIONS), ("", "weights", WEIGHTS),
    ]  # fmt: skip
    assert passes_of_entries(job.ranks[0]).tolist() == [0, 1, 1, 1, 1, 1, 2, 2, 2, 1, 1, 3, 3, 1]


def test_verbs_of_a_job_take_a_capture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(captured(tmp_path / "captured"))
    assert captured_files([folder]) == [tmp_path / "captured" / "rank-000000.parquet"]
    steps = {}
    for network in ("closed", "flow", "packet"):
        assert main(["predict", folder, "--network", network, "--json", "-"]) == 0
        steps[network] = json.loads(capsys.readouterr().out)["step_s"]
    assert all(0 < step < 1 for step in steps.values())
    assert main(["predict", folder, "--on", "b200-ib", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["step_s"] < steps["closed"]
    assert main(["memory", folder, "--json", "-", "--picture", str(tmp_path / "picture.svg")]) == 0
    assert json.loads(capsys.readouterr().out)["over_time"][0]["rank"] == 0
    assert "<svg" in (tmp_path / "picture.svg").read_text()
    assert main(["replay", folder, "--on", "h100-ib", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["ranks"] == 1
    assert main(["predict", folder, "--set", "plan.tp=2"]) == 2
    assert "capture it again" in capsys.readouterr().err
    assert main(["memory", folder, "--stage", "0"]) == 2


def test_a_change_prices_the_captured_graph_again(tmp_path: Path) -> None:
    job = read_capture(captured(tmp_path / "captured"))
    half, other, idle = what_if_captured(job, ["scale:gemm=0.5", "cluster=b200-ib", "no-host-gaps"])
    assert half.touched == 2
    assert half.answer < half.measured
    assert other.answer < half.measured
    assert idle.answer <= idle.measured
    with pytest.raises(SpecError, match="capture it again"):
        what_if_captured(job, ["tp=4"])


def test_a_replayed_graph_is_not_launched_operator_by_operator(tmp_path: Path) -> None:
    graph = read_capture(captured(tmp_path / "captured")).replayed.graph
    launched = [graph.names[name] for name in graph.name[graph.on_host].tolist()]
    assert launched == ["launch aten::mm", "launch all_reduce"]


def test_an_update_in_one_kernel_counts_what_it_reads_and_writes() -> None:
    """AdamW of fp32 reads a parameter, its gradient and two averages, and writes all but the gradient: 28 bytes."""
    tensor = '{"d":"Float","s":[1000]}'
    step = '{"d":"Float","s":[]}'
    written = f"[{tensor}],[{tensor}],[{tensor}],[{tensor}],[]"
    signature = f"[{written},[{step}],0.1,0.9,0.95,0.1,1e-8,false,false,null,null]>[{written}]"
    assert shapes_of("aten::_fused_adamw_", signature).bytes == 28 * 1000 + 4
    copied = f"[[{tensor}],[{tensor}],false]>[[{tensor}]]"
    assert shapes_of("aten::_foreach_copy_", copied).bytes == 8 * 1000


def test_a_capture_beside_our_graph_lists_calls_products_and_memory(tmp_path: Path) -> None:
    job = read_capture(captured(tmp_path / "captured"))
    ours = load_job("llama3-8b-8xh100")
    found = against(job, ours)
    calls = {row.what: row for row in found.calls}
    assert (calls["all_reduce of 8 ranks"].count, calls["all_reduce of 8 ranks"].size) == (1, 8 << 20)
    assert calls["all_reduce of 8 ranks"].our_count == 0
    assert calls["reduce_scatter of 8 ranks"].count == 0
    assert calls["reduce_scatter of 8 ranks"].our_size > 1e9
    (products,) = [row for row in found.products if row.what == "matrix products"]
    assert products.size == 2 * 2 * 4096 * 4096 * 8192
    assert {row.what: row.size for row in found.memory}["all tensors"] == WEIGHTS + ACTIVATIONS + TEMPORARY + CUBLAS
    with pytest.raises(SpecError, match="as many as were captured"):
        against(job, load_job("llama2-70b-64xh100"))


def host_of_layers(folder: Path, layers: int = 4, steps: int = 4) -> Path:
    """A layer takes 3 us forward for 2 operators and a call, 4 us backward for 2; an embedding 5 us; an update 7 us. One step in
    three takes twice as long."""
    texts = (
        STEP,
        OPTIMIZER,
        OPTIMIZER_END,
        "aten::mm",
        MM,
        "all_gather",
        "embed",
        *(f"model.layers.{i}.mlp" for i in range(layers)),
    )
    entries: list[np.void] = []
    for step in range(steps):
        slow, node = 2 if step % 3 == 0 else 1, 100 * step
        product = {"name": texts.index("aten::mm"), "signature": texts.index(MM)}
        entries += [entry(EntryKind.MARK, name=0, host=0), entry(EntryKind.OPERATOR, **product, module=6, host=5000 * slow)]
        for layer in range(layers):
            own = {"module": 7 + layer, "sequence": node + layer, "host": 1000 * slow}
            call = entry(EntryKind.CALL, name=5, a=step * layers + layer, c=0, stream=1, **own | {"signature": 0})
            entries += [call, *[entry(EntryKind.OPERATOR, **product, **own)] * 2]
        for layer in reversed(range(layers)):
            back = {"sequence": node + layer, "host": 2000 * slow, "backward": 1}
            entries += [entry(EntryKind.OPERATOR, **product, **back)] * 2
        entries += [entry(EntryKind.MARK, name=1, host=0), entry(EntryKind.OPERATOR, **product, host=7000 * slow)]
        entries.append(entry(EntryKind.MARK, name=2, host=0))
    about = {
        "rank": 0, "world": 8, "steps": steps, "groups": [{"number": 0, "name": "0", "ranks": list(range(8))}], "notes": [],
        "command": ["train.py"], "cluster": "h100-ib", "peak_bytes": 0, "live_bytes": 0, "torch": "2.13.0",
        "host": {"processor": "a CPU", "operator_s": 1e-7, "module_s": 2e-7, "call_s": 4e-7},
        "module_calls": {f"model.layers.{i}{part}": steps for i in range(layers) for part in ("", ".mlp")},
    }  # fmt: skip
    folder.mkdir()
    write_captured(CapturedRank(np.array(entries, ENTRY), texts, about), folder / "rank-000000.parquet")
    return folder


def test_the_host_of_a_layer_is_what_lies_between_two(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Less 0.1 us an operator and 0.2 us for each of 2 modules, which the recorder takes. A launch costs 6 us of which the driver
    has 2.5, so a layer has nothing beyond its launches at a host_speed of 1, and something at 10."""
    folder, file = str(host_of_layers(tmp_path / "captured")), tmp_path / "host.toml"
    assert main(["profile", "host", folder, "--host-speed", "10", "-o", str(file), "--json", "-"]) == 0
    answer = json.loads(capsys.readouterr().out)
    measured = answer["measured"]
    assert (measured["layers"], measured["passes"]) == (4, 1)
    assert measured["forward"] == pytest.approx({"seconds": 3e-6 - 2e-7 - 4e-7, "kernels": 2, "calls": 1})
    assert measured["backward"] == pytest.approx({"seconds": 4e-6 - 2e-7, "kernels": 2, "calls": 0})
    assert measured["rest"] == pytest.approx({"seconds": 5e-6 - 1e-7, "kernels": 1, "calls": 0})
    assert measured["update"] == pytest.approx({"seconds": 7e-6 - 1e-7, "kernels": 1, "calls": 0})
    layer = ((2.4e-6 - 4e-7) * 10 - 7e-6 + 3.8e-5 - 7e-6) / 2
    assert answer["host"] == pytest.approx(
        {"launch": 6e-6, "layer": layer, "sharded": 0.0, "micro_batch": 2.28e-5, "step": 6.55e-5, "collective": 2e-5}, rel=0.01
    )
    assert main(["predict", "llama3-8b-8xh100", "--set", f"runtime.host={file}", "--json", "-"]) == 0
    predicted = json.loads(capsys.readouterr().out)
    assert any("a CPU, with a host_speed of 10" in said for said in predicted["assumptions"])
    assert load_job("llama3-8b-8xh100", [f"runtime.host={file}"]).runtime.host.layer == pytest.approx(layer, rel=0.01)
    assert main(["profile", "host", str(captured(tmp_path / "old"))]) == 2
    assert "Capture it again" in capsys.readouterr().err
    assert main(["profile", "host", "fsdp3"]) == 2
    assert "Did you mean 'fsdp" in capsys.readouterr().err
