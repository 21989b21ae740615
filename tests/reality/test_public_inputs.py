"""What practitioners pasted in public, with what they measured: `../shared/public_inputs/`, which lies beside the project on its
developers' machines. Skipped elsewhere. Each case says what it assumes where the source is silent."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from windtunnel.cli import app
from windtunnel.formats.door import read_files
from windtunnel.jobs.load import load_described_job
from windtunnel.predict import predict

FOLDER = Path(__file__).parents[3] / "shared" / "public_inputs"
COMMANDS = Path(__file__).with_name("public_cases.toml")
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="no shared/public_inputs beside the project")
GIB = 2**30


@dataclass(frozen=True)
class Case:
    """A job that ran, or ran out of memory. `peak` GiB of PyTorch's tensors, `reserved` GiB of its allocator, `step` seconds."""

    files: tuple[str, ...]
    on: str
    sets: tuple[str, ...] = ()
    fits: bool | None = None
    peak: float | None = None
    reserved: float | None = None
    step: float | None = None
    dense: bool = True
    why: str = field(default="", compare=False)
    misses: str = ""
    """What of it is known to be wrong, and why as far as that is known."""

    @property
    def name(self) -> str:
        return f"{self.files[0]} on {self.on} {' '.join(self.sets)}"


OPEN_R1 = ("09_openr1_sft.yaml", "09_openr1_accelerate_fsdp.yaml")
CASES = [
    Case(("06_llamafactory_default_gc.yaml",), "l20", ("cluster.gpus=4",), fits=True),
    Case(("06_llamafactory_default_gc.yaml",), "l20", ("cluster.gpus=4", "plan.micro_batch=2", "plan.global_batch=64"), fits=False),
    Case(("06b_llamafactory_explicit_not_disabled.yaml",), "l20", ("cluster.gpus=4",), fits=True),
    Case(("06c_llamafactory_full_24GB.yaml",), "rtx-3090", ("cluster.gpus=8",), fits=False,
         misses="0.06 GiB left in the update: fragments beside the two blocks of a group's gradients are not counted"),
    Case(OPEN_R1, "h100-ib", fits=True),
    Case(OPEN_R1, "h100-ib", ("plan.seq=32768",), fits=False),
    Case(OPEN_R1, "h100-ib", ("cluster.gpus=8", "plan.seq=10240", "plan.global_batch=64"), fits=True),
    Case(OPEN_R1, "h100-ib", ("cluster.gpus=8", "plan.seq=20480", "plan.global_batch=64"), fits=False),
    Case(("10_trl_1m_sft.yaml", "10_trl_1m_accelerate_cp.yaml"), "h100-ib", ("plan.offload.activations=36",), fits=True,
         peak=56.2e9 / GIB, step=372.0, why="the checkpoints of all layers were offloaded"),
    Case(("12_megatron_swift_flags.sh",), "a100-ib", ("cluster.gpus=16",), fits=True, reserved=60.0),
    Case(("13_titan_dsv3_16b_lbs8.toml",), "h100-ib", ("cluster.gpus=8",), fits=False),
    Case(("13_titan_dsv3_16b_lbs8.toml",), "h100-ib", ("cluster.gpus=8", "plan.micro_batch=4", "plan.global_batch=32"), fits=True,
         reserved=73.3, step=4 * 4096 / 11600, dense=False, why="the batch that ran is taken as 4"),
    Case(("13b_titan_dsv3_16b_b200_ep1_noac.toml",), "b200-ib", ("cluster.gpus=8",), fits=True),
    Case(("14_titan_llama3_8b_fsdp8.toml",), "grand-teton-96gb", ("cluster.gpus=8",), fits=True, reserved=47.7, step=8192 / 6500),
    Case(("15_axolotl_gptoss20b_fft.yaml",), "l40s", ("cluster.gpus=8",), fits=True, reserved=36.0,
         misses="20 % low: 7 GiB that no sharding divides are not found"),
    Case(("15_axolotl_gptoss20b_fft.yaml",), "a100-ib", ("cluster.gpus=4",), fits=True, reserved=46.0),
    Case(("15b_axolotl_gptoss20b_offload.yaml",), "rtx-3090", ("cluster.gpus=2",), fits=True, reserved=21.0,
         misses="22 % low, as without offload"),
    Case(("08_qlora_axolotl_70b.yml",), "rtx-3090", ("cluster.gpus=2",), fits=True),
]  # fmt: skip
ANSWERED = [
    (("07_moe_lora_all_gptoss.yaml",), "h100-nvl"), (("07b_moe_lora_linear_qwen3moe.yml",), "h100-ib"),
    (("07c_moe_lora_axolotl_gptoss20b.yaml",), "h100-ib"), (("08b_qlora_llamafactory_72b.yaml",), "h100-ib"),
    (("19_hub_name_coder32b.yaml",), "h100-ib"), (("04b_verl_launch.sh",), "h100-ib"),
    (("11b_hf_trainer_deepspeed.sh",), "h100-ib"),
    (("11c_llamafactory_cli.sh",), "h100-ib"), (("11d_swift_sft.sh",), "h100-ib"), (("11e_trl_cli.sh",), "h100-ib"),
]  # fmt: skip
READ = [
    "01_watchdog_torch26.log", "01c_watchdog_two_ops_synthetic.log", "02_nccl_ras_mismatch.txt", "03_ms_swift_sft.log",
    "03b_ms_swift_k8s_prefix.log", "03c_megatron_swift_synthetic.log", "03d_trl_grpo_synthetic.log", "03e_axolotl_synthetic.log",
    "03f_levanter_progress_synthetic.log", "04_verl_console.log", "05_nanochat.log", "16_topo_b200_gpu2_without_nvlink.txt",
    "17_nccl_tests_midline_prefix.log", "18_torch_oom_message.log", "21_nccl_tests_no_header_h20.log", "22_spark_all_gather.log",
    "a_06_torchtune.log", "a_07_prime_rl.log", "a_07c_prime_rl_old.log", "a_08_automodel.log", "a_11_axolotl_mem.log",
    "a_33_profiler_table.txt", "a_35_colossalai.log", "a_var_olmo_core.log", "a_var_xtuner_v1.log",
    "b_41_verl_qwen3vl30b_console_lines.log", "b_41d_broken.log", "b_49_verl_single_npu.log", "b_81b_workline.log",
    "b_81c_desync_only.log", "b_81e_pg_status.log", "b_84_straggler_report.log", "b_85_vllm_tp_hang.log", "b_91_xid.log",
    "b_92_fr_trace.txt",
]  # fmt: skip


