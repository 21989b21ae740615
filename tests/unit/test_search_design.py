"""Designs: the sampler finds the known optimum, a study goes on, what cannot be a range is refused."""

import sys
import tomllib
from collections import Counter

import pytest

from windtunnel.base.errors import SpecError, UnknownName
from windtunnel.cli import main
from windtunnel.search.design import Premium, _keep, design, field_of
from windtunnel.search.space import Space
from windtunnel.spec import dump_job, load_job

JOB = load_job("llama3-8b-8xh100", ["plan.global_batch=32", "cluster.price_per_gpu_hour=2"])
TABLE = tomllib.loads(dump_job(JOB))
BANDWIDTH, SIZE = "cluster.node.gpu.memory_bandwidth", "cluster.node.gpu.memory"


def space_of(sets):
    return Space(load_job(TABLE, sets), {"plan.tp": (1, 2), "plan.micro_batch": (1, 2), "plan.recompute": ("none", "full")})


@pytest.fixture(scope="module", autouse=True)
def _optuna():
    pytest.importorskip("optuna")


def test_a_range_is_read_in_its_unit():
    axis = field_of(JOB, BANDWIDTH, "2TB/s..8TB/s")
    assert (axis.low, axis.high, axis.unit, axis.scale, axis.whole) == (2.0, 8.0, "TB/s", 1e12, False)
    assert field_of(JOB, BANDWIDTH, "2..8TB/s") == axis
    assert field_of(JOB, "cluster.node.nic.count", "1..8").whole
    assert field_of(JOB, "cluster.node.gpus", "4,8").values == ("4", "8")


@pytest.mark.parametrize(
    ("path", "text", "words"),
    [
        (BANDWIDTH, "8TB/s..2TB/s", "from a lower to an upper"),
        (BANDWIDTH, "2TB/s..9000GB/s", "both ends in the same unit"),
        (BANDWIDTH, "2..8", "unit"),
        (BANDWIDTH, "fast..faster", "two numbers"),
        ("cluster.node.gpu.memory_bandwith", "2TB/s..8TB/s", "memory_bandwidth"),
        ("runtime.framework", "1..2", "runtime.framework"),
    ],
)
def test_what_is_no_range_is_refused(path, text, words):
    with pytest.raises(SpecError, match=words):
        field_of(JOB, path, text)


def test_more_bandwidth_is_better_and_its_premium_is_paid():
    """Without a price, the fastest memory of those that were tried; with one, dollars = time x GPUs x the price by hand."""
    axis = field_of(JOB, BANDWIDTH, "1TB/s..8TB/s")
    result = design(space_of, [axis], trials=6)
    assert result.trials == 6
    tried = [float(one.fields[BANDWIDTH].removesuffix("TB/s")) for one in result.designs]
    assert tried == sorted(tried, reverse=True)
    again = design(space_of, [axis], trials=6)
    assert [one.values for one in again.designs] == [one.values for one in result.designs]  # seeded

    paid = design(space_of, [axis], "time,dollars", trials=6, premiums=[Premium(axis, 0.5)])
    for one in paid.designs:
        price = 2.0 + 0.5 * (float(one.fields[BANDWIDTH].removesuffix("TB/s")) - JOB.cluster.gpu.memory_bandwidth / 1e12)
        tokens = 32 * JOB.plan.seq
        assert one.values[1] == pytest.approx(one.values[0] * 8 * price / 3600 / tokens * 1e6)
    front = paid.designs[: paid.front]
    assert not any(a.values[0] <= b.values[0] and a.values[1] <= b.values[1] for a in front for b in front if a is not b)


def test_a_study_goes_on(tmp_path):
    axes = [field_of(JOB, SIZE, "4GiB..120GiB"), field_of(JOB, BANDWIDTH, "2TB/s..8TB/s")]
    url = f"sqlite:///{tmp_path}/design.db"
    first = design(space_of, axes, trials=6, study=url, fixed_plan=True)
    asked = []
    again = design(space_of, axes, trials=14, study=url, fixed_plan=True, stop=lambda share: asked.append(share) or False)
    assert len(asked) == 8
    assert {one.number for one in first.designs} <= {one.number for one in again.designs}
    assert again.trials == 14 == len(again.designs) + sum(again.failed.values())
    assert again.failed["no plan fits the memory"] > 0
    assert sum(again.importance.values()) == pytest.approx(1.0) or len(again.designs) < 12
    with pytest.raises(SpecError, match="a study of the same job"):
        design(space_of, axes[:1], trials=6, study=url, fixed_plan=True)
    with pytest.raises(SpecError, match="optuna can open"):
        design(space_of, axes, trials=6, study=f"sqlite:///{tmp_path}/none/design.db")
    with pytest.raises(SpecError, match="sqlite:///"):
        design(space_of, axes, trials=6, study="design.db")


def test_no_design_fits():
    with pytest.raises(SpecError, match="no plan fits"):
        design(space_of, [field_of(JOB, SIZE, "1GiB..2GiB")], trials=3)


def test_the_verb(capsys):
    sets = ["--set", f"{BANDWIDTH}=2TB/s..8TB/s", "--set", "plan.global_batch=32", "--trials", "3", "--fixed-plan"]
    assert main(["design", "llama3-8b-8xh100", *sets]) == 0
    assert "Best designs" in capsys.readouterr().out
    assert main(["design", "llama3-8b-8xh100"]) == 2
    assert "a field to vary" in capsys.readouterr().err


def test_optuna_that_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(SpecError, match=r"pip install 'windtunnel\[search\]'"):
        design(space_of, [field_of(JOB, SIZE, "80GiB..90GiB")], trials=3)


def test_an_unknown_objective():
    with pytest.raises(UnknownName):
        design(space_of, [field_of(JOB, SIZE, "80GiB..90GiB")], "speed", trials=3)


def test_a_kept_trial_without_a_plan_counts_once():
    failed = Counter()
    for kept in ({"refused": "no plan fits the memory"}, {"refused": "no plan fits the memory"}, {}):
        _keep(None, 1, kept, [], failed)
    assert failed == {"no plan fits the memory": 2, "stopped in the middle": 1}
