"""What a verb imports: half of the time of a short command is its start-up."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from windtunnel.cli import VERBS
from windtunnel.spec import dump_job, load_job

_CODE = """
import contextlib, io, sys
from windtunnel.cli import main
with contextlib.redirect_stdout(io.StringIO()):
    code = main(sys.argv[1:])
print(code, *sys.modules)
"""
_READERS = ("windtunnel.formats.jobs", "windtunnel.formats.traces", "windtunnel.formats.machines", "xml.sax", "defusedxml")
_SIMULATOR = ("windtunnel.predict", "windtunnel.compute", "windtunnel.memory", "windtunnel.search", "windtunnel.spec.job")
_SHOWN = (
    "rich", "windtunnel.api.prediction_sheet", "windtunnel.api.memory", "windtunnel.api.memory_sheet", "windtunnel.api.comparison",
    "windtunnel.api.compare_sheet", "windtunnel.api.json", "windtunnel.predict.answer.trace",
    "windtunnel.runs.fleet",
)  # fmt: skip
_ENGINES = ("windtunnel.engine.packet", "windtunnel.engine.flow", "windtunnel.network.simulate", "windtunnel.network.flows")
_GOAL = "num_ranks 2\nrank 0 {\nl1: send 8b to 1 tag 1\n}\nrank 1 {\nl1: recv 8b from 0 tag 1\n}\n"


def imported_by(arguments: Sequence[str]) -> set[str]:
    done = subprocess.run([sys.executable, "-c", _CODE, *arguments], capture_output=True, text=True, check=True)
    code, *modules = done.stdout.split()
    assert code == "0", done.stderr
    return set(modules)


def below(modules: set[str], rooms: Sequence[str]) -> list[str]:
    return sorted(name for name in modules if any(name == room or name.startswith(f"{room}.") for room in rooms))


@pytest.mark.parametrize(
    ("arguments", "forbidden"),
    [
        (["predict", "llama3-8b-8xh100", "--quiet"], (*_READERS, *_SHOWN, *_ENGINES, "windtunnel.search", "scipy", "pyarrow")),
        (["predict", "JOB.toml", "--quiet"], (*_READERS, *_SHOWN, *_ENGINES, "windtunnel.search", "scipy", "pyarrow")),
        (
            ["collective", "--cluster", "h100-ib", "--gpus", "64", "--bytes", "1M"],
            (*_READERS, *_SHOWN, *_ENGINES, *_SIMULATOR, "windtunnel.workload.build", "windtunnel.network.lanes.build"),
        ),
        (
            ["flows", "--fabric", "fat_tree:k=4", "--flows", "permutation:seed=1,bytes=1MiB", "--network", "packet", "--quiet"],
            (*_READERS, *_SHOWN, *_SIMULATOR, "windtunnel.workload", "windtunnel.spec.machine.cluster", "pydantic", "numpy.random"),
        ),
        (["replay", "TRACE.goal", "--on", "h100-ib", "--quiet"], (*_SIMULATOR, *_SHOWN[1:], "windtunnel.formats.jobs")),
        (
            ["replay", "TRACE.goal", "--loggops", "L=2500,o=1500,g=1000,G=6,S=65535", "--quiet"],
            (*_SIMULATOR, *_SHOWN, "windtunnel.spec", "windtunnel.network"),
        ),
        (["search", "llama3-8b-8xh100", "--set", "plan.tp=1,2", "--jobs", "1", "--quiet"], (*_READERS, "scipy.stats")),
        (["serve-predict", "llama3.1-8b", "--on", "h100-ib", "--concurrency", "4", "--quiet"], ("scipy.stats",)),
        (["--help"], ("windtunnel.spec", "windtunnel.engine", "numpy", "pydantic")),
    ],
)  # fmt: skip
def test_a_verb_imports_only_what_it_needs(arguments: list[str], forbidden: Sequence[str], tmp_path: Path) -> None:
    (tmp_path / "JOB.toml").write_text(dump_job(load_job("llama3-8b-8xh100")), encoding="utf-8")
    (tmp_path / "TRACE.goal").write_text(_GOAL, encoding="utf-8")
    named = [str(tmp_path / word) if (tmp_path / word).exists() else word for word in arguments]
    assert not below(imported_by(named), forbidden)


@pytest.mark.parametrize("verb", sorted(set(VERBS) - {"export", "flows"}))
def test_the_help_of_a_verb_imports_no_numbers(verb: str) -> None:
    """`export` names what its exporters write, `flows` what its engines do."""
    assert not below(imported_by([verb, "--help"]), ("numpy", "scipy", "windtunnel.engine", "windtunnel.predict.step"))
