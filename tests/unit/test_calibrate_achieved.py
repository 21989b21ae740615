"""Measured collectives → a cluster's factors: factors that made the measurements are found again, and predictions use them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from windtunnel.base.comm import Comm
from windtunnel.base.errors import SpecError
from windtunnel.calibrate.achieved import fit_achieved
from windtunnel.cli import app
from windtunnel.network import collective, flat_group
from windtunnel.records.measured_calls import CallTable, MeasuredCall
from windtunnel.spec import load_cluster
from windtunnel.spec.machine import Achieved, Cluster

SIZES = [2**power for power in range(10, 33, 2)]


def measured(cluster: Cluster, ranks: int, nodes: int) -> CallTable:
    group = flat_group(cluster, ranks, ranks // nodes)
    calls = tuple(MeasuredCall(float(size), collective(cluster, Comm.ALL_REDUCE, size, group).seconds) for size in SIZES)
    return CallTable(Comm.ALL_REDUCE, ranks, nodes, calls)


def with_factors(**factors: float) -> Cluster:
    return load_cluster("a100-ib").model_copy(update={"achieved": Achieved.model_validate(factors)})


def test_half_the_rate_across_nodes_is_found(tmp_path: Path) -> None:
    slow = with_factors(across_rate=0.5, across_hop=1.5)
    fitted = fit_achieved(load_cluster("a100-ib"), [measured(slow, 8, 1), measured(slow, 32, 4)])
    achieved = fitted.cluster.achieved
    assert achieved is not None
    assert achieved.across_rate == pytest.approx(0.5, rel=0.05) and achieved.across_hop == pytest.approx(1.5, rel=0.05)
    assert achieved.inside_rate == pytest.approx(1.0, rel=0.05)
    assert fitted.before.mean_abs_pct > 10.0 and fitted.after.mean_abs_pct < 2.0 and fitted.left_out.mean_abs_pct < 4.0


def test_factors_that_no_call_determines_stay_at_one() -> None:
    fitted = fit_achieved(load_cluster("a100-ib"), [measured(with_factors(inside_rate=0.8), 8, 1)])
    achieved = fitted.cluster.achieved
    assert achieved is not None and achieved.across_rate == pytest.approx(1.0) and achieved.across_hop == pytest.approx(1.0)
    assert fitted.errors["across_rate"] > 0.5


def test_rates_of_half_take_twice_the_time_of_large_calls() -> None:
    plain, slow = load_cluster("a100-ib"), with_factors(across_rate=0.5)
    group = flat_group(plain, 64)
    ratio = collective(slow, Comm.ALL_REDUCE, 2**34, group).seconds / collective(plain, Comm.ALL_REDUCE, 2**34, group).seconds
    assert ratio == pytest.approx(2.0, rel=0.02)


def test_a_factor_that_ends_at_the_limit_of_the_fit_is_named() -> None:
    other = fit_achieved(load_cluster("a100-ib"), [measured(with_factors(launch=400.0, inside_hop=400.0), 8, 1)])
    assert {"launch", "inside_hop"} & set(other.at_limit)
    assert fit_achieved(load_cluster("a100-ib"), [measured(with_factors(launch=4.0), 8, 1)]).at_limit == ()


def test_calls_that_the_cluster_cannot_run_are_named() -> None:
    mpi = CallTable(Comm.ALL_REDUCE, 8, 1, (MeasuredCall(1024.0, 1e-5),), "mpi")
    unknown = CallTable(Comm.ALL_REDUCE, 0, 0, (MeasuredCall(1024.0, 1e-5),))
    with pytest.raises(SpecError, match="MPI"):
        fit_achieved(load_cluster("a100-ib"), [mpi, unknown])


def test_a_log_and_a_cluster_give_a_cluster_file_that_predictions_take(tmp_path: Path) -> None:
    table = measured(with_factors(across_rate=0.5), 16, 2)
    ranks = "".join(f"#  Rank {rank:2d} Pid 1 on n{rank // 8} device {rank % 8} [0x00] A100-SXM4-80GB\n" for rank in range(16))
    rows = "".join(
        f"{call.bytes:.0f} {call.bytes / 4:.0f} float sum -1 {call.seconds * 1e6:.2f} 1.00 1.88 0\n" for call in table.calls
    )
    log, out = tmp_path / "all_reduce.log", tmp_path / "cluster.toml"
    log.write_text("# Using devices\n" + ranks + rows, encoding="utf-8")
    runner = CliRunner()
    result = runner.invoke(app, ["import", str(log), "--cluster", "a100-ib", "-o", str(out)])
    assert result.exit_code == 0, result.output
    written = load_cluster(out)
    assert written.achieved is not None and written.achieved.across_rate == pytest.approx(0.5, rel=0.1)

    def seconds(cluster: str) -> float:
        shown = runner.invoke(app, ["collective", "-c", cluster, "-n", "16", "-b", "1G"])
        row = re.search(r"1073741824 .*?-1 +([\d.]+)", shown.output)
        assert row is not None
        return float(row[1])

    assert seconds(str(out)) > 1.5 * seconds("a100-ib")


def test_ranks_on_nodes_of_their_own_are_predicted_over_the_network() -> None:
    """Eight ranks on eight nodes: every byte leaves its node, so the factor of the network alone is found."""
    slow = with_factors(across_rate=0.5)
    achieved = fit_achieved(load_cluster("a100-ib"), [measured(slow, 8, 8)]).cluster.achieved
    assert achieved is not None and achieved.across_rate == pytest.approx(0.5, rel=0.05)
