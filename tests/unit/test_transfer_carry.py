"""Which constants a GPU without measurements gets, with which error, and what `windtunnel profile transfer` prints."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from windtunnel.calibrate.transfer import best_matmuls
from windtunnel.calibrate.transfer.judge import stored_without
from windtunnel.cli import main
from windtunnel.compute import estimate
from windtunnel.compute.choose import choose
from windtunnel.compute.curves import Provenance
from windtunnel.compute.kernel_file import available, load
from windtunnel.compute.transfer.joint import stored_curves
from windtunnel.compute.transfer.law import carry_curves, reach, sheet
from windtunnel.spec import GPU, load_gpu
from windtunnel.spec.runtime import Host, Runtime
from windtunnel.workload.ops import Kind, Op, OpTable, Phase

RUNTIME = Runtime(framework="megatron", host=Host(launch=5e-6))
H100 = load_gpu("h100-sxm-80gb")


def test_a_measured_gpu_keeps_its_own_file_and_a_changed_sheet_does_not() -> None:
    assert choose(H100).kernels is load("h100-sxm-80gb") and choose(H100).provenance is Provenance.MODELLED
    changed = choose(H100.model_copy(update={"memory_bandwidth": 6.7e12}))
    assert changed.provenance is Provenance.TRANSFERRED
    assert changed.kernels.gemm == load("h100-sxm-80gb").gemm


@pytest.mark.parametrize("name", available())
def test_transfer_onto_the_same_gpu_is_the_identity(name: str) -> None:
    gpu, own = load_gpu(name), load(name)
    twin = carry_curves(own, gpu.model_copy(update={"achievable": {}})).kernels
    assert twin.gemm.fraction == pytest.approx(own.gemm.fraction, rel=1e-12)
    assert replace(twin.gemm, fraction=own.gemm.fraction) == own.gemm
    assert (twin.attention, twin.memory) == (own.attention, own.memory)


def test_errors_of_carried_constants_are_those_of_leaving_out() -> None:
    laws = stored_curves().error
    twin = choose(load_gpu("h200-sxm-141gb")).kernels.tables
    own = load("h100-sxm-80gb").tables
    assert twin["gemm"].error == max(own["gemm"].error, laws["gemm same"])
    assert twin["elementwise"].error == max(own["elementwise"].error, laws["memory same"])
    ada = choose(load_gpu("l40s"))
    assert ada.provenance is Provenance.TRANSFERRED and ada.kernels.tables["gemm"].error == pytest.approx(laws["gemm other"])
    assert list(ada.kernels.attention) == ["shared"]
    foreign = choose(load_gpu("mi300x"))
    assert foreign.provenance is Provenance.ASSUMED
    assert foreign.kernels.tables["gemm"].error == pytest.approx((laws["gemm other"] ** 2 + laws["foreign"] ** 2) ** 0.5)


def test_a_best_matmul_caps_the_rate_unless_it_is_another_gpus() -> None:
    mi300x = load_gpu("mi300x")
    assert reach(choose(mi300x).kernels.gemm) * sheet(mi300x).peak == pytest.approx(668.4e12)
    twice = H100.model_copy(update={"peak": {"bf16": 2 * 989.4e12}, "power_w": 1400.0})
    assert reach(choose(twice).kernels.gemm) == pytest.approx(reach(load("h100-sxm-80gb").gemm))  # 794.5 was measured on 989.4


def test_a_gpu_that_does_not_exist_works_from_a_data_sheet_alone() -> None:
    new = GPU(
        id="x1",
        name="X1",
        vendor="other",
        architecture="x",
        peak={"bf16": "3000TFLOP/s"},
        memory="200GB",
        memory_bandwidth="10TB/s",
    )
    rows = OpTable.of(
        [
            Op("g", Kind.GEMM, Phase.FORWARD, m=8192, n=8192, k=8192, flops=2.0 * 8192**3),
            Op("a", Kind.ATTENTION, Phase.FORWARD, batch=64, m=4096, n=4096, k=128, flops=2.0 * 64 * 4096.0**2 * 128),
            Op("n", Kind.NORM, Phase.FORWARD, m=8192, n=8192, bytes=4.0 * 8192**2),
        ]
    )
    found = estimate(rows, new, RUNTIME)
    assert (found.seconds > 0).all() and (found.provenance == Provenance.ASSUMED).all() and (found.relative_error > 0.2).all()
    assert "a100-sxm-80gb" in found.sources[found.source[0]]
    # Told its power, it is held to it: 3000 TFLOP/s at 700 W would take a process that nobody has.
    hot = estimate(rows, new.model_copy(update={"power_w": 700.0}), RUNTIME)
    assert hot.seconds[0] > 1.5 * found.seconds[0] and hot.seconds[1:] == pytest.approx(found.seconds[1:])


def test_best_matmuls_of_every_gpu_that_has_one() -> None:
    found = {one.gpu: one for one in best_matmuls(stored_without)}
    assert {"mi300x", "h100-sxm-80gb", "b200-sxm-180gb", "gaudi2"} <= set(found) and "a100-pcie-80gb" not in found  # one chip, once
    assert found["mi300x"].foreign and not found["b300-sxm"].foreign
    assert found["h100-sxm-80gb"].naive == pytest.approx(989.4e12 * 302e12 / 347e12, rel=0.2)
    assert abs(found["h100-sxm-80gb"].ours / 794.5e12 - 1) < 0.1


def test_command(tmp_path, capsys) -> None:
    where = tmp_path / "t.md"
    assert main(["profile", "transfer", "--leave", "h20", "--json", "-", "--markdown", str(where)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {row["gpu"] for row in found["results"]} == {"h20"} and {"naive", "two_formula", "ours"} <= {
        row["method"] for row in found["results"]
    }
    assert "| h20 | attention | 8 |" in where.read_text()
    assert main(["profile", "transfer"]) == 0
    assert "profile import" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--data", "nowhere"], "nowhere"),
        (["--leave", "h100"], "h100-sxm-80gb"),
        (["--write", "joint.json"], "Add --data"),
        (["--leave", "h20", "--write", "joint.json"], "no --leave"),
    ],
)
def test_errors(arguments: list[str], said: str, capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["profile", "transfer", *arguments]) == 2
    assert said in capsys.readouterr().err and not (tmp_path / "joint.json").exists()
