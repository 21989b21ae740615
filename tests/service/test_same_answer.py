"""The service, its client and the command line give the same bytes for the same question."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

import windtunnel as wt
from tests.service.served import ServedProcess
from windtunnel.cli import main
from windtunnel.service.questions import ask_question

ROOT = Path(__file__).resolve().parents[2]
SMALL = {"model.layers": 2, "plan.seq": 512}
JOB = "llama3-8b-8xh100"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that questions upload."""
    made = tmp_path_factory.mktemp("uploads")
    job = wt.load(JOB, ["model.layers=2", "plan.seq=512"])
    for name, path in (("kineto", "trace.json"), ("chakra", "chakra"), ("goal", "step.goal"), ("simai", "workload.txt")):
        wt.export(job, name).save(made / path)
    (made / "job.toml").write_text(wt.dump(job), encoding="utf-8")
    table = ROOT / "src" / "windtunnel" / "catalog" / "measurements" / "single_node.csv"
    (made / "rows.csv").write_text("".join(table.read_text(encoding="utf-8").splitlines(keepends=True)[:4]), encoding="utf-8")
    lines = f"{JOB},,9000", "python run_script.py -mr qwen3_30b_a3b -g gb300 -c fp8_mx -ng 8,gb300-nvl72,44544"
    (made / "lines.csv").write_text("\n".join(("command,on,tokens_s_gpu", *lines, "")), encoding="utf-8")
    return made


QUESTIONS: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    "predict": ("predict", {"job": JOB, "set": SMALL}, []),
    "predict, flows": ("predict", {"job": JOB, "set": SMALL, "network": "flow", "seed": 3}, []),
    "predict, file": ("predict", {"job": "job.toml"}, ["job.toml"]),
    "memory": ("memory", {"job": JOB, "set": SMALL, "replay": True}, []),
    "goodput": ("goodput", {"job": JOB, "set": {"reliability": "llama3-2024"}, "days": "10", "closed": True}, []),
    "sensitivity": ("sensitivity", {"job": JOB, "set": SMALL}, []),
    "compare": ("compare", {"things": [JOB, JOB], "set": SMALL, "set-b": ["plan.recompute=full"]}, []),
    "plan": ("plan", {"budget": "200000", "days": "30", "on": ["h100-ib"], "gpus": "64"}, []),
    "serve-predict": ("serve-predict", {"model": "llama3.1-8b", "on": "h100-ib", "tp": 1, "osl": "16", "concurrency": 2}, []),
    "serve-fleet": ("serve-fleet", {"model": "llama3.1-8b", "on": "h100-ib", "tp": 1, "osl": "16", "users": 4, "requests": 8}, []),
    "serve-search": ("serve-search", {"model": "llama3.1-8b", "on": "h100-ib", "gpus": 1, "users": "2"}, []),
    "collective": ("collective", {"cluster": "h100-ib", "gpus": 16, "bytes": "1M:4M"}, []),
    "flows": ("flows", {"fabric": "fat_tree:k=4,link=400Gb/s", "flows": "permutation:bytes=1MiB", "network": "flow"}, []),
    "catalog": ("catalog", {"kind": "gpus", "name": "h100-sxm-80gb"}, []),
    "import": ("import", {"paths": ["trace.json"]}, ["trace.json"]),
    "runs show": ("runs/show", {"paths": ["trace.json"]}, ["trace.json"]),
    "whatif": ("whatif", {"paths": ["trace.json"], "change": ["no-host-gaps", "scale:gemm=0.5"]}, ["trace.json"]),
    "calibrate": ("calibrate", {"runs": ["trace.json"], "job": JOB, "set": SMALL}, ["trace.json"]),
    "replay": ("replay", {"paths": ["chakra"], "on": "h100-ib"}, ["chakra"]),
    "replay, LogGOPS": ("replay", {"paths": ["step.goal"], "loggops": "L=2500,o=1500"}, ["step.goal"]),
    "simai": ("simai", {"workload": "workload.txt", "gpus": 8, "nvlink": 360.0}, ["workload.txt"]),
    "validate": ("validate", {"tables": ["rows.csv"]}, ["rows.csv"]),
    "validate, launch lines": ("validate", {"tables": ["lines.csv"]}, ["lines.csv"]),
    "export": ("export", {"form": "toml", "job": JOB, "set": SMALL}, []),
    "fit power": ("fit/power", {}, []),
    "fleet startup": ("fleet/startup", {"mesh": "dp=8,tp=2"}, []),
    "fleet jobset": ("fleet/jobset", {"name": "llama", "image": "train:1", "nodes": 2, "program": ["python", "train.py"]}, []),
}
"""Verb, arguments, uploads."""


def uploads(folder: Path, names: list[str]) -> dict[str, bytes]:
    """The bytes of files, and of folders file by file."""
    paths = [path for name in names for path in ([folder / name] if (folder / name).is_file() else (folder / name).rglob("*"))]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths if path.is_file()}


