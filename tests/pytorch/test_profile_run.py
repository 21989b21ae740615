"""A run writes what it measured and names what it did not; it can be stopped, and goes on only with the same things."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from windtunnel.base.errors import FileError, SpecError, UnknownName  # noqa: E402
from windtunnel.cli import main  # noqa: E402
from windtunnel.profile import datasheet  # noqa: E402
from windtunnel.profile.case import Case  # noqa: E402
from windtunnel.profile.layers.rows import Rows  # noqa: E402
from windtunnel.profile.layers.study import Effort, Study, StudyResult, Timed  # noqa: E402
from windtunnel.profile.power import PowerReading  # noqa: E402
from windtunnel.profile.run import Outcome, RunSettings, run  # noqa: E402
from windtunnel.profile.timing import KernelTiming, timing_of  # noqa: E402
from windtunnel.records import Dataset, read, write  # noqa: E402
from windtunnel.spec import load_model  # noqa: E402

pytestmark = pytest.mark.torch

CASE = Case(
    load_model("llama3.2-1b", ["name=tiny", "hidden=64", "heads=4", "kv_heads=2", "head_dim=16", "ffn=96", "vocab=256"]),
    seq=16,
    dtype="fp32",
)
QUICK = RunSettings(warmup=1, repeats=3, layers=(1, 2), attempts=1, libraries=("windtunnel",))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Any:
    """One thread, and no measured data sheet (a second a file)."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.setattr(datasheet, "sheet", lambda device: {"memory_bandwidth": 1e10})
    yield
    torch.set_num_threads(before)


def measured(path: Path, settings: RunSettings = QUICK, **options: Any) -> Outcome:
    return run([CASE], "cpu", path, settings, **options)


def test_every_level_is_written(tmp_path: Path) -> None:
    out = tmp_path / "a.parquet"
    outcome = measured(out, replace(QUICK, levels=("layer", "submodule", "kernel", "step"), tolerance=100.0))
    data = read(out)
    assert outcome.measured == 1 and outcome.rows == len(data) and not outcome.open
    assert data.about.gpu.startswith("cpu-") and data.about.libraries["torch"] == torch.__version__
    assert data.about.settings["repeats"] == "3" and data.about.settings["threads"] == "1"
    layers = data.where(level="layer", phase="backward").rows()
    assert [row["shape"].count("layers=") for row in layers[:2]] == [1, 1]
    for row in layers[:2]:
        assert row["status"] == "ok" and row["repeats"] == 3 and row["peak_bytes"] > 0 and row["host_seconds"] is None
    forward = data.where(level="layer", phase="forward").rows()
    # what is saved for backward grows by layers: two hold twice as much as one
    assert forward[1]["saved_bytes"] == pytest.approx(2 * forward[0]["saved_bytes"], rel=0.02)
    attention = data.where(level="submodule", op="attention", phase="backward").rows()[0]
    assert 0 <= attention["gap_seconds"] < attention["seconds"]
    inside = {(row["op"], row["phase"]) for row in data.where(level="submodule").rows()}
    assert {(op, phase) for op in ("attention", "mlp", "norm", "embedding", "head") for phase in ("forward", "backward")} <= inside
    step = data.where(level="step").rows()
    assert [row["phase"] for row in step] == ["forward", "backward", "optimizer"] and "vocab=256" in step[0]["shape"]
    products = data.where(level="kernel", op="gemm", phase="forward").rows()
    up = next(row for row in products if "mlp.up" in row["name"])
    assert (up["m"], up["n"], up["k"], up["flops"]) == (16, 96, 64, 2 * 16 * 96 * 64)


def timing(seconds: float) -> KernelTiming:
    return timing_of([seconds], None, 1, None, PowerReading())


