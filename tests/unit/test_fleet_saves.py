"""What is said of saves that fail: events, the driver's lines and incidents; remains and foreign folders. Without torch."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.base.text import clean
from windtunnel.fleet.checkpoint.commit import claim_folder, name_latest, remove_leftovers
from windtunnel.fleet.checkpoint.folder import LATEST, folder_problem, step_folder, tmp_folder
from windtunnel.fleet.driver.incident_log import IncidentLog, SaveWatch
from windtunnel.fleet.driver.plan import JobState
from windtunnel.records.checkpoint_events import CheckpointEvent, SaveRecord, lost_saves, save_record
from windtunnel.records.incidents import read_incidents


def _write(folder: Path, *events: tuple[str, int]) -> None:
    with (folder / "checkpoints-0.jsonl").open("a") as file:
        for name, step in events:
            why = {"why": "No space left on device"} if name == "failed" else {}
            file.write(json.dumps({"event": name, "step": step, "unix": 1.0, **why}) + "\n")


def test_the_record_says_what_was_kept_and_what_failed(tmp_path: Path) -> None:
    assert lost_saves(tmp_path) == ""
    _write(tmp_path, ("save", 20), ("commit", 20), ("save", 40), ("commit", 40), ("save", 60), ("failed", 60))
    assert lost_saves(tmp_path) == "the last save that was kept is step 40; step 60 failed: No space left on device"
    _write(tmp_path, ("save", 80), ("failed", 80), ("save", 1000), ("failed", 1000))
    assert lost_saves(tmp_path) == "the last save that was kept is step 40; 60 to 1,000 failed: No space left on device"
    _write(tmp_path, ("commit", 1020))
    assert lost_saves(tmp_path) == ""


@given(st.lists(st.sampled_from(["save", "commit", "failed", "load", "began"]), max_size=12))
def test_a_record_names_a_loss_exactly_while_the_newest_end_of_a_save_is_a_failure(names: list[str]) -> None:
    record, lost = SaveRecord(), False
    for step, name in enumerate(names, start=1):
        record.add(CheckpointEvent(name, step, 1.0))
        lost = name == "failed" or lost and name == "save"
        assert bool(record.text) == lost
        assert record.pending == (step if name == "save" else None)


def test_the_driver_says_each_failure_once_and_keeps_one_incident_of_a_streak(tmp_path: Path) -> None:
    watch, log = SaveWatch(tmp_path), IncidentLog(tmp_path, "job", JobState(nodes=["node0"]))
    assert watch.look(log, 4.0) == []
    for step in (60, 80):
        _write(tmp_path, ("save", step), ("failed", step))
        said = watch.look(log, 5.0)
        assert said == [f"the checkpoint of step {step} was not kept: No space left on device; no save was kept"]
    (one,) = read_incidents(tmp_path)
    assert (one.what, one.evidence) == ("checkpoint", "no save was kept; 60 to 80 failed: No space left on device")
    assert (one.outcome, one.action, one.seconds.down) == ("ignored", "none", 0.0)
    _write(tmp_path, ("save", 100), ("commit", 100))
    assert watch.look(log, 6.0) == ["checkpoints are kept again: step 100"]
    _write(tmp_path, ("save", 120), ("failed", 120))
    watch.look(log, 7.0)
    first, second = read_incidents(tmp_path)
    assert first.evidence.endswith("step 100 was kept again") and second.number == first.number + 1


def test_a_torn_line_is_read_once_it_is_whole(tmp_path: Path) -> None:
    watch, log, file = SaveWatch(tmp_path), IncidentLog(tmp_path, "job", JobState()), tmp_path / "checkpoints-0.jsonl"
    line = json.dumps({"event": "commit", "step": 7, "unix": 1.0}) + "\n"
    file.write_text("no event\n" + line[:9])
    assert watch.look(log, 1.0) == [] and watch.record.kept is None
    with file.open("a") as more:
        more.write(line[9:])
    watch.look(log, 1.0)
    assert watch.record.kept == 7


@given(st.lists(st.sampled_from(["save", "commit", "failed", "load", "began"]), max_size=12), st.data())
def test_incidents_do_not_depend_on_when_the_driver_looks(names: list[str], data: st.DataObject) -> None:
    def incidents(looks: list[bool]) -> list[tuple[int, str]]:
        with tempfile.TemporaryDirectory() as folder:
            watch, log = SaveWatch(Path(folder)), IncidentLog(Path(folder), "job", JobState(nodes=["node0"]))
            for step, (name, look) in enumerate(zip(names, looks, strict=True), start=1):
                _write(Path(folder), (name, step))
                if look:
                    watch.look(log, 1.0)
            watch.look(log, 1.0)
            return [(one.number, one.evidence) for one in read_incidents(Path(folder))]

    seen = data.draw(st.lists(st.booleans(), min_size=len(names), max_size=len(names)))
    assert incidents(seen) == incidents([True] * len(names))


def _torn(folder: Path, step: int, attempt: str, world: int = 2) -> Path:
    made = tmp_folder(folder, step, attempt)
    made.mkdir(parents=True)
    for rank in range(world):
        (made / f"__{rank}_0.distcp").write_bytes(b"x" * 100)
        (made / f"ack-{rank}.json").write_text("{}")
    return made


def test_remains_are_removed_but_not_those_of_a_save_that_may_still_end(tmp_path: Path) -> None:
    old, failed, running = _torn(tmp_path, 5, "aa"), _torn(tmp_path, 60, "bb"), _torn(tmp_path, 80, "bb")
    assert remove_leftovers(tmp_path, "bb", 1, -1, False) == []
    assert set(remove_leftovers(tmp_path, "bb", 1, 60, True)) == {old, failed}
    assert sorted(path.name for path in failed.iterdir()) == ["__0_0.distcp", "ack-0.json"]  # those of others are theirs
    remove_leftovers(tmp_path, "bb", 0, 60, True)
    assert not old.exists() and not failed.exists()
    assert len(list(running.iterdir())) == 4


def test_what_the_disk_refuses_to_remove_is_passed_over(tmp_path: Path) -> None:
    assert remove_leftovers(tmp_path / "none", "bb", 0, 60, True) == []
    (tmp_path / "step-00000005.aa.tmp").write_text("a file")
    assert remove_leftovers(tmp_path, "bb", 1, -1, True) == [tmp_path / "step-00000005.aa.tmp"]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ([".metadata", "__0_0.distcp"], "torch.distributed.checkpoint"),
        (["__0_0.distcp"], "torch.distributed.checkpoint"),
        (["checkpoint-500/trainer_state.json"], "Hugging Face"),
        (["epoch=1-step=20.ckpt"], "Lightning"),
        (["latest_checkpointed_iteration.txt", "iter_0000010/x"], "Megatron"),
        (["global_step10/mp_rank_00"], "DeepSpeed"),
        (["model.pt"], "torch.save"),
        (["step-10/model.bin"], "step folders that windtunnel did not write"),
        (["killed-0-37", "log.txt"], ""),
        ([], ""),
    ],
)
def test_a_folder_of_others_is_named(tmp_path: Path, names: list[str], said: str) -> None:
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    found = folder_problem(tmp_path)
    assert (said in found) if said else found == ""


def test_a_file_is_no_folder_and_no_folder_is_a_beginning(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_text("x")
    assert folder_problem(tmp_path / "model.bin").startswith("a file")
    assert folder_problem(tmp_path / "none") == ""


def test_a_step_that_latest_names_and_that_is_gone_is_told(tmp_path: Path) -> None:
    claim_folder(tmp_path, "aa")
    step_folder(tmp_path, 40).mkdir()
    (tmp_path / LATEST).write_text("step-00000040\n")
    assert folder_problem(tmp_path) == ""
    step_folder(tmp_path, 40).rmdir()
    assert "step-00000040, whose folder is gone" in folder_problem(tmp_path)
    _torn(tmp_path, 60, "aa")
    assert "step-00000040" in folder_problem(tmp_path)
    name_latest(tmp_path, None)
    assert folder_problem(tmp_path) == "" and not (tmp_path / LATEST).exists()


def test_latest_names_the_step_from_which_an_attempt_goes_on(tmp_path: Path) -> None:
    (tmp_path / LATEST).write_text("step-00000040\n")
    name_latest(tmp_path, 20)
    assert (tmp_path / LATEST).read_text() == "step-00000020\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, 100 % ✓", "plain, 100 % ✓"),
        ("\x1b]0;PWN\x07\x1b[31mred\x1b[2J\x1b[0m", "red"),
        ("\x1b]52;c;cGF5bG9hZA==\x1b\\after", "after"),
        ("a\tb\rc\x00d\x9b31m", "a b?c?d"),
        ("\x1bPq#0;2\x1b\\x\x1bcy\x1b", "xy"),
        ("first\nsecond", "first?second"),
        ("\u202ereversed", "?reversed"),
    ],
)
def test_no_escape_reaches_a_terminal(text: str, shown: str) -> None:
    assert clean(text) == shown


@given(st.text(st.characters(codec="utf-8"), max_size=60))
def test_cleaned_text_can_be_printed(text: str) -> None:
    assert clean(text).isprintable()
    assert clean(clean(text)) == clean(text)


def test_a_record_of_nothing_is_empty() -> None:
    assert save_record([]).text == "" and save_record([]).kept_text == "no save was kept"
