"""The command line: what each verb answers, and that whatever is typed ends in one readable message."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from windtunnel.base import verbs
from windtunnel.base.errors import SpecError
from windtunnel.base.verbs import all_verbs, find_verb, verbs_of
from windtunnel.cli import BROKEN_PIPE, INTERRUPTED, app, main
from windtunnel.network.options import sizes_of

JOB = "megatron-22b-8"
CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 32,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "a_key_nobody_reads": 1,
}
FLAGS = (
    "--num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048 "
    "--micro-batch-size 1 --global-batch-size 16 --tensor-model-parallel-size 2 --bf16 --vocab-size 51200 --save /elsewhere"
)


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    told = capsys.readouterr()
    return code, told.out, told.err


# --- the door itself ---


def test_help_lists_the_verbs_and_imports_none() -> None:
    result = CliRunner().invoke(app, ["--help"])
    assert result.exit_code == 0
    assert all(f"  {verb} " in result.output for verb in verbs_of())
    code = "import sys, windtunnel.cli as c; c.main(['--help']); print([m for m in sys.modules if m in ('numpy', 'pydantic')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.endswith("[]\n"), done.stdout


@pytest.mark.parametrize("verb", list(verbs_of()))
def test_every_verb_explains_itself(verb: str) -> None:
    result = CliRunner().invoke(app, [verb, "--help"])
    assert result.exit_code == 0, result.output
    assert " ".join(verbs_of()[verb].split()[:3]) in " ".join(result.output.split())


def test_entries_of_verbs_are_read_as_the_whole_file_is() -> None:
    """An entry is parsed alone, when it is asked for."""
    whole = tomllib.loads(Path(verbs.__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    for name, said in whole.items():
        verb = find_verb(name)
        assert next(iter(said)) == "about" and verb.about == said["about"] and verb.name == name
        assert "same_as" in said or {key: getattr(verb, key) for key in said} == said
    assert {*all_verbs()} == {name for name in whole if not find_verb(name).is_group}
    assert "windtunnel fit kernels kernels.parquet" in CliRunner().invoke(app, ["profile", "fit", "--help"]).output


@pytest.mark.parametrize("verb", ["deploy"])
def test_verbs_of_later_versions_do_not_exist(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = answer(capsys, verb)
    assert code == 2 and "verb" in err and not out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(capsys, "--version")[:2] == (0, "windtunnel 0.2.0\n")


# --- errors ---


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["predct", JOB], "Did you mean 'predict'"),
        (["predict", JOB, "--jsn", "-"], "Did you mean --json"),
        (["predict"], "JOB: got nothing"),
        (["predict", "megatron-22b-9"], "Did you mean 'megatron-22b-8'"),
        (["predict", JOB, "--set", "plan.tpp=2"], "Did you mean 'tp'"),
        (["predict", JOB, "--set", "plan.tp"], "path.to.field=value"),
        (["predict", JOB, "--set", "plan.tp=7"], "plan."),
        (["predict", JOB, "--network", "flows"], "Did you mean 'flow'"),
        (["predict", JOB, "--on", "512 H100"], "Write --on h100-ib --set cluster.gpus=512"),
        (["search", "llama3-8b", "--on", "16xb200"], "Write --on b200-ib --set cluster.gpus=16"),
        (["predict", JOB, "--network", "clsed"], "Did you mean 'closed'"),
        (["predict", JOB, "--on", "selenium"], "--on"),
        (["predict", JOB, "--html", "-"], "--html"),
        (["predict", JOB, "--model", "a.json", "--megatron", "--x"], "--megatron"),
        (["predict", "no/such/file.toml"], "no such file"),
        (["predict", "--megatron", FLAGS], "--on"),
        (["predict", "--megatron", FLAGS, "--on", "selen"], "Did you mean 'selene'"),
        (["memory", "nothing"], "JOB: got 'nothing'"),
        (["memory", JOB, "--stage", "1"], "--stage: got 1"),
        (["memory", JOB, "--snapshot", "no/such/folder/x.pickle"], "--snapshot"),
        (["memory", JOB, "--set", "runtime.alloc_conf=expandable_segment:True"], "expandable_segments"),
        (["collective", "--cluster", "eoss"], "Did you mean 'eos'"),
        (["collective", "--cluster", "eos", "--op", "al_reduce"], "Did you mean 'all_reduce'"),
        (["collective", "--cluster", "eos", "--bytes", "8:x"], "--bytes"),
        (["collective", "--cluster", "eos", "--gpus", "many"], "--gpus"),
        (["collective"], "--cluster"),
        (["catalog", "gpuz"], "Did you mean 'gpus'"),
        (["catalog", "gpus", "a100-smx-80gb"], "Did you mean 'a100-sxm-80gb'"),
        (["export", "tomll", JOB], "Did you mean 'toml'"),
        (["validate", "no/such.csv"], "no/such.csv"),
    ],
)
def test_mistakes_are_told_in_one_message(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = answer(capsys, *arguments)
    assert code == 2
    assert said in err and err.startswith("windtunnel: ") and "Traceback" not in err
    assert out == ""


@pytest.mark.parametrize("option", ["--json", "--trace", "--html"])
def test_paths_that_cannot_be_written(option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (tmp_path, tmp_path / "no" / "x"):
        code, _, err = answer(capsys, "predict", JOB, option, str(path))
        assert code == 2 and option in err and "file that can be written" in err


@pytest.mark.skipif(os.name == "nt" or not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_a_message(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = answer(capsys, "predict", JOB, "-q", "--json", "/dev/full")
    assert code == 2 and "--json" in err and "Traceback" not in err


def test_an_interrupt_ends_with_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    import windtunnel.jobs.load

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(windtunnel.jobs.load, "load_described_job", interrupted)
    assert answer(capsys, "predict", JOB)[0] == INTERRUPTED


@pytest.mark.parametrize("arguments", [["predict", JOB], ["predict", JOB, "--json", "-"], ["export", "toml", JOB]])
def test_a_reader_that_leaves_is_told_nothing(arguments: list[str]) -> None:
    code = (
        "import os, subprocess, sys; r, w = os.pipe(); os.close(r); "
        f"p = subprocess.run([sys.executable, '-m', 'windtunnel', *{arguments}], stdout=w, stderr=subprocess.PIPE, text=True); "
        "print(p.returncode, repr(p.stderr))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == f"{BROKEN_PIPE} ''"


# --- verbs ---


def test_predict_prints_a_report(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = answer(capsys, "predict", JOB)
    assert code == 0 and err == ""
    for said in ("step time", "MFU", "Where the time goes", "Memory of the fullest GPU", "Longest kernels", "What this rests on"):
        assert said in out
    assert "\x1b" not in out


def test_json_to_standard_output_is_only_json_and_repeats(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = answer(capsys, "predict", JOB, "--json", "-")
    data = json.loads(out)
    assert code == 0 and data["step_time_s"] > 0 and data["job"]["name"] == JOB
    assert sum(data["breakdown"].values()) == pytest.approx(data["step_time_s"], rel=1e-6)
    assert answer(capsys, "predict", JOB, "--json", "-")[1] == out


def test_predict_writes_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from trace_reader import read, slices

    files = [tmp_path / name for name in ("p.json", "p.perfetto", "p.html", "p.trace.json")]
    code, out, err = answer(
        capsys, "predict", JOB, "-q", "--json", str(files[0]), "--trace", str(files[1]), "--html", str(files[2])
    )
    assert code == 0 and out == ""
    assert answer(capsys, "predict", JOB, "-q", "--trace", str(files[3]))[0] == 0
    step = json.loads(files[0].read_text())["step_time_s"]
    ends = [end for found in slices(read(files[1].read_bytes())).values() for _, end, _ in found]
    assert max(ends) == pytest.approx(step * 1e9, rel=1e-3)
    assert files[2].read_text().startswith("<!doctype html>") and "slices" in err
    assert json.loads(files[3].read_text())["traceEvents"]


def test_several_fields_behind_one_set(capsys: pytest.CaptureFixture[str]) -> None:
    answers = []
    for words in (["--set", "plan.tp=4", "plan.micro_batch=2"], ["--set", "plan.tp=4", "--set", "plan.micro_batch=2"]):
        assert main(["predict", "llama3-8b", "--on", "h100-ib", *words, "--quiet", "--json", "-"]) == 0
        answers.append(capsys.readouterr().out)
    assert answers[0] == answers[1] and json.loads(answers[0])["job"]["plan"]["tp"] == 4
    assert main(["predict", "llama3-8b", "plan.tp=4", "--on", "h100-ib", "--quiet"]) == 2


def test_set_changes_the_job(capsys: pytest.CaptureFixture[str]) -> None:
    base = json.loads(answer(capsys, "predict", JOB, "--json", "-")[1])
    more = json.loads(answer(capsys, "predict", JOB, "--set", "plan.recompute=full", "--json", "-")[1])
    assert more["job"]["plan"]["recompute"] == "full" != base["job"]["plan"]["recompute"]
    assert more["step_time_s"] > base["step_time_s"]


def test_memory_and_predict_agree_between_what_cuda_offers_and_the_data_sheet(capsys: pytest.CaptureFixture[str]) -> None:
    stages = json.loads(answer(capsys, "memory", JOB, "--json", "-")[1])["memory"]
    needed = max(stage["allocated"] + stage["context"] for stage in stages)
    for share, fits in ((0.98, True), (0.995, False), (1.02, False)):
        tight = ["--set", f"cluster.node.gpu.memory={needed / share:.0f}", "--json", "-"]
        assert json.loads(answer(capsys, "memory", JOB, *tight)[1])["fits"] is fits
        assert json.loads(answer(capsys, "predict", JOB, *tight)[1])["fits"] is fits


def test_memory_gives_advice_that_fits(capsys: pytest.CaptureFixture[str]) -> None:
    wide = ["--set", "plan.micro_batch=16", "--set", "plan.global_batch=16", "--set", "plan.recompute=none"]
    code, out, _ = answer(capsys, "memory", JOB, *wide, "--json", "-")
    data = json.loads(out)
    assert code == 0 and not data["fits"] and data["shortfall_bytes"] > 0
    text = answer(capsys, "memory", JOB, *wide)[1]
    assert "DOES NOT FIT" in text
    for a in data["advice"]:
        assert json.loads(answer(capsys, "memory", JOB, *wide, "--set", a["set"], "--json", "-")[1])["fits"]
        assert a["set"] in text


def test_memory_prices_each_change_as_predict_does(capsys: pytest.CaptureFixture[str]) -> None:
    wide = ["--set", "plan.micro_batch=16", "--set", "plan.global_batch=16", "--set", "plan.recompute=none"]
    data = json.loads(answer(capsys, "memory", JOB, *wide, "--json", "-")[1])
    times = [a["step_time_s"] for a in data["advice"]]
    assert times and times == sorted(times)
    first = json.loads(answer(capsys, "predict", JOB, *wide, "--set", data["advice"][0]["set"], "--json", "-")[1])
    assert first["step_time_s"] == times[0]
    assert f"({times[0] / data['step_time_s'] - 1.0:+.1%} a token)" in answer(capsys, "memory", JOB, *wide)[1].replace("\n", " ")


def test_memory_writes_a_snapshot(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "stage.pickle"
    assert answer(capsys, "memory", JOB, "--snapshot", str(path), "-q")[0] == 0
    found = pickle.loads(path.read_bytes())
    held = sum(segment["total_size"] for segment in found["segments"])
    stage = json.loads(answer(capsys, "memory", JOB, "--json", "-")[1])["memory"][0]
    assert 0.9 * stage["allocated"] < held <= 1.2 * stage["allocated"]


def test_memory_prints_the_replay_beside_its_own_figures_when_asked(capsys: pytest.CaptureFixture[str]) -> None:
    plain = json.loads(answer(capsys, "memory", JOB, "--json", "-")[1])
    asked = json.loads(answer(capsys, "memory", JOB, "--replay", "--json", "-")[1])
    assert "replay" not in plain and asked["memory"] == plain["memory"]
    [found] = asked["replay"]
    assert found["stage"] == 0 and not found["failed"] and found["fragmentation"] == found["reserved"] - found["allocated"]
    assert found["allocated"] == pytest.approx(plain["memory"][0]["allocated"], rel=0.06)
    text = answer(capsys, "memory", JOB, "--replay")[1]
    assert f"{found['reserved'] / 2**30:.2f}" in text and "replay" not in answer(capsys, "memory", JOB)[1]


def test_memory_agrees_with_predict(capsys: pytest.CaptureFixture[str]) -> None:
    alone = json.loads(answer(capsys, "memory", JOB, "--json", "-")[1])["memory"]
    inside = json.loads(answer(capsys, "predict", JOB, "--json", "-")[1])["memory"]
    assert [s["total"] for s in alone] == [s["total"] for s in inside]


def test_collective_prints_a_row_a_size(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = answer(capsys, "collective", "--cluster", "eos", "--op", "all_reduce", "--gpus", "16", "--bytes", "8:8G")
    rows = [line.split() for line in out.splitlines() if not line.startswith("#")]
    assert code == 0 and [int(r[0]) for r in rows] == [2**n for n in range(3, 34)]
    assert all(int(r[1]) == int(r[0]) // 4 and r[2] == "float" for r in rows)
    algbw, busbw = float(rows[-1][6]), float(rows[-1][7])
    assert busbw == pytest.approx(algbw * 2 * 15 / 16, rel=1e-3)
    assert out.splitlines()[-1].startswith("# Avg bus bandwidth")
    data = json.loads(answer(capsys, "collective", "-c", "eos", "-n", "16", "-b", "1G", "--json", "-")[1])
    assert data["rows"][0]["size"] == 2**30 and data["op"] == "all_reduce"


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("8:64", [8, 16, 32, 64]),
        ("1K:16K:4", [1024, 4096, 16384]),
        ("1M,3M", [2**20, 3 * 2**20]),
        ("1GiB", [2**30]),
        ("1GB", [10**9]),
        ("1:10:1.5", None),
        ("8:100", [8, 16, 32, 64]),
        ("5", [5]),
    ],
)
def test_sizes(text: str, sizes: list[int] | None) -> None:
    if sizes is None:
        with pytest.raises(SpecError):
            sizes_of(text)
    else:
        assert sizes_of(text) == sizes


@pytest.mark.parametrize(
    "text", ["", ":", "8:4", "8:64:1", "8:64:0", "8:64:-2", "8:64:nan", "8:64:2:2", "0", "-5", "9999999G", "1,,2", "8:8G:1.0001"]
)
def test_wrong_sizes_are_refused(text: str) -> None:
    with pytest.raises(SpecError, match="--bytes"):
        sizes_of(text)


def test_catalog_lists_and_shows(capsys: pytest.CaptureFixture[str]) -> None:
    assert JOB in answer(capsys, "catalog")[1]
    assert "NVIDIA A100" in answer(capsys, "catalog", "gpus")[1] == answer(capsys, "catalog", "gpu")[1]
    shown = tomllib.loads(answer(capsys, "catalog", "gpus", "a100-sxm-80gb")[1])
    assert shown["id"] == "a100-sxm-80gb" and shown["source"]
    assert JOB in json.loads(answer(capsys, "catalog", "jobs", "--json", "-")[1])["names"]


@pytest.mark.parametrize("kind", ["gpus", "nodes", "fabrics", "clusters", "models", "frameworks", "jobs"])
def test_every_kind_has_a_table(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    from windtunnel.spec import names

    code, out, _ = answer(capsys, "catalog", kind)
    assert code == 0 and all(name in out for name in names(kind))


def test_compare(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = answer(capsys, "compare", JOB, JOB, "--set-b", "plan.recompute=full")
    assert code == 0 and "plan.recompute" in out and "A makes" in out
    data = json.loads(answer(capsys, "compare", JOB, JOB, "--set-b", "plan.recompute=full", "--json", "-")[1])
    assert data["figures"]["step_time_s"]["ratio"] > 1
    assert data["fields"]["plan.recompute"]["b"] == "full"


def test_compare_puts_both_models_on_one_machine(capsys: pytest.CaptureFixture[str]) -> None:
    models = ("compare", "llama3-8b", "llama2-7b", "--set", "cluster.gpus=8")
    first, second = (json.loads(answer(capsys, *models, "--on", on, "--json", "-")[1])["figures"] for on in ("h100-ib", "b200-ib"))
    assert all(second["step_time_s"][one] < first["step_time_s"][one] for one in "ab")


# --- other people's descriptions ---


def test_a_config_on_a_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG))
    code, out, err = answer(capsys, "predict", str(path), "--on", "llama3-8b-8xh100", "--json", "-")
    assert code == 0, err
    assert json.loads(out)["job"]["model"]["hidden"] == 4096
    assert "a_key_nobody_reads" in err and "ignored" in err
    assert answer(capsys, "predict", "llama3-8b-8xh100", "--model", str(path), "--json", "-")[1] == out


def test_a_config_on_a_cluster_takes_its_plan_from_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG))
    sets = ["--set", "cluster.gpus=16", "--set", "plan.seq=4096", "--set", "plan.tp=8", "--set", "plan.global_batch=16"]
    code, out, err = answer(capsys, "predict", str(path), "--on", "selene", *sets, "--json", "-")
    assert code == 0, err
    assert json.loads(out)["job"]["cluster"]["gpus"] == 16
    code, _, err = answer(capsys, "predict", str(path), "--on", "selene", "--json", "-")  # nothing stated: a first plan
    assert code == 0 and "the first plan that fits" in err


def test_megatron_flags(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.txt"
    path.write_text(FLAGS)
    wanted = ["--on", "selene", "--set", "cluster.gpus=16", "--json", "-"]
    code, out, err = answer(capsys, "predict", str(path), *wanted)
    assert code == 0, err
    job = json.loads(out)["job"]
    assert (job["plan"]["tp"], job["model"]["layers"], job["cluster"]["gpus"]) == (2, 24, 16)
    assert "--save" in err
    same = json.loads(answer(capsys, "predict", "--megatron", FLAGS, *wanted)[1])
    assert same["step_time_s"] == json.loads(out)["step_time_s"]


def test_import_prints_a_job_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG))
    code, out, _ = answer(capsys, "import", str(path))
    assert code == 0 and tomllib.loads(out)["model"]["layers"] == 32 and "# ignored: a_key_nobody_reads" in out
    made = tmp_path / "made.toml"
    assert answer(capsys, "import", str(path), "--on", "llama3-8b-8xh100", "--out", str(made))[0] == 0
    direct = json.loads(answer(capsys, "predict", str(path), "--on", "llama3-8b-8xh100", "--json", "-")[1])
    assert json.loads(answer(capsys, "predict", str(made), "--json", "-")[1])["step_time_s"] == direct["step_time_s"]


def test_export_predicts_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = json.loads(answer(capsys, "predict", JOB, "--json", "-")[1])
    for form in ("toml", "json"):
        path = tmp_path / f"job.{form}"
        assert answer(capsys, "export", form, JOB, "--out", str(path))[0] == 0
        again = json.loads(answer(capsys, "predict", str(path), "--json", "-")[1])
        assert again["step_time_s"] == base["step_time_s"] and again["job"] == base["job"]


def test_validate(tmp_path: Path, capsys: pytest.CaptureFixture[str], shared: Path) -> None:
    lines = (shared / "reality" / "training.csv").read_text().splitlines()
    path = tmp_path / "few.csv"
    path.write_text("\n".join(lines[:4]) + "\n")
    code, out, err = answer(capsys, "validate", str(path), "--json", "-")
    assert code == 0, err
    data = json.loads(out)
    assert len(data["rows"]) >= 3 and {"family", "quantity", "mape_pct", "skipped"} <= set(data["families"][0])
    assert "Error of predicted" in answer(capsys, "validate", str(path))[1]


def test_an_ascii_terminal_gets_ascii() -> None:
    code = f"import sys; from windtunnel.cli import main; sys.exit(main(['predict', '{JOB}', '--set', 'name=a\\x1b[31mb']))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, timeout=60, env={**os.environ, "PYTHONIOENCODING": "ascii"}
    )
    text = done.stdout.decode("ascii")
    assert done.returncode == 0, done.stderr
    assert "####" in text and "\nab " in text and "\x1b" not in text
