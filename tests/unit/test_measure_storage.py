"""What is said of checkpoints and samples on a file system: laws, plans, and their use by predictions."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from slow_disk import ABOUT, CASES, JOB, MIB, Clock, OneAfterAnother, SlowFiles, made_rows, part_of

import windtunnel as wt
from windtunnel.base.errors import FileError, SpecError
from windtunnel.goodput.run import STOP, checkpoint_cost
from windtunnel.measure.cells import cell_of, job_with_files, reason_against_storage
from windtunnel.measure.storage import SURE, law_of, measured_files, rows_of_saves, unseen_case
from windtunnel.predict.runs.setting import Loading
from windtunnel.profile.plan_slice import slice_of, slice_table
from windtunnel.profile.storage.run import (
    SaveCase,
    StorageRows,
    measure_samples,
)
from windtunnel.records import Dataset, dataset, write
from windtunnel.spec import MeasuredFiles, load_job


def test_a_law_says_sizes_and_ranks_that_no_row_has() -> None:
    rows = rows_of_saves(dataset(ABOUT, made_rows(0.01, 1e-9, 2e-9, CASES)), "write")
    law = law_of(rows, 2)
    assert law is not None
    assert (law.fixed, law.own, law.disk) == (pytest.approx(0.01), pytest.approx(1e-9), pytest.approx(2e-9))
    assert law.seconds(3, 16 * MIB) == pytest.approx(0.01 + 16 * MIB * (1e-9 * 1.5 + 2e-9 * 3)) and law.stated == SURE
    case, near = unseen_case(rows, 1e12)
    assert case == SaveCase(3, 16 * MIB) and (case.ranks, case.size) not in CASES
    assert near == [SaveCase(2, 32 * MIB), SaveCase(4, 8 * MIB), SaveCase(1, 32 * MIB)]  # 64, 32 and 32 MiB beside 48
    assert unseen_case(rows, 30 * MIB)[0].size == 10 * MIB
    assert law_of(rows[:3], 2) is None
    disk = law_of(rows_of_saves(dataset(ABOUT, made_rows(0.0, 0.0, 2e-9, CASES)), "write"), 2)
    assert disk is not None and disk.slope(8) == pytest.approx(16e-9)


def test_an_error_is_stated_that_rows_have() -> None:
    rows = made_rows(0.01, 1e-9, 2e-9, CASES)[::2]
    for place, factor in enumerate((1.0, 1.8, 1.0, 0.6, 1.0, 1.7)):
        rows[place]["seconds"] *= factor
    law = law_of(rows, 2)
    assert law is not None and law.stated > 2 * SURE


def test_predictions_of_a_job_take_the_rates() -> None:
    """By hand: a save of 80 GB on two nodes with their own disks, or on one file system that gives 5 GB/s to all."""
    job = wt.load(
        "llama3-8b-8xh100",
        overrides=["cluster.gpus=16", "plan.global_batch=32", "reliability=llama3-2024", "reliability.checkpoint.size=80e9",
                   "reliability.checkpoint.write=5GB/s per storage each way"],
    )  # fmt: skip
    table = {
        "write": "1GB/s per node each way", "read": "4GB/s per node each way", "latency": 0.5, "sample": 0.002,
        "stage": "10GB/s per GPU each way",
    }  # fmt: skip

    def on(**other: Any) -> Any:
        files = MeasuredFiles.model_validate({**table, **other})
        node = job.cluster.node.model_copy(update={"files": files})
        return job.model_copy(update={"cluster": job.cluster.model_copy(update={"node": node})})

    own, shared, plain = on(), on(shared=True), job
    assert own.reliability is not None
    policy = own.reliability.checkpoint
    cost = checkpoint_cost(own, policy)
    assert cost.flush == pytest.approx(80e9 / 2e9 + 0.5) and cost.save == pytest.approx(STOP + 5e9 / 10e9)
    assert cost.drag == pytest.approx(0.03)  # no NIC lies between
    assert checkpoint_cost(shared, policy).flush == pytest.approx(80e9 / 2e9 + 0.5)
    fast = on(shared=True, write="100GB/s per node each way")
    assert checkpoint_cost(fast, policy).flush == pytest.approx(80e9 / 5e9 + 0.5)
    assert checkpoint_cost(own, policy).load >= 80e9 / 8e9 > checkpoint_cost(plain, policy).load
    before, after = Loading.of(plain), Loading.of(own)
    assert after.reading == pytest.approx(before.reading + 0.002 * after.readers_of_node * job.plan.micro_batch)


def test_files_of_a_cell_are_the_node_s() -> None:
    rows = made_rows(0.01, 1e-9, 2e-9, CASES)
    clock, samples = Clock(), StorageRows()
    measure_samples(OneAfterAnother(SlowFiles(clock)), part_of(), 64 * 1024, 32 * MIB, 1e9, samples, clock)
    data = dataset(replace(ABOUT, settings={"cores": "2", "filesystem": "xfs", "shared": "no"}), [*rows, *samples.rows()])
    files = measured_files(data, 2, "measured on a machine")
    assert files is not None and files.write == pytest.approx(2 / (1e-9 + 4e-9)) and files.read == pytest.approx(4 / (1e-9 + 4e-9))
    assert files.latency == pytest.approx(0.01) and files.sample == pytest.approx(0.5e-3 - 257 * 4 / files.read)
    assert files.source == "measured on a machine; files of up to 32 MiB on xfs"
    job = job_with_files(load_job(JOB), data, "measured")
    assert job.runtime.data.sample == pytest.approx(1e-6) and job.runtime.data.storage == job.cluster.node.files.read  # type: ignore[union-attr]
    assert measured_files(dataset(ABOUT, rows[:4]), 2, "") is None


def test_a_damaged_row_is_refused(tmp_path: Path) -> None:
    data = dataset(ABOUT, made_rows(0.01, 1e-9, 2e-9, CASES))
    write(data, tmp_path / "storage.parquet")
    assert cell_of(tmp_path).storage[0].at_once == 1
    table = pq.read_table(tmp_path / "storage.parquet")
    seconds = table["seconds"].to_pylist()
    seconds[3] *= 0.5
    place = table.column_names.index("seconds")
    pq.write_table(table.set_column(place, table.field(place), pa.array(seconds, pa.float64())), tmp_path / "storage.parquet")
    with pytest.raises(FileError, match="sealed"):
        cell_of(tmp_path)
    with pytest.raises(SpecError, match="write, read, stage, samples"):
        dataset(ABOUT, [{**data.rows()[0], "op": "delete"}])


@pytest.mark.parametrize(
    ("asked", "classes"),
    [
        ({"job": JOB}, ("loader",)),
        ({"job": JOB, "checkpoints": "/data"}, ("checkpoint", "loader")),
        ({"job": JOB, "sets": ["reliability=llama3-2024"]}, ("checkpoint", "loader")),
        ({"model": "llama3.2-1b"}, ()),
        ({"model": "llama3.2-1b", "checkpoints": "/data"}, ("checkpoint",)),
    ],
)
def test_a_plan_has_what_the_job_reads_and_writes(asked: dict[str, Any], classes: tuple[str, ...]) -> None:
    made = wt.measure.plan(**asked, gpu="h100-sxm-80gb", budget="8m")
    names = [part.name for part in made.slices]
    assert sum(part.share for part in made.slices) == pytest.approx(1.0)
    if not classes:
        assert "storage" not in names
        return
    part = made.slices[names.index("storage")]
    assert part.classes == classes and names[names.index("storage") + 1 :] == ["collectives"] and part.share == pytest.approx(0.05)
    assert part.folder == asked.get("checkpoints", "") and slice_of(slice_table(part)) == part
    if asked.get("job"):
        assert part.shard_bytes == pytest.approx(5_048_576 * 12, rel=0.01)  # fp32 weights and Adam's two moments, one GPU


def test_datasets_of_files_are_no_kernels() -> None:
    data = dataset(ABOUT, made_rows(0.01, 1e-9, 2e-9, CASES))
    assert isinstance(data, Dataset) and not len(data.where(level="kernel"))


def test_rates_whose_check_does_not_hold_are_left_out(tmp_path: Path) -> None:
    step = {"what": "save, 3 ranks of 16 MiB", "measured": 0.1066, "predicted": 0.06, "stated_pct": 57.0}
    check = tmp_path / "check.json"
    check.write_text(json.dumps({"saves": [{**step, "holds": False}, {**step, "what": "load", "holds": True}]}), encoding="utf-8")
    assert reason_against_storage(tmp_path) == "save, 3 ranks of 16 MiB: took 0.107 s, where 0.06 s ±57 % were predicted"
    check.write_text(json.dumps({"saves": [{**step, "holds": True}]}), encoding="utf-8")
    assert reason_against_storage(tmp_path) == ""
    check.write_text("{}", encoding="utf-8")
    assert "no save" in reason_against_storage(tmp_path)
