"""The tools that judge the tests and hold two commits against each other: mutants, old against new, coverage."""

from __future__ import annotations

import ast
import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from tests.against import showing
from tests.against.drift import drift_of, report
from tests.against.faces import commands, compare, covered, exceptions, verbs
from tests.coverage_by_room import table
from tests.mutants.operators import Mutant, mutants_of, mutated
from tests.mutants.patch import put_in
from tests.mutants.rooms import ROOMS, SRC, files_of, near, wide

SOURCE = '''
LIMIT = 3.0

def f(a, b=2):
    """Says nothing."""
    if not a:
        return 0.0
    x = max(a, b) * 2
    if x < LIMIT or x is None:
        raise ValueError(f"{x + 1}")
    return x if a else -b

class C:
    def g(self):
        self.n += 1
        return [i for i in self.all if i >= 1]
'''


def changes(source: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for one in mutants_of("file.py", source):
        found.setdefault(one.was, []).append(one.now)
    return found


def test_mutants_are_made_of_operators_numbers_and_branches() -> None:
    found = changes(SOURCE)
    assert found["max(a, b)"] == ["min(a, b)", "a", "b"]
    assert found["max(a, b) * 2"] == ["max(a, b) / 2"]
    assert found["x < LIMIT"] == ["x <= LIMIT", "x >= LIMIT"]
    assert found["x is None"] == ["x is not None"] and found["not a"] == ["a"] and found["-b"] == ["b"]
    assert found["x < LIMIT or x is None"] == ["x < LIMIT and x is None"]
    assert found["x if a else -b"] == ["x", "-b"] and found["return x if a else -b"] == ["return None"]
    assert found["if not a: return 0.0"] == ["pass"] and found["self.n += 1"] == ["self.n -= 1"]
    assert found["2"] == ["3"] and found["0.0"] == ["1.0"] and found["i >= 1"] == ["i > 1", "i < 1"]


def test_texts_errors_defaults_and_tables_of_facts_are_left_alone() -> None:
    found = changes(SOURCE)
    assert "3.0" not in found and "x + 1" not in found
    assert sum(one.was == "2" for one in mutants_of("file.py", SOURCE)) == 1  # that of the product, not the default
    checked = mutants_of("file.py", "def f(a, b):\n    return dict(zip(a, b, strict=True))\n")
    assert [one.now for one in checked] == ["return None"]
    assert {one.function for one in mutants_of("file.py", SOURCE)} == {"f", "C.g"}


def test_every_mutant_is_another_program_of_the_same_lines() -> None:
    original = ast.dump(ast.parse(SOURCE))
    mutants = mutants_of("file.py", SOURCE)
    trees = [mutated(SOURCE, one) for one in mutants]
    assert len({ast.dump(tree) for tree in trees} | {original}) == len(mutants) + 1
    assert all(compile(tree, "file.py", "exec") for tree in trees)
    assert [one.line for one in mutants if one.was == "-b"] == [11]


def test_a_mutant_is_put_into_functions_that_are_already_held() -> None:
    """`smooth` as this file imported it has the change, and loses it again."""
    from windtunnel.goodput.closed import smooth
    from windtunnel.goodput.conditions import CheckpointCost, Rates

    cost = CheckpointCost(1.0, save=5.0, flush=60.0, drag=0.0, load=0.0)
    file = "goodput/closed.py"
    every = mutants_of(file, (SRC / file).read_text(encoding="utf-8"))
    mutant = next(
        one for one in every if one.function == "smooth" and one.was.startswith("max(") and one.now.startswith("interval")
    )
    held = smooth.__code__
    try:
        assert smooth(10.0, Rates(0.0), cost) == 65.0
        assert put_in(mutant) == 1
        assert smooth(10.0, Rates(0.0), cost) == 15.0
    finally:
        smooth.__code__ = held
    assert put_in(Mutant(file, "nowhere", 1, "", "", mutant.at, mutant.variant)) == 0


def test_every_room_of_formulas_has_files_and_tests() -> None:
    assert all(files_of(room) and near(room) and all(path.is_file() for path in files_of(room)) for room in ROOMS)
    assert len(wide(ROOMS)) > 8 and wide(["serving", "rl"]) == []
    every = [path for room in ROOMS for path in files_of(room)]
    assert len(every) == len(set(every))  # a file is of the innermost room


def line(outcome: str = "ok", why: str = "", **figures: object) -> dict[str, object]:
    return {"outcome": outcome, "why": why, "figures": figures}


def test_drift_is_counted_by_figure_and_a_lost_job_is_a_failure() -> None:
    old = {
        "same": line(step_time_s=1.0, breakdown={"host": 0.5}),
        "slower": line(step_time_s=2.0, days=None, breakdown={"host": 0.5}),
        "lost": line(step_time_s=1.0),
        "won": line("refused", "too large"),
        "never": line("refused", "no"),
        "gone": line(step_time_s=1.0),
    }
    new = {
        "same": line(step_time_s=1.0, breakdown={"host": 0.5}),
        "slower": line(step_time_s=2.0000001, days=3.0, breakdown={"host": 0.75}),
        "lost": line("refused", "plan.tp: got 3"),
        "won": line(step_time_s=1.0),
        "never": line("crashed", "ZeroDivisionError: division by zero"),
        "more": line(step_time_s=1.0),
    }
    drift = drift_of(old, new)
    assert (drift.compared, drift.both_refused, drift.won, drift.only_old, drift.only_new) == (2, 0, ["won"], ["gone"], ["more"])
    assert drift.lost == {"lost": "refused: plan.tp: got 3", "never": "crashed: ZeroDivisionError: division by zero"}
    assert drift.changed == {
        "step_time_s": {"slower": pytest.approx(5e-8)},
        "days": {"slower": math.inf},
        "breakdown: host": {"slower": pytest.approx(0.5)},
    }
    told = report(drift)
    assert "predicted before, not any more: 2" in told and "refused before, predicted now: 1" in told and "+50.00%" in told


def test_equal_means_equal() -> None:
    drift = drift_of({"a": line(step_time_s=0.1 + 0.2)}, {"a": line(step_time_s=0.3)})
    assert list(drift.changed) == ["step_time_s"]
    assert "no figure of any job has changed" in report(drift_of({"a": line(x=1.0)}, {"a": line(x=1.0)}))


def test_coverage_is_summed_by_room() -> None:
    one = {"num_statements": 10, "covered_lines": 9, "num_branches": 4, "covered_branches": 1}
    files = {
        "src/windtunnel/a/x.py": {"summary": one},
        "src/windtunnel/a/b/y.py": {"summary": one},
        "src/windtunnel/fit.py": {"summary": one},
    }
    told = [text.split() for text in table(files).splitlines()]
    assert told[1:] == [
        ["a", "20", "90.0%", "8", "25.0%"],
        ["fit.py", "10", "90.0%", "4", "25.0%"],
        ["all", "30", "90.0%", "12", "25.0%"],
    ]


def test_every_verb_has_its_outputs_compared() -> None:
    """A verb has commands in tests/against/faces.toml, or a reason there why only its help is compared."""
    names, named = set(verbs()), exceptions()
    assert names == covered() | named.keys()
    assert not covered() & named.keys() and all(len(why) > 20 for why in named.values())
    lines = [line for _, line in commands()]
    assert {f"{verb} --help" for verb in names} <= set(lines)
    assert not [line for line in lines if "$" in line]


def test_a_separator_and_a_missing_file_are_noticed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for side, text in (("old", "tp 1 · pp 2\n"), ("new", "tp 1, pp 2\n")):
        folder = tmp_path / side / "predict" / "0123456789"
        folder.mkdir(parents=True)
        for name, content in (("command", "predict JOB\n"), ("status", "0\n"), ("stdout", text)):
            (folder / name).write_text(content, encoding="utf-8")
    assert compare(tmp_path / "old", tmp_path / "old") == 0
    (tmp_path / "old" / "predict" / "0123456789" / "page.html").write_text("<p>", encoding="utf-8")
    capsys.readouterr()
    assert compare(tmp_path / "old", tmp_path / "new") == 1
    told = capsys.readouterr().out
    (tmp_path / "old" / "predict" / "0123456789").rename(tmp_path / "old" / "predict" / "9876543210")
    assert compare(tmp_path / "old", tmp_path / "new") == 1 and compare(tmp_path / "old", tmp_path / "new", some=True) == 0
    assert "-tp 1 · pp 2\n+tp 1, pp 2" in told and "page.html: only the old side wrote it" in told


def test_a_command_runs_by_itself_and_its_folder_is_taken_out_of_its_output(tmp_path: Path) -> None:
    inputs = tmp_path / "inputs"
    (inputs / "some").mkdir(parents=True)
    (inputs / "written").touch()
    listed = tmp_path / "commands.json"
    lines = {"a/1": "python: import os; print(os.getcwd()); open('file', 'w').write('x')", "a/2": "python: 1 / 0",
             "a/3": "predict no-such-job"}  # fmt: skip
    listed.write_text(json.dumps(list(lines.items())), encoding="utf-8")
    out, script = tmp_path / "out", Path(showing.__file__)
    subprocess.run([sys.executable, str(script), str(listed), str(out), str(inputs), "--cold"], check=True, capture_output=True)
    told = {path.relative_to(out).as_posix(): path.read_text(encoding="utf-8") for path in out.rglob("*") if path.is_file()}
    assert (told["a/1/stdout"], told["a/1/file"], told["a/1/status"]) == ("<out>/a/1\n", "x", "0\n")
    assert told["a/2/stderr"] == "crashed: ZeroDivisionError: division by zero\n" and told["a/2/status"] == "70\n"
    assert told["a/3/stderr"].startswith("windtunnel: JOB: got 'no-such-job'") and told["a/3/status"] == "2\n"
