"""Checkpoints of real ranks in a store: saved, refused by it, cut short, loaded. The store is the local disk, with faults."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from forked_ranks import RankForge, Said, agreed_digests

torch = pytest.importorskip("torch")

from windtunnel.fleet.checkpoint.stores.object_store import ObjectStore  # noqa: E402

pytestmark = pytest.mark.torch
SCRIPT = Path(__file__).with_name("checkpoint_scripts.py")
FAULTY = Path(__file__).parents[1] / "faulty_store"


class StoreJobs:
    """Jobs on ranks that all see the same faulty store."""

    def __init__(self, forge: RankForge, faults: Path) -> None:
        self.forge, self.faults = forge, faults

    def set_faults(self, **faults: Any) -> None:
        beside = self.faults.with_suffix(".new")
        beside.write_text(json.dumps(faults))
        os.replace(beside, self.faults)

    def ran(self, what: str, url: str, world: int, codes: int = 0, **options: Any) -> Said:
        return self.forge.ran(what, world, url, code=codes, **options)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreJobs]:
    import fsspec

    faults = tmp_path_factory.mktemp("faults") / "faults.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAULTY_STORE", str(faults))
        patch.setenv("PYTHONPATH", str(FAULTY))
        patch.syspath_prepend(str(FAULTY))
        import faulty_store

        fsspec.register_implementation("faulty", faulty_store.FaultyStore, clobber=True)
        forge = RankForge(SCRIPT, tmp_path_factory.mktemp("said"))
        yield StoreJobs(forge, faults)
        forge.close()
    sys.modules.pop("faulty_store", None)


@pytest.fixture
def jobs(made: StoreJobs) -> Iterator[StoreJobs]:
    made.set_faults()
    yield made
    made.set_faults()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"faulty://{tmp_path}/bucket/run"


@pytest.mark.parametrize(("scheme", "world"), [("file", 2), ("faulty", 3)])
def test_sharded_state_loads_on_another_world_bit_equal(jobs: StoreJobs, tmp_path: Path, scheme: str, world: int) -> None:
    url = f"{scheme}://{tmp_path}/new/run/"
    saved = jobs.ran("save", url, 4)
    assert [one[2] for one in saved] == [{"rank": rank, "newest": 20, "failed": {}} for rank in range(4)]
    loaded = jobs.ran("load", url, world)
    assert agreed_digests(loaded) == agreed_digests(saved, 1)
    assert {one[0]["step"] for one in loaded} == {20}
    shards = sum(path.stat().st_size for path in (tmp_path / "new" / "run").glob("step-00000020.*/*.distcp"))
    assert sum(one[0]["storage"] for one in loaded) == shards
    assert not list((tmp_path / "new" / "run").glob("**/ack-*"))


@pytest.mark.parametrize(("fault", "name", "rank"), [("refuse", "__1_*", 1), ("full", "__0_*", 0), ("tear", "__1_*", 1)])
def test_a_store_that_refuses_a_shard_fails_the_save_and_the_job_goes_on(
    jobs: StoreJobs, url: str, fault: str, name: str, rank: int
) -> None:
    jobs.set_faults(**{fault: name})
    failing = jobs.ran("save", url, 2, codes=1)  # close says that the last save is lost
    assert failing[0][2]["newest"] is None and set(failing[0][2]["failed"]) == {"10", "20"}
    assert {"refuse": "credentials", "full": "No space left", "tear": "bytes"}[fault] in failing[rank][2]["failed"]["10"]
    assert ObjectStore(url).find_committed() == []
    jobs.set_faults()
    saved = jobs.ran("save", url, 2)
    assert [one[2]["newest"] for one in saved] == [20, 20]
    assert [one.state for one in ObjectStore(url).steps()] == ["committed", "committed"]


def test_only_the_save_that_the_store_refuses_fails(jobs: StoreJobs, url: str) -> None:
    jobs.set_faults(refuse="step-00000010.*/__1_*")
    saved = jobs.ran("save", url, 2)
    assert [one[2]["newest"] for one in saved] == [20, 20] and list(saved[0][2]["failed"]) == ["10"]
    assert [one.step for one in ObjectStore(url).find_committed()] == [20]
    assert agreed_digests(jobs.ran("load", url, 2)) == agreed_digests(saved, 1)


@pytest.mark.parametrize("name", ["__1_0.distcp", ".metadata", "manifest.json"])
def test_a_flipped_bit_falls_back_one_step(jobs: StoreJobs, url: str, tmp_path: Path, name: str) -> None:
    saved = jobs.ran("save", url, 2)
    (path,) = (tmp_path / "bucket" / "run").glob(f"step-00000020.*/{name}")
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    loaded = jobs.ran("load", url, 2)
    assert agreed_digests(loaded) == agreed_digests(saved)
    assert loaded[0][0]["step"] == 10 and loaded[0][0]["passed"][0][0] == 20


@pytest.mark.parametrize("name", ["*", "__1_0.distcp", ".metadata", "manifest.json"])
def test_a_store_that_does_not_answer_stops_all_ranks_and_loads_no_older_step(jobs: StoreJobs, url: str, name: str) -> None:
    jobs.ran("linear", url, 2)
    jobs.set_faults(silent=name if name != "__1_0.distcp" else "*.distcp")
    said = jobs.ran("refused", url, 2)
    (why,) = {one[0]["why"] for one in said}
    assert "NoCredentials: the store is down" in why and said[0][0]["loaded"] is None
    jobs.set_faults()
    assert [one[0] for one in jobs.ran("refused", url, 2)] == [{"rank": rank, "loaded": 20, "why": ""} for rank in range(2)]


@pytest.mark.parametrize("fault", [{"kill": "step-00000020.*/manifest.json"}, {"kill": "step-00000020.*/__1_*"},
                                   {"killed": "step-00000020.*/manifest.json"}])  # fmt: skip
def test_a_writer_that_is_killed_in_a_save_leaves_the_step_before_or_this_one(
    jobs: StoreJobs, url: str, fault: dict[str, str]
) -> None:
    jobs.set_faults(**fault)
    saved = jobs.ran("save", url, 2, codes=1)
    assert saved[0][2]["newest"] == 10
    jobs.set_faults()
    newest = 20 if "killed" in fault else 10
    loaded = jobs.ran("load", url, 2)
    assert loaded[0][0]["step"] == newest and agreed_digests(loaded) == agreed_digests(saved, newest // 10 - 1)
    again = jobs.ran("save", url, 2, steps=(30,))
    assert again[0][1]["newest"] == 30
    assert not [one for one in ObjectStore(url).steps() if one.state == "torn"]


def test_weights_of_a_step_in_a_store_are_exported(jobs: StoreJobs, url: str, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    from windtunnel.base.errors import FileError
    from windtunnel.fleet.checkpoint.export import export_weights

    jobs.ran("save", url, 2)
    count, size = export_weights(f"{url}/step-00000020", tmp_path / "weights.safetensors")
    assert (count, size) == (6, sum(one.nbytes for one in load_file(tmp_path / "weights.safetensors").values()))
    named = ObjectStore(url).steps()[0].path.name
    assert export_weights(f"{url}/{named}/", tmp_path / "again.safetensors") == (count, size)
    for wrong in (f"{url}/step-00000030", url):
        with pytest.raises(FileError, match="checkpoints ls"):
            export_weights(wrong, tmp_path / "none.safetensors")
