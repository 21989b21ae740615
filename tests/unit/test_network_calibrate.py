"""The fit finds constants that made the samples."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest
from network_machines import machine

from windtunnel.base.errors import SpecError, UnknownName
from windtunnel.calibrate.collectives import Sample, accuracy, fit, refit, samples_of
from windtunnel.calibrate.recipes import fits
from windtunnel.network import collective, flat_group
from windtunnel.network.closed.fitted import NETS, NODES, SENDS
from windtunnel.reality.rows.measurements import FOLDER
from windtunnel.reality.rows.table import read
from windtunnel.spec import load_cluster
from windtunnel.workload.ops import Comm


def _samples():
    cluster = machine("ampere", 8)
    shape = flat_group(cluster, 8)
    sizes = [2.0**k for k in range(8, 33)]
    seconds = [collective(cluster, Comm.ALL_REDUCE, s, shape).seconds for s in sizes]
    return [Sample(cluster, Comm.ALL_REDUCE, s, shape, t, "made") for s, t in zip(sizes, seconds, strict=True)]


def test_fit_recovers_moved_constants():
    wrong = replace(NODES["ampere"], launch=4e-6, ring=(0.262, 0.598, 0.5))
    nodes, _, _ = fit(_samples(), ["ampere/launch", "ampere/ring.2"], nodes={**NODES, "ampere": wrong})
    assert nodes["ampere"].launch == pytest.approx(NODES["ampere"].launch, rel=0.1)
    assert nodes["ampere"].ring[2] == pytest.approx(NODES["ampere"].ring[2], rel=0.02)


def test_accuracy_is_zero_on_its_own_predictions_and_sees_a_bias():
    assert all(row.mean_abs_pct < 1e-9 for row in accuracy(_samples()))
    slower = [replace(s, seconds=2 * s.seconds) for s in _samples()]
    assert {round(row.bias_pct) for row in accuracy(slower)} == {-50}


_MACHINES = {
    ("a100-sxm-80gb", "efa"): "aws-p4de",
    ("h100-sxm-80gb", "efa"): "aws-p5",
    ("h100-sxm-80gb", "ib"): "h100-ib",
    ("a100-sxm-80gb", "ib"): "a100-ib",
    ("h200-sxm-141gb", "ib"): "h200-ib",
    ("v100-sxm2-32gb", "ib"): "dgx-1v",
}
# Rows that their transcriber marks as disturbed only in part: words of the mark, and the sizes in MiB that can be used.
_USABLE = {
    "outlier at 8MiB": lambda mib: mib != 8,
    "except first sizes": lambda mib: mib >= 8,
    "NOISY": lambda mib: mib >= 512,
    "single-process": lambda mib: mib >= 512,
}


def _published(folder: Path) -> list[Sample]:
    clusters = {key: load_cluster(name) for key, name in _MACHINES.items()}
    found = []
    for row in csv.DictReader((folder / "reality" / "collectives.csv").read_text(encoding="utf-8").splitlines()):
        size = int(row["bytes"])
        usable = row["clean"] == "y" or any(word in row["quality"] and ok(size / 2**20) for word, ok in _USABLE.items())
        if size < 256 or not usable:
            continue
        cluster = clusters[row["gpu"], row["fabric"] or "ib"]
        chosen = {"NCCL_NVLS_ENABLE": 0} if "NVLS off" in row["algo_proto"] or row["algo_proto"] == "Ring" else {}
        gpus = int(row["gpus"])
        found.append(
            Sample(
                cluster,
                Comm[row["collective"].upper()],
                size,
                flat_group(cluster, gpus, gpus // int(row["nodes"])),
                float(row["time_us"]) * 1e-6,
                row["family"],
                chosen,
            )
        )
    return found


def _others() -> list[Sample]:
    """The catalogue's sweeps of other machines, of the families that constants were fitted on."""
    return samples_of([row for name in ("other", "exchange") for row in read(FOLDER / f"collectives_{name}.csv").collective])


def _stages(samples: list[Sample]) -> list[tuple[str, ...]]:
    """Constants of the stages whose families are all among the samples."""
    seen = {sample.family for sample in samples}
    return [stage.constants for stage in fits().collectives if seen >= set(stage.families)]


def test_stored_constants_of_other_machines_are_what_the_recipe_finds():
    samples = _others()
    _same(*refit(samples), _stages(samples))


def test_stored_constants_are_what_the_recipe_finds(shared):
    samples = [*_published(shared), *_others()]
    stages = _stages(samples)
    assert len(stages) == len(fits().collectives)
    _same(*refit(samples), stages)


def _same(nodes, nets, sends, stages):
    assert len(stages) > 4
    for free in stages:
        for name in free:
            table, field = name.split("/")
            field, _, part = field.partition(".")
            both = (NODES, NETS, SENDS), (nodes, nets, sends)
            for shared in table.split("+"):
                stored, found = (getattr({**n, **t, "sends": s}[shared], field) for n, t, s in both)
                if part:
                    stored, found = stored[int(part)], found[int(part)]
                assert found == pytest.approx(stored, rel=0.1, abs=0.5e-6), name


def test_one_value_for_several_tables_is_fitted_for_all():
    wrong = {name: replace(NODES[name], launch=9e-6) for name in ("ampere", "volta")}
    nodes, _, _ = fit(_samples(), ["ampere+volta/launch"], nodes={**NODES, **wrong})
    assert nodes["ampere"].launch == nodes["volta"].launch == pytest.approx(NODES["ampere"].launch, rel=0.1)


def test_errors_on_published_runs(shared):
    """Median error of sizes from 1 MiB on and below 64 KiB, in percent."""
    for row in accuracy(_published(shared)):
        assert row.median_abs_pct < {">= 1 MiB": 8.0, "< 64 KiB": 20.0}.get(row.band, 25.0), row


def test_bad_names():
    with pytest.raises(UnknownName):
        fit(_samples(), ["pascal/launch"])
    with pytest.raises(UnknownName):
        fit(_samples(), ["ampere/lunch"])
    with pytest.raises(SpecError):
        fit([], ["ampere/launch"])
