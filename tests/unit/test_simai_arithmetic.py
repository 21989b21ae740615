"""SimAI's analytical arithmetic, by its formulas worked out by hand, and against files that it wrote."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from windtunnel_oracles.simai.busbw import bus_bandwidth
from windtunnel_oracles.simai.run import DEFAULT, EndToEnd, csv_lines, differences, end_to_end, summary_of
from windtunnel_oracles.simai.setting import SimaiSetting, scale_ns, ticks

from windtunnel.base.errors import SpecError
from windtunnel.cli import main
from windtunnel.formats.simulators.simai.settings import MULTI, ratio, read_table
from windtunnel.formats.simulators.simai.workload import SimaiLayer, SimaiWorkload, read_workload

POLICY = "HYBRID_TRANSFORMER_FWD_IN_BCKWD"
MIB = 2**20


def run(call: tuple[str, int], at: int = 0, setting: SimaiSetting | None = None, **keys: int) -> EndToEnd:
    calls, sizes = ["NONE"] * 3, [0] * 3
    calls[at], sizes[at] = call
    layer = SimaiLayer("mlp_layer", (0, 0, 0), (calls[0], calls[1], calls[2]), (sizes[0], sizes[1], sizes[2]), 100)
    return end_to_end(SimaiWorkload(POLICY, keys, (layer,)), setting or SimaiSetting(8, nvlink=360, nic=48.5))


def test_an_all_reduce_inside_a_server() -> None:
    """16 MiB = 1/64 GiB at 360 "GB/s", twice 7/8 of it: 75.954861 us, cut to ns."""
    assert run(("ALLREDUCE", 16 * MIB), tp=8).lines[0].calls[0] == 75_954


def test_a_gather_takes_the_ratio_table() -> None:
    """The table has 0.45 of 0.81 for 16 MiB inside a server: 3/4 of 1/64 s over 360 x 0.5556 = 200, which is 58.59 us."""
    assert run(("ALLGATHER", 16 * MIB), tp=4).lines[0].calls[0] == pytest.approx(58_593, abs=1)


@pytest.mark.parametrize(("ranks", "microseconds"), [(8, 15), (24, 0), (128, 320)])
def test_small_calls_take_a_constant_of_some_group_sizes(ranks: int, microseconds: int) -> None:
    result = run(("ALLREDUCE", MIB // 2), tp=ranks, setting=SimaiSetting(128 * 24, nvlink=360, nic=48.5))
    assert result.tp == microseconds
    assert result.lines[0].calls[0] == microseconds * 1000


def test_bandwidths() -> None:
    setting = SimaiSetting(64, nvlink=360, nic=48.5)
    assert bus_bandwidth(setting, "allreduce", 1, 8, 8) == (360, False)
    assert bus_bandwidth(setting, "allgather", 4, 1, 1) == (48.5, False)
    assert bus_bandwidth(setting, "allgather", 4, 8, 8) == (388, False)  # 8 x 48.5 > 360, which counts 8/7 then: 411
    assert bus_bandwidth(setting, "allgather", 4, 8, 4) == (194, False)
    assert bus_bandwidth(setting, "alltoall", 2, 8, 8)[0] == pytest.approx(48.5 * 15 / 8)
    assert bus_bandwidth(setting, "allgather", 2, 4, 0) == (-1, False)
    assert bus_bandwidth(setting, "allreduce", 1, 1, 8) == (0, False)


def test_ratios_between_sizes_and_beyond_them() -> None:
    assert ratio(DEFAULT.nic, 24 * MIB, 2) == pytest.approx((0.32 + 0.47) / 2 / 0.96)
    assert ratio(DEFAULT.nic, MIB, 3) == pytest.approx(0.05 / 0.96)  # other node counts: the column of 16
    assert ratio(DEFAULT.alltoall, 16 * MIB, MULTI) == pytest.approx(0.86 / 0.96)
    with pytest.raises(SpecError, match="17179869184"):
        ratio(DEFAULT.nic, 2**35, 1)


def test_half_a_nic_is_none_and_its_time_is_lost() -> None:
    setting = SimaiSetting(16, nics_per_server=4, nvlink=360, nic=48.5)
    result = run(("REDUCESCATTER", 64 * MIB), at=2, setting=setting, tp=8)
    assert result.dp == 0 and result.lines[0].calls[2] > 2**63
    source = SimaiWorkload(POLICY, {"tp": 8}, (result.lines[0].layer,))
    (lost,) = [one for one in differences(source, setting, result) if "whole number" in one.what]
    assert lost.count == 1
    assert lost.microseconds == pytest.approx(64 / 1024 / 24.25 / 2 * 1e6, abs=1)  # half of 48.5, one of two parts


@pytest.mark.parametrize(("overlap", "microseconds"), [(1.0, 0), (0.5, 3_000_000), (0.0, 0)])
def test_messages_between_stages(overlap: float, microseconds: int) -> None:
    """48 MiB, 4 micro batches, 8 layers: 2 x 8 x 4 x 0.046875 s at 0.5 "GiB/s", half of it hidden."""
    setting = SimaiSetting(16, nvlink=360, nic=48.5, pp_overlap=overlap)
    assert run(("NONE", 0), setting=setting, tp=8, pp=2, ga=4, vpp=8, pp_bytes=50_331_648).pp == microseconds


def test_the_bubble_leaves_the_embedding_out() -> None:
    layers = tuple(SimaiLayer(name, (4000, 2000, 2000), ("NONE",) * 3, (0, 0, 0), 1) for name in ("embedding_layer", "mlp_layer"))
    result = end_to_end(SimaiWorkload(POLICY, {"tp": 1, "pp": 3, "ga": 2, "vpp": 2}, layers), SimaiSetting(3, nvlink=1, nic=1))
    assert (result.compute, result.bubble, result.total) == (16, 4, 20)


def test_checkpoints_run_forward_again() -> None:
    layers = tuple(SimaiLayer("mlp_layer", (1000, 0, 0), ("NONE",) * 3, (0, 0, 0), 1) for _ in range(4))
    source = SimaiWorkload(POLICY, {}, layers, checkpoints=(1,), initiates=(3,))
    assert end_to_end(source, SimaiSetting(1)).compute == 6


def test_numbers_as_the_processor_converts_them() -> None:
    assert ticks(-1.0) == 2**64 - 1 and ticks(float("nan")) == 2**63 and ticks(float("inf")) == 0
    assert scale_ns(2**24 + 1, 1.0) == 2**24  # single precision
    assert scale_ns(2**64 - 1000, 1.0) == 0


@pytest.mark.parametrize(
    ("setting", "field"),
    [(SimaiSetting(8, dp_overlap=2), "--dp-overlap"), (SimaiSetting(0), "--gpus"), (SimaiSetting(8, gpu_type="V100"), "--gpu-type"),
     (SimaiSetting(4), "--gpus")],
)  # fmt: skip
def test_options_without_an_answer(setting: SimaiSetting, field: str) -> None:
    with pytest.raises(SpecError, match=field):
        run(("NONE", 0), setting=setting, tp=8)


def test_other_policies_are_refused() -> None:
    with pytest.raises(SpecError, match="policy"):
        end_to_end(SimaiWorkload("MICRO", {}, ()), SimaiSetting(8))


def test_a_table_of_ratios(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text("Size,1 Node\n1024,0.5,,,,,,,,1\n2048,1,1,1,1,1,1,1,1,1,,\n")
    assert read_table(path)[0][:3] == (1024, 0.5, 1.0)
    path.write_text("Size,1 Node\n1024,0.5,0,1,1,1,1,1,1,1\n")
    with pytest.raises(SpecError, match="line 2"):
        read_table(path)


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "w.txt"
    path.write_text(f"{POLICY} model_parallel_NPU_group: 8 all_gpus: 8\n1\nmlp -1 1000 ALLREDUCE {16 * MIB} 0 NONE 0 0 NONE 0 1\n")
    assert main(["simai", str(path), "--nvlink", "360", "--nic", "48.5", "--json", "-"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["microseconds"]["total"] == pytest.approx(76.954)
    assert answer["summary"]["Total time"] == "77"
    assert answer["differences"][0]["count"] == 1
    assert main(["simai", str(path), "--gpus", "7"]) == 2


def cases(folder: Path) -> list[tuple[Path, SimaiWorkload, SimaiSetting]]:
    """Results in the samples, with the workload and the options that their names stand for."""
    files = [*(folder / "simai_aicb").glob("*.txt*"), *(folder / "aicb_generated").glob("*.txt.gz")]
    sources = {path.name.split(".txt")[0]: path for path in files}
    out = []
    for result in sorted((folder / "simai_analytical_results").glob("*-EndToEnd.csv.gz")):
        name = result.name.removesuffix("-EndToEnd.csv.gz")
        match = re.search(r"_?_nv([\d.]+)_nic([\d.]+)$", name)
        base = name[: match.start()] if match else name
        rates = (float(match[1]), float(match[2])) if match else (150, 23.5) if name == "exampleA100" else (360, 48.5)
        base = {"micro": "microAllReduce", "example": "workload_analytical", "exampleA100": "workload_analytical",
                "exampleovl": "workload_analytical"}.get(base, base.removeprefix("hdr_"))  # fmt: skip
        source = read_workload(sources[base])
        gpus = source.keys.get("gpus", 128)
        if name.startswith("hdr_"):
            source = replace(source, keys={**source.keys, "vpp": 40})
        setting = SimaiSetting(gpus, nvlink=rates[0], nic=rates[1])
        if name == "exampleovl":
            setting = replace(setting, dp_overlap=0.5, ep_overlap=0.3, tp_overlap=0.2, pp_overlap=0.0)
        out.append((result, source, setting))
    return out


def test_files_that_simai_wrote(shared: Path) -> None:
    checked = cases(shared / "samples/2_text_workloads")
    assert len(checked) >= 15
    for path, source, setting in checked:
        with gzip.open(path, "rt") as file:
            wanted = file.read().splitlines()
        result = end_to_end(source, setting)
        assert list(csv_lines(result, path.name.removesuffix("EndToEnd.csv.gz"))) == wanted, path.name
        assert summary_of(result, "x")["Total time"] == wanted[1].rpartition(", ")[2]