def printed(words: list[str], folder: Path) -> bytes:
    """What a command prints."""
    out, before = io.StringIO(), os.getcwd()
    raw = io.BytesIO()
    writer = io.TextIOWrapper(raw, encoding="utf-8", write_through=True)
    os.chdir(folder)
    try:
        with contextlib.redirect_stdout(writer), contextlib.redirect_stderr(out):
            assert main(words) == 0, out.getvalue()
    finally:
        os.chdir(before)
    return raw.getvalue()


@pytest.mark.parametrize("name", QUESTIONS)
def test_service_client_and_command_agree(name: str, folder: Path, service: ServedProcess) -> None:
    verb, arguments, names = QUESTIONS[name]
    files = uploads(folder, names)
    question = ask_question(verb, arguments, files)
    wanted = printed([*question.words, *(["--json", "-"] if question.json and "--" not in question.words else [])], folder)
    client = wt.connect(service.url)
    answer = client.ask(verb.replace("/", " "), files=files, **arguments)
    assert without_cpu(answer.bytes) == without_cpu(wanted) and wanted
    assert answer.key == question.key
    status, headers, again = service.ask(verb, files={n: {"base64": _base64(d)} for n, d in files.items()}, **arguments)
    assert (status, again, headers["x-windtunnel-cached"]) == (200, answer.bytes, "true")
    assert client.answer(answer.key).bytes == answer.bytes


def without_cpu(data: bytes) -> bytes:
    """An answer without the seconds that `flows` says it took."""
    return re.sub(rb'"cpu_s": [^,\n]+', b"", data)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def test_a_search_agrees_but_for_its_seconds(folder: Path, service: ServedProcess) -> None:
    arguments = {"job": JOB, "set": {**SMALL, "plan.tp": [1, 2]}, "gap": 0.01}
    question = ask_question("search", arguments)

    def lasting(data: bytes) -> Any:
        found = json.loads(data)
        found["certificate"] = {key: value for key, value in found["certificate"].items() if not key.endswith("_s")}
        return found

    answer = wt.connect(service.url).search(JOB, {**SMALL, "plan.tp": (1, 2)}, gap=0.01)
    assert lasting(answer.bytes) == lasting(printed([*question.words, "--json", "-", "--jobs", "1"], folder))


def test_the_client_takes_the_same_objects(folder: Path, service: ServedProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    client, job = wt.connect(service.url), wt.load("job.toml")
    local = wt.predict(job)
    for asked in (job, folder / "job.toml", "job.toml"):
        answer = client.predict(asked)
        assert answer.step_time_s == local.step_time_s and answer.breakdown["matmul"] == local.breakdown["matmul"]
        assert wt.as_dict(answer)["breakdown"] == wt.as_dict(local)["breakdown"]
    table = {"base": JOB, "model": {"layers": 2}, "plan": {"seq": 512}}
    assert client.predict(table).step_time_s == wt.predict(wt.load(table)).step_time_s
    assert client.replay(Path("chakra"), "h100-ib").as_dict() == wt.as_dict(wt.replay("chakra", "h100-ib"))
    assert client.catalog("gpus", "h100-sxm-80gb").as_dict() == wt.catalog("gpus", "h100-sxm-80gb")
    assert [row.size for row in client.collective("h100-ib", gpus=16, sizes="1M:4M").rows] == [
        row["size"] for row in wt.collective("h100-ib", gpus=16, sizes="1M:4M")
    ]


def test_errors_of_the_client_are_those_of_the_function(service: ServedProcess) -> None:
    client = wt.connect(service.url)
    for call in (lambda door: door.predict(JOB, set={"plan.tp": 3}), lambda door: door.predict("no-such-job")):
        with pytest.raises(wt.SpecError) as raised:
            call(client)
        assert raised.value.allowed and str(raised.value)
    with pytest.raises(wt.PlanError):
        client.predict(JOB, set={"plan.tp": 3})


def test_artefacts_are_what_the_options_write(folder: Path, service: ServedProcess, tmp_path: Path) -> None:
    answer = wt.connect(service.url).predict(JOB, set=SMALL, artefacts=["html", "trace"])
    answer.write_html(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>".upper()) or page.lower().startswith("<!doctype html>")
    assert "page.html" in page and JOB in page
    assert len(answer.artefact("trace")) > 1000
    status, headers, _ = service.send("GET", f"/api/v1/answers/{answer.key}/html")
    assert status == 200 and headers["content-security-policy"].startswith("sandbox allow-scripts")
    about = json.loads(service.send("GET", f"/api/v1/answers/{answer.key}/about")[2])
    assert about["artefacts"].keys() == {"html", "trace"} and about["command"].startswith("windtunnel predict ")
    assert service.send("GET", f"/api/v1/answers/{answer.key}/csv")[0] == 404
