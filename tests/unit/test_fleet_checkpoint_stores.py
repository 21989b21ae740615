"""Steps in stores that fsspec opens, whole ones and faulty ones: without torch."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from windtunnel.base.errors import FileError, SpecError
from windtunnel.cli import app
from windtunnel.fleet.api import delete_steps, verify_steps
from windtunnel.fleet.checkpoint.commit import Save, SaveError
from windtunnel.fleet.checkpoint.folder import LATEST, OWNER, StoreError
from windtunnel.fleet.checkpoint.manifest import MANIFEST, Manifest, ShardFile
from windtunnel.fleet.checkpoint.stores.local_folder import LocalFolder, storage_at, storage_of_job
from windtunnel.fleet.checkpoint.stores.object_store import Lineage, ObjectStore

FAULTY = Path(__file__).parents[1] / "faulty_store"


def written(store: ObjectStore, step: int, attempt: str = "aa", world: int = 2) -> Save:
    """A save whose shards are written and acknowledged by all ranks."""
    save = store.save_of(step, attempt, world, "1", {"dp": world})
    for rank in range(world):
        data = bytes([step % 256, rank]) * 1000
        name = f"__{rank}_0.distcp"
        store.acknowledge(save, rank, [ShardFile(name, len(data), store.write(save, name, memoryview(data)), rank)])
    return save


def committed(store: ObjectStore, *steps: int, attempt: str = "aa") -> None:
    for step in steps:
        save = written(store, step, attempt)
        assert store.commit(save, store.collect(save, 60.0))


def states(store: ObjectStore) -> list[tuple[int, str]]:
    return [(one.step, one.state) for one in store.steps()]


@pytest.fixture
def faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Sets the faults of `faulty://`, here and in processes that are started."""
    import fsspec

    monkeypatch.setenv("FAULTY_STORE", str(tmp_path / "faults.json"))
    monkeypatch.syspath_prepend(str(FAULTY))
    import faulty_store

    fsspec.register_implementation("faulty", faulty_store.FaultyStore, clobber=True)
    yield faulty_store.set_faults


@pytest.fixture(params=["memory", "file", "faulty"])
def store(request: pytest.FixtureRequest, tmp_path: Path, faults: Callable[..., None]) -> ObjectStore:
    place = uuid.uuid4().hex if request.param == "memory" else str(tmp_path / "new" / "run")
    made = ObjectStore(f"{request.param}://{place}/")
    made.claim("aa", None, 0o077)
    return made


@pytest.fixture
def faulty(tmp_path: Path, faults: Callable[..., None]) -> ObjectStore:
    made = ObjectStore(f"faulty://{tmp_path}/bucket/run")
    made.claim("aa", None, 0o077)
    return made


def test_a_committed_step_is_whole_and_named_by_latest(store: ObjectStore) -> None:
    committed(store, 10, 20)
    assert states(store) == [(20, "committed"), (10, "committed")] and store.latest() == 20
    newest = store.steps()[0]
    assert store.hash_errors(newest) == []
    assert (store.root / newest.path.name).names() == ["__0_0.distcp", "__1_0.distcp", "manifest.json"]
    assert not store.where.endswith("/")


def test_a_step_exists_if_and_only_if_its_manifest_does(store: ObjectStore) -> None:
    committed(store, 10)
    save = written(store, 20)
    assert states(store) == [(20, "torn"), (10, "committed")] and store.torn_steps() == [20]
    assert [one.step for one in store.find_committed()] == [10]
    store.abandon(save)
    assert states(store) == [(10, "committed")]


