"""The commit of a step, what a folder holds, what may be deleted: without torch."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from windtunnel.base.errors import FileError
from windtunnel.cli import app
from windtunnel.fleet.checkpoint.commit import (
    Save,
    SaveError,
    acknowledge,
    claim_folder,
    collect_acknowledgements,
    collect_garbage,
    commit,
    deletable_steps,
    mark_gone,
)
from windtunnel.fleet.checkpoint.folder import LATEST, FoundStep, committed_steps, step_folder, steps_in
from windtunnel.fleet.checkpoint.manifest import Manifest, ShardFile, hash_errors, hash_of, manifest_from, read_manifest


def save_of(folder: Path, step: int, attempt: str = "aa", world: int = 2) -> Save:
    """A save whose shards are written and acknowledged by all ranks."""
    save = Save(folder, step, attempt, world, "1", {"dp": world})
    save.tmp.mkdir(parents=True)
    for rank in range(world):
        data = bytes([step, rank]) * 100
        (save.tmp / f"__{rank}_0.distcp").write_bytes(data)
        acknowledge(save, rank, [ShardFile(f"__{rank}_0.distcp", len(data), hash_of(data), rank)])
    return save


def committed(folder: Path, *steps: int) -> None:
    claim_folder(folder, "aa")
    for step in steps:
        save = save_of(folder, step)
        assert commit(save, collect_acknowledgements(save, 1.0))


def test_a_committed_step_is_whole_and_named_by_latest(tmp_path: Path) -> None:
    committed(tmp_path, 10, 20)
    assert [one.step for one in committed_steps(tmp_path)] == [20, 10]
    assert (tmp_path / LATEST).read_text() == "step-00000020\n"
    manifest = read_manifest(step_folder(tmp_path, 20))
    assert (manifest.world, manifest.topology, manifest.attempt) == (2, {"dp": 2}, "aa")
    assert hash_errors(step_folder(tmp_path, 20), manifest) == []
    assert sorted(path.name for path in step_folder(tmp_path, 20).iterdir()) == ["__0_0.distcp", "__1_0.distcp", "manifest.json"]


def test_a_rank_without_a_word_fails_the_save(tmp_path: Path) -> None:
    save = save_of(tmp_path, 10)
    (save.tmp / "ack-1.json").unlink()
    with pytest.raises(SaveError, match="no word of rank 1"):
        collect_acknowledgements(save, 0.02)


def test_a_rank_that_failed_fails_the_save(tmp_path: Path) -> None:
    save = save_of(tmp_path, 10)
    acknowledge(save, 1, [], "disk full")
    with pytest.raises(SaveError, match="rank 1: disk full"):
        collect_acknowledgements(save, 1.0)


def test_an_attempt_that_was_replaced_commits_nothing(tmp_path: Path) -> None:
    committed(tmp_path, 10)
    save = save_of(tmp_path, 20)
    claim_folder(tmp_path, "bb")
    with pytest.raises(SaveError, match="attempt bb"):
        commit(save, collect_acknowledgements(save, 1.0))
    assert [one.step for one in committed_steps(tmp_path)] == [10]


def test_a_step_of_an_earlier_attempt_stays(tmp_path: Path) -> None:
    committed(tmp_path, 10)
    before = read_manifest(step_folder(tmp_path, 10))
    claim_folder(tmp_path, "bb")
    save = save_of(tmp_path, 10, "bb")
    assert not commit(save, collect_acknowledgements(save, 1.0))
    assert read_manifest(step_folder(tmp_path, 10)) == before and not save.tmp.exists()


@given(st.integers(0, 10**7), st.integers(0, 7))
def test_no_bit_of_a_manifest_may_change(at: int, bit: int) -> None:
    manifest = Manifest(7, "ab", 2, 1.5, "1", (ShardFile("__0_0.distcp", 5, hash_of(b"12345"), 0),), {"tp": 2})
    raw = bytearray(manifest.text().encode())
    assert manifest_from(raw.decode()) == manifest
    raw[at % len(raw)] ^= 1 << bit
    try:
        read = manifest_from(raw.decode())
    except (FileError, UnicodeDecodeError):
        return
    assert read == manifest  # a space of the layout


def test_a_manifest_that_leads_out_of_its_folder_is_refused() -> None:
    text = Manifest(7, "ab", 1, 0.0, "1", (ShardFile("../../secret", 5, "0", 0),), {}).text()
    with pytest.raises(FileError, match="its own folder"):
        manifest_from(text)


STATES = st.lists(st.tuples(st.integers(1, 40), st.sampled_from(["committed", "damaged", "torn", "superseded"])), max_size=12)


@given(STATES, st.integers(0, 5), st.one_of(st.none(), st.integers(1, 10)))
def test_the_newest_two_committed_steps_always_stay(states: list[tuple[int, str]], keep: int, interval: int | None) -> None:
    found = [FoundStep(step, Path(f"step-{step:08d}"), state) for step, state in dict(states).items()]
    gone = {one.step for one in deletable_steps(found, keep, interval, "aa")}
    kept = sorted((one.step for one in found if one.state == "committed"), reverse=True)
    assert not gone & set(kept[: max(keep, 2)])
    assert not {step for step in gone & set(kept) if interval and step % interval == 0}
    assert len(kept) >= 2 or not gone


def test_garbage_is_what_is_old_or_torn(tmp_path: Path) -> None:
    committed(tmp_path, 1, 2, 3, 4)
    (tmp_path / "step-00000002.bb.tmp").mkdir()
    (tmp_path / "step-00000009.bb.tmp").mkdir()
    collect_garbage(tmp_path, 2, None, "aa")
    assert [(one.step, one.state) for one in steps_in(tmp_path)] == [(9, "torn"), (4, "committed"), (3, "committed")]


def test_the_command_line_names_the_damaged_file(tmp_path: Path) -> None:
    committed(tmp_path, 1, 2, 3)
    path = step_folder(tmp_path, 2) / "__1_0.distcp"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    listed = CliRunner().invoke(app, ["fleet", "checkpoints", "ls", str(tmp_path), "--json", "-"])
    assert [one["state"] for one in json.loads(listed.output)["steps"]] == ["committed"] * 3
    verified = CliRunner().invoke(app, ["fleet", "checkpoints", "verify", str(tmp_path)])
    assert verified.exit_code == 1 and "__1_0.distcp" in verified.output
    refused = CliRunner().invoke(app, ["fleet", "checkpoints", "rm", str(tmp_path), "3"])
    assert refused.exit_code != 0 and step_folder(tmp_path, 3).exists()
    gone = CliRunner().invoke(app, ["fleet", "checkpoints", "rm", str(tmp_path), "1"])
    assert gone.exit_code == 0 and not step_folder(tmp_path, 1).exists()


def test_other_folders_are_left_alone() -> None:
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "step-x").mkdir()
        assert steps_in(Path(name)) == []


def test_nobody_waits_for_a_rank_that_was_killed_before_it_staged(tmp_path: Path) -> None:
    save = save_of(tmp_path, 10)
    mark_gone(tmp_path, "aa", 0)  # what it acknowledged before counts
    assert len(collect_acknowledgements(save, 60.0)) == 2
    (save.tmp / "ack-1.json").unlink()
    mark_gone(tmp_path, "aa", 1)
    with pytest.raises(SaveError, match="rank 1 was killed"):
        collect_acknowledgements(save, 60.0)
    claim_folder(tmp_path, "bb")
    assert not list(tmp_path.glob("gone-*"))
