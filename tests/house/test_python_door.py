"""Every verb of the command line has its function, which answers the same; a user's script can call them all."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import user_script
from docs_commands import ROOT, blocks, documents

import windtunnel as wt
from tests.helpers.fit_rows import tiny_cpu
from tests.helpers.fleet_rings import written
from tests.helpers.kept_run import kept
from windtunnel.base.json_text import json_text
from windtunnel.base.verbs import all_verbs
from windtunnel.cli import main
from windtunnel.records import write

FUNCTIONS = {name: verb.public_name for name, verb in all_verbs().items() if not verb.process}
"""Verb -> the function (or class) of `windtunnel` behind it."""

WITH_TORCH = ("capture", "profile_host")
"""Functions that need torch and a compiler; tests/pytorch calls them."""

SMALL = [word for text in user_script.SMALL for word in ("--set", text)]
JOB = ["llama3-8b-8xh100", *SMALL]
Cut = Callable[[Any], Any]
WHOLE: Cut = lambda data: data  # noqa: E731


def without_times(found: Any) -> Any:
    """A search without how long it took and the command line that follows, which only the command knows."""
    certificate = {key: value for key, value in found["certificate"].items() if not key.endswith("_s")}
    return {**found, "certificate": certificate, "command": ""}


def steps_of(found: Any) -> Any:
    """Steps of a folder, which the command puts into a table."""
    return found if isinstance(found, list) else found["steps"]


COMMANDS: dict[str, tuple[list[str], Cut]] = {
    "predict": (["predict", *JOB], WHOLE),
    "memory": (["memory", *JOB, "--replay"], WHOLE),
    "goodput": (["goodput", "llama3-8b-8xh100", "--set", "reliability=llama3-2024", "--days", "10", "--closed"], WHOLE),
    "sensitivity": (["sensitivity", *JOB], WHOLE),
    "serve-predict": (["serve-predict", "llama3.1-8b", "--on", "h100-ib", "--tp", "1", "--osl", "16", "--concurrency", "2"], WHOLE),
    "rl-predict": (["rl-predict", "rl.json"], WHOLE),
    "serve-fleet": (
        ["serve-fleet", "llama3.1-8b", "--on", "h100-ib", "--tp", "1", "--osl", "16", "--users", "4", "--requests", "8"],
        WHOLE,
    ),
    "serve-search": (["serve-search", "llama3.1-8b", "--on", "h100-ib", "--gpus", "1", "--users", "2", "--jobs", "1"], WHOLE),
    "compare": (["compare", JOB[0], *JOB, "--set-b", "plan.recompute=full"], WHOLE),
    "catalog": (["catalog", "gpus", "h100-sxm-80gb"], WHOLE),
    "search": (["search", *JOB, "--jobs", "1", "--gap", "0.01"], lambda found: without_times(found)),
    "plan": (["plan", "--budget", "200000", "--days", "30", "--on", "h100-ib", "--gpus", "64"], WHOLE),
    "design": (
        ["design", *JOB, "--set", "cluster.node.gpu.memory_bandwidth=2TB/s..4TB/s", "--trials", "2", "--fixed-plan"],
        WHOLE,
    ),
    "collective": (
        ["collective", "-c", "h100-ib", "-n", "16", "-b", "1M:4M"],
        lambda found: found["rows"] if isinstance(found, dict) else found,
    ),
    "fleet startup": (["fleet", "startup", "--mesh", "dp=8,tp=2"], WHOLE),
    "import FILE...": (["import", "trace.json"], WHOLE),
    "runs show": (["runs", "show", "trace.json"], WHOLE),
    "compare RUN JOB": (["compare", "trace.json", *JOB], WHOLE),
    "whatif": (["whatif", "trace.json", "--change", "no-host-gaps", "--change", "scale:gemm=0.5"], WHOLE),
    "calibrate": (["calibrate", "trace.json", "--job", *JOB], WHOLE),
    "replay": (["replay", "chakra", "--on", "h100-ib"], WHOLE),
    "replay --astra-sim": (
        ["replay", "chakra", "--astra-sim", "astra/system.json", "--astra-network", "astra/network.yml"],
        WHOLE,
    ),
    "replay --loggops": (["replay", "step.goal", "--loggops", "L=2500,o=1500"], WHOLE),
    "simai": (["simai", "workload.txt", "--gpus", "8", "--nvlink", "360"], WHOLE),
    "validate": (["validate", "rows.csv"], WHOLE),
    "suite": (["suite", "llama3-8b", "--on", "h100-ib", "--framework", "nemo", "--gpus", "8"], WHOLE),
    "profile show": (["profile", "show", "kernels.parquet"], WHOLE),
    "profile gains": (
        ["profile", "gains", "kernels.parquet"],
        lambda found: found["gains"] if isinstance(found, dict) else found,
    ),
    "fit transfer": (["fit", "transfer", "--leave", "h20"], WHOLE),
    "fit power": (["fit", "power"], WHOLE),
    "fleet show": (["fleet", "show", "rings"], lambda found: {**found, "seconds": 0}),
    "fleet hang": (["fleet", "hang", "rings"], WHOLE),
    "fleet incidents": (["fleet", "incidents", "kept"], WHOLE),
    "fleet replay JOB": (
        ["fleet", "replay", "llama3-8b-8xh100", "--set", "reliability=llama3-2024", "--faults", "0.004"],
        WHOLE,
    ),
    "measure list": (["measure", "list", "."], lambda found: found["cells"] if isinstance(found, dict) else found),
    "fleet checkpoints ls": (
        ["fleet", "checkpoints", "ls", "."],
        lambda found: found if isinstance(found, list) else found["steps"],
    ),
}
"""What `user_script.ask` answers -> the command that answers the same with --json -, and the part that is compared."""

MOST_OTHERS = {"catalog add", "flows", "export", "profile import", "profile export", "fit kernels", "fleet monitor", "fleet replay",
               "fleet diagnose --plan", "fleet jobset", "fleet dashboard"}  # fmt: skip
"""Answers that are compared in a test of their own, or have no --json."""


def function_of(path: str) -> Any:
    group, _, name = path.rpartition(".")
    module: Any = getattr(wt, group) if group else wt
    assert name in module.__all__
    return module, name


def test_a_verb_without_a_function_says_why() -> None:
    assert all(len(verb.process) > 40 for verb in all_verbs().values() if verb.process)


@pytest.mark.parametrize("path", sorted(set(FUNCTIONS.values())))
def test_the_function_is_there_and_documented(path: str) -> None:
    module, name = function_of(path)
    if name == "export_weights":
        pytest.importorskip("torch")
    found = getattr(module, name)
    assert callable(found) and len(found.__doc__ or "") > 40
    if not isinstance(found, type):
        assert {"return"} <= set(found.__annotations__), "types of what it takes and returns"


@pytest.mark.parametrize("group", [wt, wt.measure, wt.profile, wt.runs, wt.fit, wt.fleet], ids=lambda module: module.__name__)
def test_the_page_shows_every_public_name(group: ModuleType) -> None:
    """A name that docs/python.md does not show is a name that nobody finds."""
    shown = set(re.findall(r"\w+", (ROOT / "docs" / "python.md").read_text(encoding="utf-8")))
    assert [name for name in group.__all__ if name not in shown and name != "__version__"] == []


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("door")
    written(made / "rings")
    (made / "kept").mkdir()
    kept(made / "kept")
    write(tiny_cpu(), str(made / "kernels.parquet"))
    table = ROOT / "src" / "windtunnel" / "catalog" / "measurements" / "single_node.csv"
    (made / "rows.csv").write_text("".join(table.read_text(encoding="utf-8").splitlines(keepends=True)[:4]), encoding="utf-8")
    return made


@pytest.fixture(scope="module")
def answers(folder: Path) -> dict[str, object]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return user_script.ask(Path())


def test_the_script_asks_every_verb(answers: dict[str, object]) -> None:
    assert set(answers) ^ {*COMMANDS, *MOST_OTHERS} == set(), "a call in user_script.py, and a line in COMMANDS, for each verb"
    text = Path(user_script.__file__).read_text(encoding="utf-8")
    assert [path for path in FUNCTIONS.values() if f"wt.{path}(" not in text and path not in WITH_TORCH] == []


@pytest.mark.parametrize("verb", COMMANDS)
def test_the_function_answers_as_the_command(
    verb: str, folder: Path, answers: dict[str, object], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, cut = COMMANDS[verb]
    monkeypatch.chdir(folder)
    assert main([*arguments, "--json", "-"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert cut(json.loads(json_text(wt.as_dict(answers[verb])))) == cut(printed)


def test_functions_without_json_answer_as_their_commands(
    folder: Path, answers: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)

    def printed(*arguments: str) -> str:
        assert main([*arguments]) == 0
        return capsys.readouterr().out

    assert printed("profile", "export", "kernels.parquet") == answers["profile export"]
    (text,) = answers["export"].values()
    assert printed("export", "toml", *JOB) == text
    jobset = ("--image", "registry/train:1", "--nodes", "2", "--", "python", "train.py")
    assert printed("fleet", "jobset", "llama", *jobset).strip() == answers["fleet jobset"].strip()
    assert json.loads(printed("fleet", "dashboard")) == answers["fleet dashboard"]
    assert main(["profile", "import", "kernels.parquet", "-o", "again.csv", "--quiet"]) == 0
    assert Path("again.csv").read_text(encoding="utf-8") == answers["profile export"]
    capsys.readouterr()
    fitted = json.loads(printed("fit", "kernels", "kernels.parquet", "-o", "theirs.json", "--json", "-"))
    assert {**fitted, "file": ""} == {**wt.as_dict(answers["fit kernels"]), "file": ""}
    assert Path("theirs.json").read_bytes() == Path("mine.json").read_bytes()
    planned = json.loads(printed("fleet", "diagnose", "--plan", "--expect", "h100-ib"))
    assert [one["test"] for one in planned["tests"]] == list(answers["fleet diagnose --plan"])
    flows = json.loads(printed("flows", "-f", "fat_tree:k=4,link=400Gb/s", "--flows", "permutation:bytes=1MiB", "--json", "-"))
    assert flows["fct_s"] == answers["flows"]
    replayed = json.loads(printed("fleet", "replay", "kept", "--json", "-"))
    assert all(replayed[key] == value for key, value in wt.as_dict(answers["fleet replay"]).items() if value is not None)
    assert isinstance(answers["fleet monitor"], list)


def test_documents_and_examples_import_public_names_only() -> None:
    """`windtunnel`, and `windtunnel.room`: nothing below, which may move. Guides to extensions show files of the package itself."""
    deep = re.compile(r"^\s*(?:from|import) windtunnel\.\w+\.\w[\w.]*", re.MULTILINE)
    found = [
        f"{page.relative_to(ROOT)}: {line.strip()}"
        for page in documents()
        if not {"decisions", "extend"} & set(page.parts) and page.name != "CHANGELOG.md"
        for body in blocks(page, ("python", "py"))
        for line in deep.findall(body)
    ]
    for script in (ROOT / "examples").rglob("*.py"):
        found += [f"{script.relative_to(ROOT)}: {line.strip()}" for line in deep.findall(script.read_text(encoding="utf-8"))]
    assert found == []
    assert deep.findall("from windtunnel.fleet.watch.api import x") and not deep.findall("from windtunnel.fleet import watch")


@pytest.mark.parametrize("page", [page for page in documents() if blocks(page, ("python", "py"))], ids=lambda page: page.name)
def test_names_that_documents_import_are_there(page: Path) -> None:
    import ast

    for body in blocks(page, ("python", "py")):
        try:
            tree = ast.parse(body)
        except SyntaxError:
            continue  # a part of a file
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("windtunnel"):
                module = import_module(str(node.module))
                listed = getattr(module, "__all__", dir(module))
                assert [alias.name for alias in node.names if alias.name not in listed] == [], node.module
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "wt":
                assert node.attr in wt.__all__, f"wt.{node.attr}"


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The code of docs/python.md, block after block; what a training script does needs a job."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    page = blocks(ROOT / "docs" / "python.md", ("python",))
    ran = [body for body in page if "watch.start()" not in body]
    assert len(page) == len(ran) + 1
    for body in ran:
        exec(compile(body, "docs/python.md", "exec"), names)  # noqa: S102 our own page
    assert len(capsys.readouterr().out.splitlines()) >= 10
