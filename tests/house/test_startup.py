"""What a verb imports: half of the time of a short command is its start-up."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.helpers.kept_python import KeptPython
from windtunnel.base.verbs import verbs_of
from windtunnel.spec import dump_job, load_job

_CODE = """
import contextlib, io, sys
from windtunnel.cli import main
with contextlib.redirect_stdout(io.StringIO()):
    code = main(sys.argv[1:])
print(code, *sys.modules)
"""
_HELP = """
import contextlib, io, json, sys
from windtunnel.cli import main
known, first = set(sys.modules), {}
for verb in sys.argv[1:]:
    with contextlib.redirect_stdout(io.StringIO()):
        assert main([verb, "--help"]) == 0, verb
    first[verb] = sorted(set(sys.modules) - known)
    known |= set(sys.modules)
print(json.dumps(first))
"""
_READERS = ("windtunnel.formats.jobs", "windtunnel.formats.traces", "windtunnel.formats.machines", "xml.sax", "defusedxml")
_SIMULATOR = ("windtunnel.predict", "windtunnel.compute", "windtunnel.memory", "windtunnel.search", "windtunnel.spec.job")
_SHOWN = (
    "rich", "windtunnel.api.prediction_sheet", "windtunnel.api.memory", "windtunnel.api.comparison",
    "windtunnel.api.compare_sheet", "windtunnel.api.json", "windtunnel.predict.answer.trace",
    "windtunnel.runs.fleet",
)  # fmt: skip
_ENGINES = ("windtunnel.engine.packet", "windtunnel.engine.flow", "windtunnel.network.simulate", "windtunnel.network.flows")
_NOT_PREDICTED = (
    *_READERS, *_SHOWN, *_ENGINES, "windtunnel.search", "windtunnel.network.congestion", "scipy", "pyarrow", "numpy.ma",
)  # fmt: skip
_GOAL = "num_ranks 2\nrank 0 {\nl1: send 8b to 1 tag 1\n}\nrank 1 {\nl1: recv 8b from 0 tag 1\n}\n"


_THREADS = """
import os, sys
from windtunnel.cli import main
code = main(sys.argv[1:])
print(code, len(os.listdir("/proc/self/task")), os.environ.get("OPENBLAS_NUM_THREADS"))
"""


@pytest.fixture(scope="module")
def bare() -> Iterator[KeptPython]:
    """Forks of a process that has imported nothing."""
    with KeptPython() as kept:
        yield kept


def imported_by(bare: KeptPython, arguments: Sequence[str]) -> set[str]:
    done = bare.ran(_CODE, *arguments)
    assert done.returncode == 0, done.stderr
    code, *modules = done.stdout.split()
    assert code == "0", done.stderr
    return set(modules)


def below(modules: set[str], rooms: Sequence[str]) -> list[str]:
    return sorted(name for name in modules if any(name == room or name.startswith(f"{room}.") for room in rooms))


@pytest.mark.parametrize(
    ("arguments", "forbidden"),
    [
        (["predict", "llama2-70b-64xh100", "--quiet"], _NOT_PREDICTED),
        (["predict", "JOB.toml", "--quiet"], _NOT_PREDICTED),
        (
            ["collective", "--cluster", "h100-ib", "--gpus", "64", "--bytes", "1M"],
            (*_READERS, *_SHOWN, *_ENGINES, *_SIMULATOR, "windtunnel.workload.build", "windtunnel.network.lanes.build"),
        ),
        (
            ["flows", "--fabric", "fat_tree:k=4", "--flows", "permutation:seed=1,bytes=1MiB", "--network", "packet", "--quiet"],
            (*_READERS, *_SHOWN, *_SIMULATOR, "windtunnel.workload", "windtunnel.spec.machine", "pydantic", "numpy.random"),
        ),
        (["replay", "TRACE.goal", "--on", "h100-ib", "--quiet"], (*_SIMULATOR, *_SHOWN[1:], "windtunnel.formats.jobs")),
        (
            ["replay", "TRACE.goal", "--loggops", "L=2500,o=1500,g=1000,G=6,S=65535", "--quiet"],
            (*_SIMULATOR, *_SHOWN, "windtunnel.spec", "windtunnel.network"),
        ),
        (["search", "llama3-8b-8xh100", "--set", "plan.tp=1,2", "--jobs", "1", "--quiet"], (*_READERS, "scipy.stats")),
        (["serve-predict", "llama3.1-8b", "--on", "h100-ib", "--concurrency", "4", "--quiet"], ("scipy.stats",)),
        (["catalog", "jobs"], (*_READERS, *_SIMULATOR[:-1], "windtunnel.workload", "windtunnel.network", "numpy")),
        (["--help"], ("windtunnel.spec", "windtunnel.engine", "numpy", "pydantic")),
    ],
)  # fmt: skip
def test_a_verb_imports_only_what_it_needs(
    arguments: list[str], forbidden: Sequence[str], tmp_path: Path, bare: KeptPython
) -> None:
    (tmp_path / "JOB.toml").write_text(dump_job(load_job("llama3-8b-8xh100")), encoding="utf-8")
    (tmp_path / "TRACE.goal").write_text(_GOAL, encoding="utf-8")
    named = [str(tmp_path / word) if (tmp_path / word).exists() else word for word in arguments]
    assert not below(imported_by(bare, named), forbidden)


def test_the_help_of_a_verb_imports_no_numbers(bare: KeptPython) -> None:
    """`export` names what its exporters write, `flows` what its engines do. One process asks all others, one after another."""
    done = bare.ran(_HELP, *sorted(set(verbs_of()) - {"export", "flows"}))
    assert done.returncode == 0, done.stderr
    heavy = ("numpy", "scipy", "windtunnel.engine", "windtunnel.predict.step")
    imported = json.loads(done.stdout)
    assert len(imported) == len(verbs_of()) - 2
    assert {verb: found for verb, modules in imported.items() if (found := below(set(modules), heavy))} == {}


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads in /proc")
def test_a_verb_with_a_job_begins_no_threads_of_a_blas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor do programs that it starts get the variable that says so."""
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    with KeptPython() as kept:
        done = kept.ran(_THREADS, "predict", "llama3-8b-8xh100", "--quiet")
    assert done.stdout.splitlines()[-1] == "0 1 None", done.stderr