@pytest.mark.parametrize("name", ["__1_0.distcp", MANIFEST])
def test_a_changed_byte_is_damage_and_is_named(store: ObjectStore, name: str) -> None:
    committed(store, 10)
    place = store.root / "step-00000010.aa" / name
    raw = bytearray(place.read_bytes())
    raw[len(raw) // 2] ^= 1
    place.write_data(memoryview(bytes(raw)))
    (one,) = verify_steps(store.where)
    assert one.state == "damaged" and name in one.why[0]


def test_a_shard_that_is_shorter_or_gone_is_damage_without_being_read(store: ObjectStore) -> None:
    committed(store, 10, 20)
    (store.root / "step-00000010.aa" / "__0_0.distcp").write_data(memoryview(b"x"))
    (store.root / "step-00000020.aa" / "__0_0.distcp").remove()
    assert [one.why[0] for one in store.steps()] == ["__0_0.distcp: not there", "__0_0.distcp: 1 bytes, 2000 were written"]


def test_an_attempt_that_was_replaced_commits_nothing(store: ObjectStore) -> None:
    committed(store, 10)
    save = written(store, 20)
    store.claim("bb", 10, 0o077)
    with pytest.raises(SaveError, match="attempt bb"):
        store.commit(save, store.collect(save, 60.0))
    assert [one.step for one in store.find_committed()] == [10]


def test_a_manifest_that_is_put_after_the_next_attempt_began_does_not_count(store: ObjectStore) -> None:
    committed(store, 10)
    save = written(store, 20)
    shards = store.collect(save, 60.0)
    store.claim("bb", 10, 0o077)
    late = Manifest(20, "aa", 2, 0.0, "1", tuple(shards), {})
    (store.root / "step-00000020.aa" / MANIFEST).write_text(late.text())  # it asked for the owner a moment too early
    assert states(store) == [(20, "superseded"), (10, "committed")]
    committed(store, 20, attempt="bb")
    assert [(one.path.name, one.state) for one in store.steps()] == [
        ("step-00000020.bb", "committed"), ("step-00000020.aa", "superseded"), ("step-00000010.aa", "committed"),
    ]  # fmt: skip


def test_the_owner_is_asked_again_after_the_manifest(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    save = written(store, 20)
    found = store._find_steps

    def claimed_between(only: int) -> object:
        ObjectStore(store.where).claim("bb", 0, 0o077)
        return found(only)

    monkeypatch.setattr(store, "_find_steps", claimed_between)
    with pytest.raises(SaveError, match="attempt bb"):
        store.commit(save, store.collect(save, 60.0))
    monkeypatch.undo()
    assert store.find_committed() == []


def test_a_step_of_an_earlier_attempt_stays(store: ObjectStore) -> None:
    committed(store, 10)
    store.claim("bb", 10, 0o077)
    save = written(store, 10, "bb")
    assert not store.commit(save, store.collect(save, 60.0))
    assert [one.path.name for one in store.steps()] == ["step-00000010.aa"]


def test_steps_that_were_not_loaded_are_refused(store: ObjectStore) -> None:
    committed(store, 10)
    with pytest.raises(SpecError, match="Call load before"):
        store.claim("bb", None, 0o077)
    assert store.owner() == "aa"


def test_a_rank_that_failed_or_was_killed_or_is_silent_fails_the_save(store: ObjectStore) -> None:
    save = written(store, 10)
    store.acknowledge(save, 1, [], "disk full")
    with pytest.raises(SaveError, match="rank 1: disk full"):
        store.collect(save, 60.0)
    (store.root / "step-00000010.aa" / "ack-1.json").remove()
    with pytest.raises(SaveError, match="no word of rank 1"):
        store.collect(save, 0.0)
    store.mark_gone("aa", 0)  # what it acknowledged before counts
    store.mark_gone("aa", 1)
    with pytest.raises(SaveError, match="rank 1 was killed"):
        store.collect(save, 60.0)
    store.claim("bb", 0, 0o077)
    assert not [name for name in store.root.names() or [] if name.startswith("gone-")]


def test_a_torn_acknowledgement_is_waited_for(store: ObjectStore) -> None:
    save = written(store, 10)
    place = store.root / "step-00000010.aa" / "ack-1.json"
    whole = place.read_bytes()
    place.write_data(memoryview(whole[:20]))
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            place.write_data(memoryview(whole))

    assert len(store.collect(save, 600.0, pause)) == 2 and len(pauses) == 3


def test_garbage_is_what_is_old_torn_or_superseded(store: ObjectStore) -> None:
    committed(store, 1, 2, 3, 4)
    written(store, 2, "bb")
    written(store, 9, "bb")
    (store.root / "notes.txt").write_text("of a person")
    store.collect_garbage(2, None, "aa")
    assert states(store) == [(9, "torn"), (4, "committed"), (3, "committed")]
    assert "notes.txt" in (store.root.names() or [])
    store.remove_leftovers("aa", 1, 9, True)
    assert (9, "torn") in states(store)  # rank 0 does it for all
    store.remove_leftovers("aa", 0, 9, True)
    assert states(store) == [(4, "committed"), (3, "committed")]


CLAIMS = st.lists(st.tuples(st.integers(0, 12), st.integers(1, 8)), min_size=1, max_size=9)


@given(CLAIMS)
def test_the_lineage_counts_the_steps_that_a_folder_would_keep(claims: list[tuple[int, int]]) -> None:
    lineage, kept, every = Lineage(), set[tuple[int, str]](), set[tuple[int, str]]()
    for number, (began, saves) in enumerate(claims):
        attempt = f"{number:x}"
        began = max((step for step, _ in kept if step <= began), default=0)  # a step that is there, or none
        lineage = Lineage.of(lineage.claim(attempt, began).text())
        kept = {one for one in kept if one[0] <= began}
        made = {(began + more, attempt) for more in range(1, saves + 1)}
        kept, every = kept | made, every | made
        assert lineage.owner == attempt
        assert {one for one in every if not lineage.is_superseded(*one)} == kept


def test_a_lineage_of_many_attempts_that_got_nowhere_stays_short() -> None:
    lineage = Lineage()
    for number in range(1000):
        lineage = lineage.claim(f"{number:x}", 300)
    assert len(lineage.claims) == 1


def test_a_listing_that_is_old_hides_no_step(faulty: ObjectStore, faults: Callable[..., None]) -> None:
    committed(faulty, 10, 20)
    faults(hide="step-00000020.aa")
    assert states(faulty) == [(20, "committed"), (10, "committed")]  # LATEST names it
    faults(hide="step-*/*")
    assert states(faulty) == [(20, "committed"), (10, "committed")]  # each object is asked for
    faulty.remove_leftovers("bb", 0, 100, True)
    faults()
    assert states(faulty) == [(20, "committed"), (10, "committed")]


@pytest.mark.parametrize("fault", ["refuse", "full", "tear"])
def test_a_put_that_fails_is_an_error_of_one_line_and_the_next_save_works(
    faulty: ObjectStore, faults: Callable[..., None], fault: str
) -> None:
    committed(faulty, 10)
    faults(**{fault: "__1_*"})
    with pytest.raises(OSError) as raised:
        written(faulty, 20)
    assert "\n" not in str(raised.value) and isinstance(raised.value, StoreError)
    faults()
    assert [one.step for one in faulty.find_committed()] == [10]
    faulty.remove_leftovers("aa", 0, 20, False)
    committed(faulty, 30)
    assert states(faulty) == [(30, "committed"), (10, "committed")]


def test_a_manifest_that_is_refused_leaves_no_step(faulty: ObjectStore, faults: Callable[..., None]) -> None:
    committed(faulty, 10)
    faults(refuse=MANIFEST)
    save = written(faulty, 20)
    with pytest.raises(StoreError, match="Unable to locate credentials"):
        faulty.commit(save, faulty.collect(save, 60.0))
    faulty.abandon(save)
    faults()
    assert states(faulty) == [(10, "committed")]


def test_a_latest_that_is_refused_fails_no_save(faulty: ObjectStore, faults: Callable[..., None]) -> None:
    faults(refuse=LATEST)
    committed(faulty, 10)
    assert states(faulty) == [(10, "committed")] and faulty.latest() == -1


def test_a_step_whose_deletion_was_cut_short_is_not_committed(faulty: ObjectStore, faults: Callable[..., None]) -> None:
    committed(faulty, 10, 20, 30)
    faults(keep="__1_0.distcp")
    with pytest.raises(FileError, match="AccessDenied"):
        delete_steps(faulty.where, [10])
    assert states(faulty) == [(30, "committed"), (20, "committed"), (10, "torn")]
    faults(keep=MANIFEST)
    with pytest.raises(FileError, match="AccessDenied"):
        delete_steps(faulty.where, [20], force=True)
    assert states(faulty)[:2] == [(30, "committed"), (20, "committed")]  # nothing of it is gone
    faults()
    faulty.collect_garbage(2, None, "aa")
    assert states(faulty) == [(30, "committed"), (20, "committed")]


def test_a_store_that_is_down_for_a_moment_fails_no_save_that_is_complete(faulty: ObjectStore, faults: Callable[..., None]) -> None:
    save = written(faulty, 10)
    faults(silent="ack-*")
    assert len(faulty.collect(save, 600.0, lambda _: faults())) == 2
    faults(silent="ack-*")
    with pytest.raises(StoreError, match="the store is down"):
        faulty.collect(save, 600.0, lambda _: None)


CHILD = """
import sys
from windtunnel.fleet.checkpoint.stores.object_store import ObjectStore
from windtunnel.fleet.checkpoint.manifest import ShardFile
store = ObjectStore(sys.argv[1])
store.claim("cc", 10, 0o077)
save = store.save_of(20, "cc", 1, "1", {})
data = b"of cc" * 1000
store.acknowledge(save, 0, [ShardFile("__0_0.distcp", len(data), store.write(save, "__0_0.distcp", memoryview(data)), 0)])
store.commit(save, store.collect(save, 60.0))
store.collect_garbage(2, None, "cc")
"""


@pytest.mark.parametrize("when", ["kill", "killed"])
@pytest.mark.parametrize("name", [OWNER, "__0_0.distcp", "ack-0.json", MANIFEST, LATEST])
def test_a_process_killed_at_any_moment_leaves_steps_that_are_whole(
    faulty: ObjectStore, faults: Callable[..., None], monkeypatch: pytest.MonkeyPatch, when: str, name: str
) -> None:
    committed(faulty, 5, 10)
    monkeypatch.setenv("PYTHONPATH", str(FAULTY))
    faults(**{when: name})
    assert subprocess.run([sys.executable, "-c", CHILD, faulty.where], timeout=120).returncode == -9
    faults()
    newest = 20 if name == LATEST and faulty.find_committed()[0].step == 20 or (name, when) == (MANIFEST, "killed") else 10
    there = faulty.find_committed()
    assert there[0].step == newest and all(faulty.hash_errors(one) == [] for one in there)
    faulty.claim("dd", newest, 0o077)
    faulty.remove_leftovers("dd", 0, newest, True)
    committed(faulty, 30, attempt="dd")
    assert [one for one in states(faulty) if one[1] == "torn"] == []
    assert faulty.find_committed()[0].step == 30 and faulty.latest() == 30


def test_steps_of_a_local_folder_that_was_copied_are_read(tmp_path: Path) -> None:
    from windtunnel.fleet.checkpoint.stores.storage import StepStorage

    folder: StepStorage = LocalFolder(tmp_path / "run")
    folder.claim("aa", None, 0o077)
    for step in (10, 20):
        save = folder.save_of(step, "aa", 1, "1", {})
        folder.begin(save)
        folder.acknowledge(save, 0, [ShardFile("x", 3, folder.write(save, "x", memoryview(b"abc")), 0)])
        folder.commit(save, folder.collect(save, 60.0))
    store = ObjectStore(f"file://{tmp_path}/run")
    assert states(store) == [(20, "committed"), (10, "committed")] and store.problem() == ""
    store.claim("bb", 10, 0o077)
    assert states(store) == [(20, "superseded"), (10, "committed")]


def test_the_command_line_takes_urls(tmp_path: Path) -> None:
    store = ObjectStore(f"file://{tmp_path}/run")
    store.claim("aa", None, 0o077)
    committed(store, 1, 2, 3)
    url = store.where + "/"
    listed = CliRunner().invoke(app, ["fleet", "checkpoints", "ls", url, "--json", "-"])
    assert [one["name"] for one in json.loads(listed.output)["steps"]] == [f"step-0000000{one}.aa" for one in (3, 2, 1)]
    assert CliRunner().invoke(app, ["fleet", "checkpoints", "verify", url]).exit_code == 0
    place = store.root / "step-00000002.aa" / "__1_0.distcp"
    place.write_data(memoryview(b"x" * 2000))
    verified = CliRunner().invoke(app, ["fleet", "checkpoints", "verify", url])
    assert verified.exit_code == 1 and "__1_0.distcp" in verified.output
    assert isinstance(CliRunner().invoke(app, ["fleet", "checkpoints", "rm", url, "3"]).exception, SpecError)
    assert CliRunner().invoke(app, ["fleet", "checkpoints", "rm", url, "1"]).exit_code == 0
    assert [one.step for one in store.steps()] == [3, 2]


def test_a_prefix_that_does_not_exist_is_said_and_is_a_beginning(tmp_path: Path) -> None:
    store = ObjectStore(f"file://{tmp_path}/nothing")
    assert (store.exists(), store.find_committed(), store.torn_steps(), store.problem()) == (False, [], [], "")
    told = CliRunner().invoke(app, ["fleet", "checkpoints", "ls", store.where])
    assert isinstance(told.exception, FileError) and "nothing there" in str(told.exception)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("x.pt", "torch.save"),
        ("checkpoint-5/trainer_state.json", "Hugging Face"),
        ("step-7/model.bin", "windtunnel did not write"),
        ("notes.txt", ""),
    ],
)
def test_checkpoints_of_others_are_no_place_to_begin(store: ObjectStore, name: str, said: str) -> None:
    place = store.root
    for part in name.split("/"):
        place = place / part
    place.write_text("of somebody else")
    assert said in store.problem() and bool(said) == bool(store.problem())


