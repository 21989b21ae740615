"""A file that no reader takes is named by the tool that it looks like, or said not to be known; never another tool's name."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from windtunnel.base.errors import WindtunnelError
from windtunnel.base.files import table_beside
from windtunnel.formats.text import tool_marks
from windtunnel.formats.text.tool_marks import hint_of_text, tool_of_text
from windtunnel.jobs.load import load_described_job
from windtunnel.jobs.reading import read_source
from windtunnel.jobs.rl import load_rl

TEXTS = tomllib.loads((Path(__file__).parent / "tool_texts.toml").read_text(encoding="utf-8"))
CASES = [(tool, ending, text) for tool, files in TEXTS.items() for ending, text in files.items()]
UNKNOWN = "no tool that is known"
NAMES = table_beside(tool_marks.__file__)


def _named(message: str) -> set[str]:
    return {name for name in NAMES if f"looks like {name}'s" in message}


def test_there_are_enough() -> None:
    assert len(CASES) >= 120 and len(TEXTS) >= 40


@pytest.mark.parametrize(("tool", "ending", "text"), CASES, ids=[f"{tool}.{ending}" for tool, ending, _ in CASES])
def test_a_text_is_of_its_tool(tool: str, ending: str, text: str) -> None:
    assert tool_of_text(text) == ("" if tool == UNKNOWN else tool)


@pytest.mark.parametrize(("tool", "ending", "text"), CASES, ids=[f"{tool}.{ending}" for tool, ending, _ in CASES])
def test_an_error_names_no_other_tool(tool: str, ending: str, text: str, tmp_path: Path) -> None:
    """Whatever the readers say of the file, by `predict` and by `import`: the tool, or that it is not known."""
    path = tmp_path / f"a.{ending}"
    path.write_text(text, encoding="utf-8")
    if ending not in ("log", "md", "txt"):
        try:
            load_described_job(str(path), [], "h100-ib")
        except WindtunnelError as error:
            assert _named(str(error)) <= {tool}
            assert "a DeepSpeed configuration" not in str(error) and "the fields activation" not in str(error)
    try:
        read_source([str(path)])
    except WindtunnelError as error:
        assert _named(str(error)) <= {tool}


@pytest.mark.parametrize(
    ("name", "text", "tool"),
    [
        ("a.yaml", "booster: {plugin: HybridParallelPlugin}\ngradient_accumulation_steps: 2\n", "ColossalAI"),
        ("b.yaml", TEXTS["Oumi"]["yaml"], "Oumi"),
        ("c.sh", TEXTS["RL2"]["sh"], "RL2"),
        ("d.sh", "python go.py --plugin 3 # colossalai\n", "ColossalAI"),
        ("e.toml", TEXTS["cosmos-rl"]["toml"], "cosmos-rl"),
        ("f.sh", TEXTS["SkyRL"]["sh"], "SkyRL"),
    ],
)
def test_predict_says_whose_file_it_is_and_what_to_type(name: str, text: str, tool: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(WindtunnelError, match=f"looks like {tool}'s.*--set plan.micro_batch=N"):
        load_described_job(str(tmp_path / name), [], "h100-ib")


def test_a_file_of_no_tool_is_said_to_be_unknown(tmp_path: Path) -> None:
    for ending, text in TEXTS[UNKNOWN].items():
        (tmp_path / f"a.{ending}").write_text(text, encoding="utf-8")
    for ending in ("yaml", "sh"):
        with pytest.raises(WindtunnelError, match="not known"):
            load_described_job(str(tmp_path / f"a.{ending}"), [], "h100-ib")


def test_a_job_file_of_ours_keeps_its_own_errors(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("model: llama3-8b\ncluster: h100-ib\nplann: {tp: 2}\n", encoding="utf-8")
    with pytest.raises(WindtunnelError, match="plan"):
        load_described_job(str(tmp_path / "job.yaml"), [], None)


def test_rl_predict_says_whose_file_it_is(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(TEXTS["AReaL"]["yaml"], encoding="utf-8")
    with pytest.raises(WindtunnelError, match="looks like AReaL's"):
        load_rl(tmp_path / "a.yaml", "h100-ib")


def test_the_hint_is_a_command() -> None:
    assert "windtunnel predict MODEL --on CLUSTER" in hint_of_text("nothing")