@pytest.mark.parametrize(("tolerance", "status"), [(0.06, "ok"), (0.05, "open")])
def test_what_one_more_layer_adds_is_a_row(tolerance: float, status: str) -> None:
    """3, 5 and 9 s for 1, 2 and 4 layers: 2 s a layer, 0.889 of a fourth of 9, which may be off by twice the gate's tolerance."""
    stacks = {n: Timed("DecoderLayer", {"forward": timing(2.0 * n + 1)}, None) for n in (1, 2, 4)}
    measured = StudyResult(stacks, 4, None, None, {}, False)
    rows = Rows(CASE, "windtunnel", "eager", measured, Effort(tolerance=tolerance), "test").all()
    assert [(row["seconds"], row["status"]) for row in rows[:3]] == [(3.0, "ok"), (5.0, "ok"), (9.0, "ok")]
    (one,) = (row for row in rows if row["level"] == "layer" and "layers=" not in row["shape"])
    assert (one["seconds"], one["status"]) == (pytest.approx(2.0), status)
    assert one["note"] == "per layer: slope over 1, 2, 4 layers, 0.889 of 4 layers' share"


def test_what_does_not_close_is_open_and_named(tmp_path: Path) -> None:
    out = tmp_path / "a.parquet"
    outcome = measured(out, replace(QUICK, tolerance=1e-9))
    (why,) = outcome.open.values()
    assert "forward: " in why and "of the layer" in why
    rows = read(out).rows()
    assert {row["status"] for row in rows if row["phase"] != "optimizer"} == {"open"}
    assert all(row["note"].startswith("closure: ") for row in rows if row["phase"] == "forward")


def test_a_finished_file_is_left_as_it_is(tmp_path: Path) -> None:
    out = tmp_path / "a.parquet"
    measured(out)
    before = out.read_bytes()
    with pytest.raises(FileError, match="--resume"):
        measured(out)
    outcome = measured(out, resume=True)
    assert (outcome.measured, outcome.resumed, out.read_bytes()) == (0, 1, before)


def test_a_stopped_run_keeps_what_is_whole(tmp_path: Path) -> None:
    """Told to stop inside of the second case: the first is in the file, and only the second is measured later."""
    out, cases = tmp_path / "a.parquet", [CASE, replace(CASE, seq=8)]
    outcome = run(cases, "cpu", out, QUICK, report=lambda share: share > 0.6)
    assert outcome.stopped and (outcome.measured, outcome.left) == (1, 1)
    assert {"seq=16"} == {word for row in read(out).rows() for word in row["shape"].split() if word.startswith("seq=")}
    outcome = run(cases, "cpu", out, QUICK, resume=True)
    assert (outcome.measured, outcome.resumed, outcome.left) == (1, 1, 0)


def test_a_spent_budget_begins_nothing_new(tmp_path: Path) -> None:
    outcome = measured(tmp_path / "a.parquet", budget=0.0)
    assert outcome.stopped and outcome.left == 1 and not (tmp_path / "a.parquet").exists()


@pytest.mark.parametrize(("field", "value"), [("driver", "550.1"), ("gpu", "cpu-other"), ("libraries", {"torch": "2.0"})])
def test_another_machines_file_is_refused(tmp_path: Path, field: str, value: Any) -> None:
    out = tmp_path / "a.parquet"
    measured(out)
    data = read(out)
    write(Dataset(replace(data.about, **{field: value}), data.table), out)
    with pytest.raises(SpecError, match=f"about.{field}.*never mixed"):
        measured(out, resume=True)


def test_other_settings_are_refused(tmp_path: Path) -> None:
    measured(tmp_path / "a.parquet")
    with pytest.raises(SpecError, match="about.settings.repeats: got '3'; allowed: '4'"):
        measured(tmp_path / "a.parquet", replace(QUICK, repeats=4), resume=True)


def test_a_shape_that_does_not_fit_is_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Study._stack

    def stack(self: Study, layers: int) -> Any:
        if layers == 2:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return plain(self, layers)

    monkeypatch.setattr(Study, "_stack", stack)
    outcome = measured(tmp_path / "a.parquet", replace(QUICK, tolerance=100.0))
    assert len(outcome.oom) == 1 and outcome.oom[0].endswith("2 layers")
    rows = {
        (row["shape"][-30:], row["status"], row["seconds"] is None)
        for row in read(tmp_path / "a.parquet").rows()
        if row["level"] == "layer"
    }
    assert {(status, empty) for _, status, empty in rows} == {("ok", False), ("oom", True)}


def test_a_host_too_small_is_not_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windtunnel.profile.device.Device.free", lambda self: 1000)
    outcome = measured(tmp_path / "a.parquet")
    assert len(outcome.oom) == 2
    assert {row["status"] for row in read(tmp_path / "a.parquet").rows()} == {"oom"}