def _job(files: tuple[str, ...], on: str, sets: tuple[str, ...], folder: Path):  # type: ignore[no-untyped-def]
    from windtunnel.jobs.load import load_parts

    paths = [str(FOLDER / name) for name in files]
    if len(paths) == 1:
        return load_described_job(paths[0], list(sets), on).job
    return load_parts(paths, list(sets), on).job


def _marked(case: object, name: str, misses: str) -> object:
    marks = [pytest.mark.xfail(reason=misses, strict=True)] if misses else []
    return pytest.param(case, marks=marks, id=name)


@pytest.mark.parametrize("case", [_marked(case, case.name, case.misses) for case in CASES])
def test_a_job_that_people_ran(case: Case, tmp_path: Path) -> None:
    answer = predict(_job(case.files, case.on, case.sets, tmp_path))
    peak, reserved = (max(getattr(stage, name) for stage in answer.memory) / GIB for name in ("allocated", "reserved"))
    print(json.dumps({"fits": answer.fits, "peak": peak, "reserved": reserved, "step": answer.step_time_s}))
    assert case.fits is None or answer.fits is case.fits
    if case.peak is not None:
        assert peak == pytest.approx(case.peak, rel=0.10)
    if case.reserved is not None:
        assert reserved == pytest.approx(case.reserved, rel=0.10)
    if case.step is not None and case.dense:
        assert answer.step_time_s == pytest.approx(case.step, rel=0.15)


@pytest.mark.parametrize(("files", "on"), ANSWERED)
def test_a_configuration_is_answered(files: tuple[str, ...], on: str, tmp_path: Path) -> None:
    assert predict(_job(files, on, ("cluster.gpus=8",), tmp_path)).step_time_s > 0


@pytest.mark.parametrize("name", READ)
def test_a_log_is_read(name: str) -> None:
    assert read_files([FOLDER / name]).facts


def _quantity(text: str) -> float:
    return float(text.rstrip(" k").replace(",", "")) * (1e3 if text.endswith("k") else 1.0)


@pytest.mark.parametrize(
    "case", [_marked(case, case["id"], case.get("misses", "")) for case in tomllib.loads(COMMANDS.read_text("utf-8"))["case"]]
)
def test_what_was_asked_in_public(case: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(FOLDER)
    monkeypatch.setenv("COLUMNS", "240")
    result = CliRunner().invoke(app, shlex.split(case["run"]))
    print(result.output)
    assert result.exit_code == 0
    for pattern in case.get("says", []):
        assert re.search(pattern, result.output), pattern
    for pattern in case.get("not", []):
        assert not re.search(pattern, result.output), pattern
    if "number" in case:
        pattern, least, most = case["number"]
        said = re.search(pattern, result.output)
        assert said and least <= _quantity(said[1]) <= most, said