def test_a_latest_whose_step_is_gone_and_an_object_are_no_places_to_begin(store: ObjectStore) -> None:
    committed(store, 10)
    store.delete(store.steps()[0])
    assert "LATEST with step-00000010.aa" in store.problem()
    assert "an object" in ObjectStore(f"{store.where}/{LATEST}").problem()


def test_credentials_that_are_missing_are_said_in_one_line(faulty: ObjectStore, faults: Callable[..., None]) -> None:
    committed(faulty, 10)
    faults(silent="*")
    told = CliRunner().invoke(app, ["fleet", "checkpoints", "ls", faulty.where])
    assert isinstance(told.exception, FileError) and "NoCredentials: the store is down" in str(told.exception)
    assert "\n" not in str(told.exception)
    faults(refuse="*")
    with pytest.raises(FileError, match="Unable to locate credentials"):
        faulty.claim("bb", 10, 0o077)


@pytest.mark.parametrize(
    ("folder", "said"),
    [
        ("nosuch://bucket/run", "scheme that fsspec knows"),
        ("memory://", "a bucket or a folder"),
        ("file:///", "a bucket or a folder"),
        (Path("s3://bucket/run"), "two slashes"),
    ],
)
def test_a_url_that_names_nothing_is_refused(folder: str | Path, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        storage_at(folder)


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(SpecError, match="s3fs"):
        storage_at("s3://bucket/run-of-test")
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(SpecError, match=r"pip install 'windtunnel\[stores\]'"):
        storage_at("gs://bucket/run-of-test")


def test_memory_of_one_process_is_refused_for_a_job() -> None:
    with pytest.raises(SpecError, match="/dev/shm"):
        storage_of_job("memory://run")


def test_a_home_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    local = storage_of_job("~/run")
    assert local.where == str(tmp_path / "run") and isinstance(local, LocalFolder)
    store = ObjectStore("file://~/run")
    store.claim("aa", None, 0o077)
    assert (tmp_path / "run" / OWNER).exists()