def test_an_unequal_twin_gets_no_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    huggingface = pytest.importorskip("windtunnel.profile.modules.huggingface")
    monkeypatch.setattr(huggingface, "EPSILON", 0.1)
    outcome = measured(tmp_path / "a.parquet", replace(QUICK, libraries=("windtunnel", "hf")))
    (why,) = outcome.kept_out.values()
    assert why.startswith("not equal: norm: values off by")
    assert {row["library"] for row in read(tmp_path / "a.parquet").rows()} == {"windtunnel"}


@pytest.mark.parametrize(("changes", "error", "words"), [
    ({"modes": ("cuda_graph",)}, SpecError, "eager or compile on a CPU"), ({"modes": ("jit",)}, UnknownName, "eager"),
    ({"levels": ("layers",)}, UnknownName, "Did you mean 'layer'"), ({"libraries": ("torch",)}, UnknownName, "windtunnel"),
    ({"layers": ()}, SpecError, "1,2,4,8"), ({"repeats": 0}, SpecError, "1 or more"), ({"levels": ()}, SpecError, "layer, step"),
])  # fmt: skip
def test_wrong_settings_are_refused_before_anything_is_measured(
    tmp_path: Path, changes: dict[str, Any], error: type[SpecError], words: str
) -> None:
    with pytest.raises(error, match=words):
        measured(tmp_path / "a.parquet", replace(QUICK, **changes))
    assert not list(tmp_path.iterdir())


SIZES = [
    "--set",
    "model.hidden=64",
    "--set",
    "model.heads=4",
    "--set",
    "model.kv_heads=2",
    "--set",
    "model.head_dim=16",
    "--set",
    "model.ffn=96",
    "--set",
    "model.vocab=256",
    "--seq",
    "16",
]


def test_typed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, timeline = str(tmp_path / "a.parquet"), tmp_path / "memory.json"
    typed = [
        "profile",
        "run",
        "--model",
        "llama3.2-1b",
        *SIZES,
        "--device",
        "cpu",
        "--libraries",
        "windtunnel",
        "--quick",
        "--tolerance",
        "100",
        "-o",
        out,
    ]
    assert main([*typed, "--timeline", str(timeline)]) == 0
    told = capsys.readouterr()
    assert "1 measured" in told.err and "llama3.2-1b-changed: 1 x 16 tokens, tp 1, fp32, eager" in told.out
    assert '"activation"' in timeline.read_text()
    assert main([*typed, "--resume", "--quiet"]) == 0
    assert "1 from before" in capsys.readouterr().err
    assert main(["profile", "gains", out]) == 0
    assert "no shape measured both" in capsys.readouterr().err


@pytest.mark.parametrize(("typed", "words"), [
    (["--model", "llama3.2-1b", "--seq", "16"], "-o: got nothing"),
    (["-o", "x.parquet"], "JOB: got nothing; allowed: a job, or --model NAME --seq N"),
    (["--model", "llama3.2-1b", "-o", "x.parquet"], "--seq: got nothing"),
    (["--model", "llama3.2-1", "--seq", "16", "-o", "x.parquet"], "Did you mean 'llama3.2-1b'?"),
    (["--model", "llama3.2-1b", "--seq", "16", "--tp", "3", "-o", "x.parquet"], "tp: got 3; allowed: a divisor of model.heads"),
    (["--model", "llama3.2-1b", "--seq", "16", "--set", "plan.tp=2", "-o", "x.parquet"], "a field of the model"),
    (["--model", "llama3.2-1b", "--seq", "16", "--dtype", "fp8", "-o", "x.parquet"], "fp32, bf16, fp16"),
    (["--model", "llama3.2-1b", "--seq", "many", "-o", "x.parquet"], "--seq: got 'many'"),
    (["llama3-8b-8xh100", "--model", "llama3-8b", "-o", "x.parquet"], "either a JOB or --model"),
    (["llama3-8b-8xh100", "-o", "x.parquet", "--budget", "soon"], "--budget: got 'soon'"),
])  # fmt: skip
def test_what_to_type_instead(typed: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "run", "--device", "cpu", *typed]) == 2
    told = capsys.readouterr().err
    assert words in told and told.count("\n") == 1
