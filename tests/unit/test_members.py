"""Members of registries from packages of their own: nothing of the project is changed, and every verb knows them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.helpers.kept_python import KeptPython
from tests.helpers.toy_packages import example, with_package
from windtunnel.base.errors import UnknownName
from windtunnel.base.registry import Registry
from windtunnel.spec.mixer import MIXERS

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


@pytest.fixture
def package(tmp_path: Path) -> Iterator[Callable[..., KeptPython]]:
    """Makes a package of one module that offers a member of a group, and starts a process that finds it."""

    def made(group: str, text: str, name: str = "toy", attribute: str = "TOY") -> KeptPython:
        return started.enter_context(KeptPython(environment=with_package(tmp_path, group, text, name, attribute)))

    with ExitStack() as started:
        yield made


RL_MODE = example("rl-mode")


def test_an_rl_mode(tmp_path: Path, package: Callable[..., KeptPython]) -> None:
    toys = package("rl_modes", RL_MODE)
    job = tmp_path / "job.toml"
    job.write_text(RL_JOB, encoding="utf-8")
    found = toys.windtunnel("rl-predict", str(job), "--json", "-", "--html", str(tmp_path / "page.html"))
    assert found.returncode == 0, found.stderr
    step = json.loads(found.stdout)
    syncs = {phase["name"]: phase["seconds"] for phase in step["phases"]}
    assert step["mode"] == "toy" and syncs["weights to the engine"] == 0.0 and step["rollout_gpus"] == 4
    assert "toy" in (tmp_path / "page.html").read_text(encoding="utf-8")
    refused = toys.windtunnel("rl-predict", str(job), "--set", "rl.mode=tiy")
    assert refused.returncode == 2 and "'toy'" in refused.stderr and "Traceback" not in refused.stderr


def test_a_name_that_nothing_has() -> None:
    members: Registry[object] = Registry("no_such_group", "thing", {"one": "base.units:GIB"})
    assert list(members) == ["one"] and "two" not in members and len(members) == 1
    with pytest.raises(UnknownName, match="one"):
        members.find("tne", "rl.mode")
    with pytest.raises(ValueError, match="'one'"):
        members.check("two")


ENGINE = example("engine")


def test_an_inference_engine(tmp_path: Path, package: Callable[..., KeptPython]) -> None:
    toys = package("engines", ENGINE)
    asked = ("serve-predict", "llama3.1-8b", "--on", "h100-ib", "--tp", "1", "--requests", "16", "--json", "-")
    found, usual = (toys.windtunnel(*asked, "--engine", engine) for engine in ("toy", "vllm"))
    assert found.returncode == 0, found.stderr
    toy, vllm = json.loads(found.stdout), json.loads(usual.stdout)
    assert toy["engine"] == "toy" and toy["batch"] <= 2.0 < vllm["batch"]
    job = tmp_path / "job.toml"
    job.write_text(RL_JOB.replace('"toy"', '"split"') + 'engine = "toy"\n', encoding="utf-8")
    step = toys.windtunnel("rl-predict", str(job), "--json", "-")
    assert step.returncode == 0, step.stderr
    searched = toys.windtunnel("serve-search", "llama3.1-8b", "--on", "h100-ib", "--gpus", "1", "--engine", "toy,vllm", "--users",
                   "1,4", "--jobs", "1", "--json", "-")  # fmt: skip
    assert {choice["engine"] for choice in json.loads(searched.stdout)["front"]} <= {"toy", "vllm"}
    refused = toys.windtunnel("serve-predict", "llama3.1-8b", "--on", "h100-ib", "--engine", "tuy")
    assert refused.returncode == 2 and "'toy'" in refused.stderr


def test_a_verb(tmp_path: Path, package: Callable[..., KeptPython]) -> None:
    """Nothing of the project names it: `tests/browser/test_page_verbs.py` asks the service, the client and the page too."""
    toys = package("verbs", example("verb"))
    found = toys.windtunnel("toy", "41", "--html", str(tmp_path / "page.html"), "--csv", str(tmp_path / "a.csv"))
    assert found.returncode == 0, found.stderr
    assert "41 and more is 42" in found.stdout and "42" in (tmp_path / "a.csv").read_text(encoding="utf-8")
    assert "41 and more is 42" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert json.loads(toys.windtunnel("toy", "41", "--more", "2", "--json", "-").stdout) == {"number": 41, "sum": 43}
    assert "Adds to a number." in toys.windtunnel("--help").stdout
    told = toys.windtunnel("toy", "--help").stdout
    assert "What is added." in told and "windtunnel toy 41" in told
    done = toys.ran("import windtunnel as wt; print(wt.toy(41, more=2).sum, wt.toy.__doc__)")
    assert done.stdout.startswith("43 A number and more.") and "`more`: What is added." in done.stdout
    assert toys.windtunnel("tay", "1").returncode == 2
    assert "No windtunnel attribute tay" in toys.ran("import windtunnel as wt; wt.tay").stderr


@pytest.mark.parametrize("text", ["TOY = 1", "from windtunnel.base.verbs import Verb\nTOY = Verb('A toy.')"])
def test_what_is_no_verb_is_refused(text: str, package: Callable[..., KeptPython]) -> None:
    refused = package("verbs", text).windtunnel("toy")
    assert refused.returncode == 2 and "entry point toy" in refused.stderr and "Traceback" not in refused.stderr


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


def test_a_log_reader(tmp_path: Path, package: Callable[..., KeptPython]) -> None:
    toys = package("importers", READER)
    log = tmp_path / "a.log"
    log.write_text("toy log 1\nstep 1\nstep 2\n", encoding="utf-8")
    found = toys.windtunnel("import", str(log), "--json", "-")
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout)["facts"] == {"steps": 2}
    assert "logs of a toy" in toys.windtunnel("catalog", "formats").stdout


MIXER = example("mixer")

MODEL = """name = "toy-1b"
layers = 4
hidden = 1024
heads = 8
ffn = 4096
vocab = 32000
tied_embeddings = true
position = "rope"
activation = "swiglu"
norm = "rmsnorm"
linear_bias = false
mixer_pattern = "TA"
"""

MIXED_JOB = """cluster = {{ base = "h100-ib", gpus = 8 }}
plan = {{ tp = 2, micro_batch = 1, global_batch = 16, seq = 2048 }}
runtime = {{ framework = "megatron-core" }}
[model]
{model}"""


def test_a_mixer(tmp_path: Path, package: Callable[..., KeptPython]) -> None:
    toys = package("mixers", MIXER)
    job, page = tmp_path / "job.toml", tmp_path / "page.html"
    job.write_text(MIXED_JOB.format(model=MODEL), encoding="utf-8")
    found = toys.windtunnel("predict", str(job), "--json", "-", "--html", str(page))
    assert found.returncode == 0, found.stderr
    step = json.loads(found.stdout)
    assert "toy in" in found.stdout and "toy" in page.read_text(encoding="utf-8")
    plain = toys.windtunnel("predict", str(job), "--json", "-", "--set", "model.mixer_pattern=A")
    assert step["step_time_s"] < json.loads(plain.stdout)["step_time_s"]
    # Two layers have 2 h^2 in place of attention's 4 h^2.
    parameters = [json.loads(text)["parameters"] for text in (plain.stdout, found.stdout)]
    assert parameters[0] - parameters[1] == 2 * 2 * 1024**2
    memory = toys.windtunnel("memory", str(job), "--json", "-")
    assert memory.returncode == 0, memory.stderr
    served = toys.windtunnel("serve-predict", str(job), "--on", "h100-ib", "--tp", "2", "--requests", "8", "--json", "-")
    assert served.returncode == 0, served.stderr
    room = json.loads(served.stdout)["memory"]
    # Two layers keep 4 heads of 128 keys and values of 2 bytes for a token; two keep half of a state in fp32.
    assert room["token"] == 2 * 4 * 2 * 128 * 2 and room["state"] == 2 * 4 * 1024 / 2
    brought = toys.windtunnel("import", str(job), "--json", "-")
    assert brought.returncode == 0, brought.stderr
    assert json.loads(brought.stdout)["facts"]["parameters"] == parameters[1]
    alone = toys.windtunnel("predict", str(job), "--set", "model.mixer_pattern=none", "--set", "model.layer_pattern=T-", "--quiet")
    assert alone.returncode == 0, alone.stderr
    own = ", ".join(dict.fromkeys(mixer.letter for mixer in MIXERS.own_members.values() if mixer.letter))
    refused = toys.windtunnel("predict", str(job), "--set", "model.mixer_pattern=TX")
    assert refused.returncode == 2 and f"letters out of {own}, T, each" in refused.stderr
    with KeptPython() as plain:
        missing = plain.windtunnel("predict", str(job))
    assert missing.returncode == 2 and f"letters out of {own}, each" in missing.stderr


ALGORITHM = example("collective")

SLOW_NETWORK = """cluster = { base = "h100-ib", gpus = 32 }
model = "qwen2.5-0.5b"
plan = { tp = 1, micro_batch = 1, global_batch = 32, seq = 1024 }
runtime = { framework = "torchtitan" }
"""


def test_a_collective_algorithm(tmp_path: Path, package: Callable[..., KeptPython]) -> None:
    toys = package("algorithms", ALGORITHM)
    asked = ("collective", "-c", "h100-ib", "-n", "32", "-b", "256M", "--json", "-")
    seconds = {}
    for words in (("--network", "flow", "-a", "toy"), ("--network", "flow", "-a", "ring"), ("-e", "NCCL_ALGO=Toy"),
                  ("-e", "NCCL_ALGO=Ring"), ("-e", "NCCL_ALGO=Toy", "--network", "flow"), ()):  # fmt: skip
        found = toys.windtunnel(*asked, *words)
        assert found.returncode == 0, found.stderr
        row = json.loads(found.stdout)["rows"][0]
        seconds[words] = row["time_us"]
        assert (row["algorithm"] == "toy") == ("toy" in " ".join(words).lower())
    flow, ring, closed, usual, chosen, unnamed = seconds.values()
    assert closed < 0.5 * usual and flow < 0.5 * ring and chosen == pytest.approx(flow)
    job = tmp_path / "job.toml"
    job.write_text(SLOW_NETWORK, encoding="utf-8")
    for network in ("closed", "flow"):
        steps = []
        for algorithm in ("Toy", "Ring"):
            found = toys.windtunnel("predict", str(job), "--network", network, "--set", f"runtime.nccl.NCCL_ALGO={algorithm}",
                        "--json", "-")  # fmt: skip
            assert found.returncode == 0, found.stderr
            steps.append(json.loads(found.stdout)["step_time_s"])
        assert steps[0] < steps[1]
    assert "toy" in toys.windtunnel("collective", "--help").stdout
    refused = toys.windtunnel(*asked, "-e", "NCCL_ALGO=Tay")
    assert refused.returncode == 2 and "toy" in refused.stderr
