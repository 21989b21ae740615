"""Folders and disks that a job meets at its begin: damaged, torn, foreign, read-only. Every rank says the same, and none waits."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from forked_ranks import RankForge

torch = pytest.importorskip("torch")

from windtunnel.fleet.checkpoint.folder import LATEST, step_folder, tmp_folder  # noqa: E402

pytestmark = pytest.mark.torch
SCRIPT = Path(__file__).with_name("checkpoint_scripts.py")


@pytest.fixture(scope="module")
def forge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RankForge]:
    made = RankForge(SCRIPT, tmp_path_factory.mktemp("said"))
    yield made
    made.close()


def _refusal(forge: RankForge, folder: Path, world: int = 2, **options: Any) -> tuple[int | None, str]:
    """(step that was loaded, why nothing was): the same of every rank."""
    (one,) = {(rank[0]["loaded"], rank[0]["why"]) for rank in forge.ran("refused", world, str(folder), **options)}
    return one


@pytest.fixture(scope="module")
def whole(forge: RankForge, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    forge.ran("linear", 2, str(folder))
    return folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "steps"))


def _tear(step: Path) -> None:
    path = next(iter(step.glob("*.distcp")))
    path.write_bytes(path.read_bytes()[:-9])


def test_another_world_loads_the_same_model(forge: RankForge, folder: Path) -> None:
    assert _refusal(forge, folder, 3) == (20, "")


def test_the_newest_torn_falls_back_one_step(forge: RankForge, folder: Path) -> None:
    _tear(step_folder(folder, 20))
    assert _refusal(forge, folder) == (10, "")


def test_all_damaged_does_not_begin_at_0(forge: RankForge, folder: Path) -> None:
    for step in (10, 20):
        _tear(step_folder(folder, step))
    loaded, why = _refusal(forge, folder)
    assert loaded is None and "2 damaged steps" in why and "name another folder" in why


def test_steps_that_are_gone_do_not_begin_at_0(forge: RankForge, folder: Path) -> None:
    for step in (10, 20):
        shutil.rmtree(step_folder(folder, step))
    loaded, why = _refusal(forge, folder)
    assert loaded is None and "step-00000020, whose folder is gone" in why
    (folder / LATEST).unlink()
    assert _refusal(forge, folder) == (None, "")


def test_saves_that_were_never_committed_begin_at_0_and_say_so(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from windtunnel.fleet.checkpoint.checkpointer import Checkpointer

    tmp_folder(tmp_path, 20, "aa").mkdir()
    with Checkpointer(tmp_path) as checkpointer:
        assert checkpointer.load({"model": torch.nn.Linear(3, 5)}) is None
    assert "training begins at step 0: no save was ever committed: 20 never ended" in capfd.readouterr().err


def test_a_step_that_is_passed_over_is_told(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from windtunnel.fleet.checkpoint.checkpointer import Checkpointer

    _tear(step_folder(folder, 20))
    with Checkpointer(folder) as checkpointer:
        assert checkpointer.load({"model": torch.nn.Linear(3, 5)}) == 10
    assert "training goes on from step 10: passed over step 20" in capfd.readouterr().err


def test_another_models_shapes_are_named(forge: RankForge, folder: Path) -> None:
    loaded, why = _refusal(forge, folder, width=7)
    assert loaded is None and why.startswith("SpecError: state") and "names and shapes" in why


@pytest.mark.parametrize("kind", ["dcp", "file", "beside"])
def test_checkpoints_of_others_are_refused_by_name(forge: RankForge, tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "theirs"
    if kind == "dcp":
        import torch.distributed.checkpoint as dcp

        with pytest.warns(UserWarning):
            dcp.save(torch.nn.Linear(3, 5).state_dict(), checkpoint_id=folder, no_dist=True)
    elif kind == "file":
        torch.save(torch.nn.Linear(3, 5).state_dict(), folder)
    else:
        folder.mkdir()
        torch.save(torch.nn.Linear(3, 5).state_dict(), folder / "model.pt")
    loaded, why = _refusal(forge, folder)
    said = {"dcp": "torch.distributed.checkpoint", "file": "a file, and no folder", "beside": "a file of torch.save (model.pt)"}
    assert loaded is None and said[kind] in why


def test_a_place_that_cannot_be_written_is_an_error_of_every_rank(forge: RankForge, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    loaded, why = _refusal(forge, tmp_path / "file" / "steps")
    assert loaded is None and "Not a directory" in why and "read and written" in why


def test_a_read_only_disk_is_an_error_of_every_rank(forge: RankForge, folder: Path) -> None:
    mount = ["mount", "--bind", "-o", "ro", str(folder), str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("nothing can be mounted here")
    try:
        loaded, why = _refusal(forge, folder)
        assert loaded is None and "Read-only file system" in why
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False)


def test_a_last_save_that_failed_is_raised_when_all_is_released(tmp_path: Path) -> None:
    from windtunnel.fleet.checkpoint.checkpointer import Checkpointer
    from windtunnel.fleet.checkpoint.commit import LostSaveError

    checkpointer = Checkpointer(tmp_path / "steps")
    checkpointer.save(1, {"weights": torch.zeros(10)})
    assert checkpointer.wait() == 1
    shutil.rmtree(tmp_path / "steps")
    (tmp_path / "steps").write_text("what a disk that is gone looks like")
    checkpointer.save(2, {"weights": torch.zeros(10)})
    with pytest.raises(LostSaveError, match="last save that was kept is step 1; step 2 failed: .*Not a directory") as raised:
        checkpointer.close()
    assert raised.value.exit_code == 74 and checkpointer._flusher is None
