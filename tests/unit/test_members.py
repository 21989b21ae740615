"""A member of a registry from a package of its own: nothing of the project is changed, and every verb knows it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from windtunnel.base.errors import UnknownName
from windtunnel.base.registry import Registry

RL_JOB = """workload = "rl"
model = "qwen2.5-0.5b"
[cluster]
base = "h100-ib"
gpus = 8
[rl]
mode = "toy"
prompts = 16
samples = 4
response = "200~1<600"
[rl.rollout]
gpus = 4
"""

RL_MODE = '''
from windtunnel.rl.modes.split import Split


class Toy(Split):
    """As split, but that the sync is free."""

    about = "on GPUs of its own, with a free sync"

    def run(self, whole, server, batch, training, sync, record):
        return super().run(whole, server, batch, training, 0.0, record)


TOY = Toy()
'''


def package(folder: Path, group: str, text: str, name: str = "toy", attribute: str = "TOY") -> dict[str, str]:
    """A package of one module in `folder` that offers a member of a group; the environment of processes that find it."""
    module = f"toys_of_{group}"
    (folder / f"{module}.py").write_text(text, encoding="utf-8")
    about = folder / f"{module}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1\n", encoding="utf-8")
    (about / "entry_points.txt").write_text(
        f"[windtunnel.{group}]\n{name} = {module}{attribute and ':' + attribute}\n", encoding="utf-8"
    )
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}


def run(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "windtunnel", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_an_rl_mode(tmp_path: Path) -> None:
    environment = package(tmp_path, "rl_modes", RL_MODE)
    job = tmp_path / "job.toml"
    job.write_text(RL_JOB, encoding="utf-8")
    found = run(environment, "rl-predict", str(job), "--json", "-", "--html", str(tmp_path / "page.html"))
    assert found.returncode == 0, found.stderr
    step = json.loads(found.stdout)
    syncs = {phase["name"]: phase["seconds"] for phase in step["phases"]}
    assert step["mode"] == "toy" and syncs["weights to the engine"] == 0.0 and step["rollout_gpus"] == 4
    assert "toy" in (tmp_path / "page.html").read_text(encoding="utf-8")
    refused = run(environment, "rl-predict", str(job), "--set", "rl.mode=tiy")
    assert refused.returncode == 2 and "'toy'" in refused.stderr and "Traceback" not in refused.stderr


def test_a_name_that_nothing_has() -> None:
    members: Registry[object] = Registry("no_such_group", "thing", {"one": "base.units:GIB"})
    assert list(members) == ["one"] and "two" not in members and len(members) == 1
    with pytest.raises(UnknownName, match="one"):
        members.find("tne", "rl.mode")
    with pytest.raises(ValueError, match="'one'"):
        members.check("two")


ENGINE = """
from dataclasses import replace

from windtunnel.serving.engine import InferenceEngine
from windtunnel.serving.engines.vllm import VLLM


class Toy(InferenceEngine):
    title = "Toy"
    kernels = "vllm"

    def limits(self, gpu, tp):
        return replace(VLLM.limits(gpu, tp), name="toy", running=2)

    def rules(self, limits):
        return VLLM.rules(limits)


TOY = Toy()
"""


def test_an_inference_engine(tmp_path: Path) -> None:
    environment = package(tmp_path, "engines", ENGINE)
    asked = ("serve-predict", "llama3.1-8b", "--on", "h100-ib", "--tp", "1", "--requests", "16", "--json", "-")
    found, usual = (run(environment, *asked, "--engine", engine) for engine in ("toy", "vllm"))
    assert found.returncode == 0, found.stderr
    toy, vllm = json.loads(found.stdout), json.loads(usual.stdout)
    assert toy["engine"] == "toy" and toy["batch"] <= 2.0 < vllm["batch"]
    job = tmp_path / "job.toml"
    job.write_text(RL_JOB.replace('"toy"', '"split"') + 'engine = "toy"\n', encoding="utf-8")
    step = run(environment, "rl-predict", str(job), "--json", "-")
    assert step.returncode == 0, step.stderr
    searched = run(environment, "serve-search", "llama3.1-8b", "--on", "h100-ib", "--gpus", "1", "--engine", "toy,vllm", "--users",
                   "1,4", "--jobs", "1", "--json", "-")  # fmt: skip
    assert {choice["engine"] for choice in json.loads(searched.stdout)["front"]} <= {"toy", "vllm"}
    refused = run(environment, "serve-predict", "llama3.1-8b", "--on", "h100-ib", "--engine", "tuy")
    assert refused.returncode == 2 and "'toy'" in refused.stderr


VERB = """
from typing import Annotated

import typer

from windtunnel.cli.shared.outputs import Outputs, with_outputs
from windtunnel.sheet.blocks import Figure, Lines, Section, Sheet
from windtunnel.sheet.sentence import Sentence

ABOUT = "Adds one to a number."


@with_outputs
def command(number: Annotated[int, typer.Argument(help="Any number.")], *, outputs: Outputs) -> None:
    said = Sentence("one more than {number} is {sum}", number=number, sum=number + 1)
    figure = Figure("sum", "sum", number + 1)
    outputs.show(Sheet("A toy", "A toy", (figure,), (Section("Sum", (Lines((said,), "sum"),)),)), {"number": number})
"""


def test_a_verb(tmp_path: Path) -> None:
    environment = package(tmp_path, "verbs", VERB, attribute="").copy()
    found = run(environment, "toy", "41", "--html", str(tmp_path / "page.html"), "--csv", str(tmp_path / "a.csv"))
    assert found.returncode == 0, found.stderr
    assert "one more than 41 is 42" in found.stdout and "42" in (tmp_path / "a.csv").read_text(encoding="utf-8")
    assert "one more than 41 is 42" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert json.loads(run(environment, "toy", "41", "--json", "-").stdout) == {"number": 41, "sum": 42}
    assert "Adds one to a number." in run(environment, "--help").stdout
    code = "from windtunnel.service.questions.offered import offered_verb; print(offered_verb('toy').outputs)"
    offered = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert "page.html" in offered.stdout and "sheet.json" in offered.stdout
    assert run(environment, "tay", "1").returncode == 2


READER = """
from windtunnel.formats.importers import Importer
from windtunnel.formats.reading import Content, Reading

TOY = Importer("toy", __name__ + ":", "logs of a toy")


def recognises(head):
    return bool(head.lines) and head.lines[0].startswith("toy log ")


def read(files, context):
    steps = [line for path in files for line in path.read_text().splitlines() if line.startswith("step ")]
    return Reading("toy", Content.EVIDENCE, None, facts={"steps": len(steps)}, built=("steps",))
"""


def test_a_log_reader(tmp_path: Path) -> None:
    environment = package(tmp_path, "importers", READER)
    log = tmp_path / "a.log"
    log.write_text("toy log 1\nstep 1\nstep 2\n", encoding="utf-8")
    found = run(environment, "import", str(log), "--json", "-")
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout)["facts"] == {"steps": 2}
    assert "logs of a toy" in run(environment, "catalog", "formats").stdout
