"""Lines of Megatron-Bridge's performance scripts, recipes that NeMo's helper tunes, and scripts that start either."""

from __future__ import annotations

from pathlib import Path

import pytest

from windtunnel.base.errors import SpecError
from windtunnel.formats import import_job
from windtunnel.jobs.load import load_described_job as job_of

PERFORMANCE = "python scripts/performance/setup_experiment.py -m deepseek -mr deepseek_v3 -g gb200 -c fp8_mx"


def test_a_line_of_the_performance_scripts_starts_from_its_recipe(tmp_path: Path) -> None:
    (tmp_path / "launch.sh").write_text(f"{PERFORMANCE} -ng 256\n", encoding="utf-8")
    job = job_of(str(tmp_path / "launch.sh"), on="gb200-nvl72").job
    assert job.model.name == "deepseek-v3" and job.model.mtp_layers == 1
    plan, runtime = job.plan, job.runtime
    assert (plan.tp, plan.pp, plan.vpp, plan.ep, plan.global_batch, plan.seq) == (1, 4, 4, 64, 4096, 4096)
    assert runtime.precision == "mxfp8" and runtime.launch == "cuda_graph" and job.cluster.gpus == 256


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("-ng 256 -gb 2048 -mb 2", {"global_batch": 2048, "micro_batch": 2}),
        ("-ng 512", {"global_batch": 8192, "ep": 64}),  # twice the ranks, twice the batch
        ("-ng 256 -pp 2 -vp 8", {"pp": 2, "vpp": 8}),
        ("-ng 256 --pipeline_model_parallel_size=1", {"pp": 1, "vpp": 1}),  # no virtual stages of one stage
        ("-ng 256 model.expert_model_parallel_size=32 ++train.global_batch_size=1024", {"ep": 32, "global_batch": 1024}),
        ("-ng 256 --recompute_num_layers 1 --custom_mounts $HOME/x $NOTHING", {"recompute": "full"}),
    ],
)
def test_options_and_fields_change_the_recipe(options: str, expected: dict[str, object]) -> None:
    imported = import_job(f"{PERFORMANCE} {options}")
    assert imported.plan is not None
    assert {name: getattr(imported.plan, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("line", "model", "plan"),
    [
        ("--model_name gpt_oss --model_size 120b --gpu h100 --compute_dtype bf16 --num_gpus 64", "gpt-oss-120b", (1, 4, 8)),
        ("-mr llama3_70b -g h100 -c fp8 -fr cs -ng 64 -cv v2", "llama3-70b", (4, 8, 1)),
        ("-mr qwen2_7b -g h100 -ng 8 -tp 2 -gb 64", "qwen2.5-7b", (2, 1, 1)),  # without a recipe of its own
    ],
)
def test_older_names_and_models_without_a_recipe(line: str, model: str, plan: tuple[int, int, int]) -> None:
    imported = import_job(f"python run_script.py {line}")
    assert imported.model.name == model and imported.plan is not None
    assert (imported.plan.tp, imported.plan.pp, imported.plan.ep) == plan


def test_adapters_of_a_line() -> None:
    imported = import_job("python run_script.py -mr llama3_70b -g h100 -c bf16 -ng 8 --task lora")
    assert imported.model.lora is not None and imported.model.lora.rank == 32


def test_a_line_says_which_variables_it_needs() -> None:
    with pytest.raises(SpecError, match="what WIDTH, KIND stand for"):
        import_job("python setup_experiment.py -mr llama3_8b -tp $WIDTH -g ${KIND} -ng $GPUS --max_steps $STEPS")
    for words, said in (("-mr nobody_7b", "model"), ("-mr llama3_8b -c fp9", "fp8_cs"), ("-mr llama3_8b --task sing", "pretrain")):
        with pytest.raises(SpecError, match=said):
            import_job(f"python setup_experiment.py {words} -g h100 -ng 8")


def test_a_line_inside_a_script_that_a_launcher_writes(tmp_path: Path) -> None:
    (tmp_path / "launch.sh").write_text(
        "run=$(cat <<- EOM\n  cd /opt ;\n  numactl --cpunodebind=\\$((LOCAL_RANK/2)) \\\n  python run_script.py --gpu gb200 \\\n"
        "    --model_recipe_name qwen3_30b_a3b --num_gpus 8 --compute_dtype fp8_mx --micro_batch_size 4\nEOM\n)\n"
        'echo "$run" > run.sh\ntorchrun --nproc-per-node=4 --nnodes=2 --no-python bash run.sh\n',
        encoding="utf-8",
    )
    (tmp_path / "job.sbatch").write_text(
        "#SBATCH --nodes=2\nexport NNODES=2\nsrun --container-image=$IMAGE bash -c 'export X=1; ./launch.sh'\n", encoding="utf-8"
    )
    for name in ("launch.sh", "job.sbatch"):
        imported = import_job(tmp_path / name)
        assert imported.model.name == "qwen3-30b-a3b" and imported.plan is not None
        assert (imported.plan.ep, imported.plan.micro_batch, imported.plan.dp) == (8, 4, 8)


TUNED = """
from nemo.collections.llm.recipes import llama31_8b
from scripts.performance.helpers import set_primary_perf_configs
import nemo_run as run

def recipe(profile: bool = False) -> run.Partial:
    pretrain = llama31_8b.pretrain_recipe(performance_mode=True)
    nodes = 2
    pretrain = set_primary_perf_configs(
        pretrain, "pre_train", num_nodes=nodes, num_gpus_per_node=8, mbs=2, gbs=128, max_steps=50, tp_size=2, pp_size=1,
        cp_size=1, vp_size=1, ep_size=1, compute_dtype="fp8", fp8_recipe="cs", recompute_modules=["core_attn"],
    )
    pretrain.trainer.limit_val_batches = 0.0
    return pretrain

if __name__ == "__main__":
    run.cli.main(llm.pretrain, default_factory=recipe)
"""


def test_a_recipe_that_nemos_performance_helper_sets(tmp_path: Path) -> None:
    (tmp_path / "bench.py").write_text(TUNED, encoding="utf-8")
    imported = import_job(tmp_path / "bench.py")
    plan, runtime = imported.plan, imported.runtime
    assert imported.model.name == "llama3.1-8b" and plan is not None and runtime is not None
    assert (plan.tp, plan.dp, plan.micro_batch, plan.global_batch, plan.seq) == (2, 8, 2, 128, 8192)
    assert runtime.precision == "fp8" and plan.recompute == "selective"


def test_a_script_that_starts_a_recipe_through_nemo_run(tmp_path: Path) -> None:
    (tmp_path / "bench.py").write_text(TUNED, encoding="utf-8")
    script = tmp_path / "launch.sh"
    script.write_text(
        'torchrun --nproc-per-node=8 ${RECIPE} --factory "recipe()" trainer.num_nodes=4 data.global_batch_size=256\n',
        encoding="utf-8",
    )
    with pytest.raises(SpecError, match="a recipe beside the script.*RECIPE=bench.py launch.sh"):
        import_job(script)
    text = script.read_text(encoding="utf-8").replace("${RECIPE}", "bench.py")
    script.write_text(text, encoding="utf-8")
    imported = import_job(script)
    assert imported.plan is not None and (imported.plan.dp, imported.plan.global_batch) == (16, 256)


@pytest.mark.parametrize(
    ("options", "stages"),
    [
        ("", (4,) * 15 + (1,)),  # pp 4 and vpp 4, as the recipe
        (
            "-pp 16 model.virtual_pipeline_model_parallel_size=null comm_overlap.overlap_moe_expert_parallel_comm=False",
            (4,) * 15 + (1,),
        ),
        (
            "-pp 8 model.virtual_pipeline_model_parallel_size=null comm_overlap.overlap_moe_expert_parallel_comm=False",
            (8,) * 7 + (5,),
        ),
        ("-pp 4 -vp 2", (8,) * 7 + (5,)),
        ("-pp 4 -vp 4 --pipeline_model_parallel_layout 'Et*3|(t*4|)*14ttmL'", (3,) + (4,) * 14 + (2,)),
    ],
)
def test_the_recipes_builder_lays_its_layers_out(options: str, stages: tuple[int, ...]) -> None:
    imported = import_job(f"{PERFORMANCE} -ng 256 {options}")
    assert imported.plan is not None and imported.plan.stages == stages


def test_a_line_turns_graphs_off_and_says_what_multiplies_in_8_bits() -> None:
    usual = import_job("python run_script.py -mr qwen3_30b_a3b -g h100 -c fp8_cs -ng 16").runtime
    off = import_job("python run_script.py -mr qwen3_30b_a3b -g h100 -c fp8_cs -ng 16 --cuda_graph_impl none").runtime
    assert usual is not None and usual.graph_scope and off is not None and not off.graph_scope and off.launch == "eager"
    assert usual.framework == "nemo" and usual.fp8_param_gather and not usual.fp32_logits
    line = "python run_script.py -mr deepseek_v3 -g gb300 -c fp8_mx -ng 256"
    narrow, wide = (import_job(f"{line} {said}").runtime for said in ("", "mixed_precision.fp8_dot_product_attention=False"))
    assert narrow is not None and narrow.fp8_attention and narrow.fp8_output_layer and narrow.moe_fused_mlp
    assert wide is not None and not wide.fp8_attention and wide.fp8_output_layer


def test_what_a_builder_sets_and_a_recipe_does_not_say() -> None:
    line = "python run_script.py -mr nemotron_3_super -g b300 -ng 64 -c "
    mxfp8, nvfp4 = (import_job(line + precision).runtime for precision in ("fp8_mx", "nvfp4"))
    assert mxfp8 is not None and nvfp4 is not None
    assert mxfp8.moe_grouped_gemm == "each" and mxfp8.moe_permute_fusion and mxfp8.bf16_layers == (0, 0)
    assert nvfp4.bf16_layers == (0, 14)  # nemotron_3_super_bf16_with_nvfp4_mixed
