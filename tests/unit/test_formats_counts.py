"""How many GPUs a launch script asks for: in all forms that launchers and clusters have, and never a number that nobody stated."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from windtunnel.base.errors import WindtunnelError
from windtunnel.formats.jobs.import_job import import_job
from windtunnel.formats.jobs.launched import Launched, launcher_of
from windtunnel.formats.jobs.scripts import command
from windtunnel.jobs.load import load_described_job
from windtunnel.spec import load_cluster

HF = "train.py --model_name_or_path Qwen/Qwen3-8B --per_device_train_batch_size 1 --max_length 4096 --bf16 True"
SWIFT = "swift sft --model Qwen/Qwen3-8B --train_type full --per_device_train_batch_size 1 --max_length 4096"
MEGATRON_SWIFT = "megatron sft --model Qwen/Qwen3-8B --micro_batch_size 1 --global_batch_size 128 --max_length 4096"
FACTORY = "llamafactory-cli train --model_name_or_path Qwen/Qwen3-8B --finetuning_type full --cutoff_len 4096 --stage sft"
MEGATRON = (
    "pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096 --micro-batch-size 1 "
    "--global-batch-size 256 --bf16 --vocab-size 32000"
)
SFT = "swift/cli/_megatron/sft.py --model Qwen/Qwen3-8B --micro_batch_size 1 --global_batch_size 128 --max_length 4096"

STATED = [
    (f"NPROC_PER_NODE=8 NNODES=4 {MEGATRON_SWIFT}", 32),
    (f"NNODES=4 NPROC_PER_NODE=8 {MEGATRON_SWIFT}", 32),
    (f"NNODES=4 \\\nNODE_RANK=0 \\\nNPROC_PER_NODE=8 \\\n{MEGATRON_SWIFT}", 32),
    (f"export NNODES=4; export NPROC_PER_NODE=8; {MEGATRON_SWIFT}", 32),
    (f"NNODES=${{NNODES:-4}} NPROC_PER_NODE=8 {MEGATRON_SWIFT}", 32),
    (f"X=4\nNPROC_PER_NODE=8 NNODES=$X {MEGATRON_SWIFT}", 32),
    (f"env NNODES=2 NPROC_PER_NODE=8 {SWIFT}", 16),
    (f"NPROC_PER_NODE=4 {SWIFT}", 4),
    (f"NNODES=2 NPROC_PER_NODE=8 {SWIFT}", 16),
    (f"NPROC_PER_NODE=8 NNODES=2 {SWIFT}", 16),
    (f"CUDA_VISIBLE_DEVICES=0,1 {SWIFT}", 2),
    (f"FORCE_TORCHRUN=1 NPROC_PER_NODE=8 NNODES=2 {FACTORY}", 16),
    (f"CUDA_VISIBLE_DEVICES=0,1,2,3 {FACTORY}", 4),
    (f"torchrun --nnodes 4 --nproc-per-node 8 {SFT}", 32),
    (f"python -m torch.distributed.run --nproc_per_node=8 --nnodes=4 {SFT}", 32),
    (f"N=4\ntorchrun --nnodes $N --nproc_per_node 8 {HF}", 32),
    (f"python3 -m torch.distributed.launch --nproc_per_node 4 {HF}", 4),
    (f"torchrun --standalone --nproc_per_node=2 {HF}", 2),
    (f"srun -N 4 --ntasks-per-node=8 python {HF}", 32),
    (f"srun -N4 -n 32 python -u {HF}", 32),
    (f"srun --nodes=2 --ntasks-per-node=1 --gpus-per-node=8 torchrun --nnodes 2 --nproc_per_node 8 {HF}", 16),
    (f"#SBATCH --nodes=4\n#SBATCH --ntasks-per-node=8\n#SBATCH --gres=gpu:8\nsrun python {HF}", 32),
    (f"#SBATCH -N 2\n#SBATCH --gpus-per-node=h100:8\nsrun torchrun --nnodes $SLURM_NNODES --nproc_per_node 8 {HF}", 16),
    (f"#SBATCH --nodes=4\n#SBATCH --gres=gpu:8\nsrun torchrun --nproc_per_node 8 {HF}", 32),
    (f"mpirun -np 16 -H a:8,b:8 python {HF}", 16),
    (f"mpirun -np 16 --npernode 8 -x NCCL_DEBUG=INFO python {HF}", 16),
    (f"accelerate launch --num_processes 16 --num_machines 2 {HF}", 16),
    (f"deepspeed --num_nodes 2 --num_gpus 8 {HF}", 16),
    (f"GPUS_PER_NODE=8\nNUM_NODES=16\ntorchrun --nproc_per_node $GPUS_PER_NODE --nnodes $NUM_NODES {MEGATRON}", 128),
    (f"NPROC_PER_NODE=8 NNODES=4 torchrun --nproc_per_node $NPROC_PER_NODE --nnodes $NNODES {MEGATRON}", 32),
    (f"torchrun --nproc_per_node 8 --nnodes 4 {MEGATRON}", 32),
    (f"DISTRIBUTED_ARGS=(--nproc_per_node 8 --nnodes 2)\ntorchrun ${{DISTRIBUTED_ARGS[@]}} {MEGATRON}", 16),
    ("python3 -m verl.trainer.main_ppo trainer.nnodes=2 trainer.n_gpus_per_node=8 actor_rollout_ref.model.path=Qwen/Qwen3-8B "
     "data.train_batch_size=128 data.max_prompt_length=512 data.max_response_length=1024", 16),
]  # fmt: skip
"""Scripts that state a number. A shell fills `$NNODES` before it sets what stands in front of the line; what is meant counts."""
OPEN = [
    (f"NNODES=$WORLD_SIZE NPROC_PER_NODE=8 {MEGATRON_SWIFT}", "NNODES=$WORLD_SIZE", 8),
    (f"NNODES=$NNODES \\\nNPROC_PER_NODE=4 \\\n{MEGATRON_SWIFT}", "NNODES=$NNODES", 4),
    (f"torchrun --nnodes $N --nproc_per_node 8 {SFT}", "--nnodes $N", 8),
    (f"torchrun --nnodes $N --nproc_per_node 8 {MEGATRON}", "--nnodes $N", 8),
    (f"torchrun --nnodes 4 --nproc_per_node $GPUS {HF}", "--nproc_per_node $GPUS", 32),
    (f"torchrun --nproc_per_node gpu --nnodes 2 {HF}", "2 nodes", 16),
    (f"NNODES=2 {SWIFT}", "2 nodes", 16),
    (SWIFT, "does not say", 8),
    (FACTORY, "does not say", 8),
    (f"FORCE_TORCHRUN=1 {FACTORY}", "does not say", 8),
    (f"torchrun {HF}", "does not say", 8),
    (f"accelerate launch {HF}", "does not say", 8),
    (f"deepspeed {HF}", "does not say", 8),
    (MEGATRON_SWIFT, "does not say", 8),
    (f"python {MEGATRON} --tensor-model-parallel-size 8 --pipeline-model-parallel-size 4", "fewest nodes", 32),
    (f"python {MEGATRON}", "does not say", 8),
    ("python3 -m verl.trainer.main_ppo trainer.nnodes=$NNODES trainer.n_gpus_per_node=8 actor_rollout_ref.model.path=Qwen/Qwen3-8B "
     "data.train_batch_size=128 data.max_prompt_length=512 data.max_response_length=1024", "trainer.nnodes=$NNODES", 8),
]  # fmt: skip


def _load(folder: Path, text: str, name: str = "run.sh", sets: tuple[str, ...] = ()) -> tuple[int, tuple[str, ...]]:
    path = folder / name
    path.write_text(text + "\n", encoding="utf-8")
    loaded = load_described_job(str(path), list(sets), "h100-ib")
    return loaded.job.cluster.gpus, loaded.assumed


@pytest.mark.parametrize(("text", "gpus"), STATED)
def test_a_stated_number_is_taken(text: str, gpus: int, tmp_path: Path) -> None:
    found, assumed = _load(tmp_path, text)
    assert found == gpus
    assert not any("set cluster.gpus" in note for note in assumed)


@pytest.mark.parametrize(("text", "said", "gpus"), OPEN)
def test_an_open_number_is_one_node_and_said_first(text: str, said: str, gpus: int, tmp_path: Path) -> None:
    found, assumed = _load(tmp_path, text)
    assert found == gpus
    assert said in assumed[0] and "--set cluster.gpus=N" in assumed[0]
    assert _load(tmp_path, text, sets=("cluster.gpus=64",))[0] == 64


def test_the_callers_environment_states_a_number(tmp_path: Path) -> None:
    text = f"NNODES=$WORLD_SIZE \\\nNPROC_PER_NODE=8 \\\n{MEGATRON_SWIFT}\n"
    (tmp_path / "run.sh").write_text(text, encoding="utf-8")
    assert load_described_job(f"WORLD_SIZE=4 {tmp_path / 'run.sh'}", [], "h100-ib").job.cluster.gpus == 32


@pytest.mark.parametrize("line", [f"torchrun --nnodes 4 --nproc-per-node 8 {SFT}", f"NNODES=4 NPROC_PER_NODE=8 {MEGATRON_SWIFT}"])
def test_a_module_names_its_trainer_under_any_launcher(line: str, tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(line.replace("swift/cli/_megatron/sft.py", "/opt/ms-swift/swift/cli/_megatron/sft.py") + "\n", encoding="utf-8")
    loaded = load_described_job(str(path), [], "h100-ib")
    assert any("Megatron-SWIFT's defaults" in note for note in loaded.assumed)
    assert loaded.job.runtime.weight_dtype == "bf16" and loaded.job.plan.sharding == "zero1"


@pytest.mark.parametrize("module", ["-m llamafactory.launcher", "src/llamafactory/launcher.py", "-m llamafactory.cli train"])
def test_llama_factorys_modules(module: str, tmp_path: Path) -> None:
    flags = FACTORY.partition("train ")[2].replace("--finetuning_type full ", "")
    (tmp_path / "run.sh").write_text(f"torchrun --nproc_per_node 4 {module} {flags}\n", encoding="utf-8")
    job = load_described_job(str(tmp_path / "run.sh"), [], "h100-ib").job
    assert job.cluster.gpus == 4 and job.model.lora is not None  # its default


def _pod(command: list[str], gpus: int = 8) -> dict[str, object]:
    limits = {"nvidia.com/gpu": gpus}
    return {"spec": {"containers": [{"name": "pytorch", "image": "a/b:1", "command": command, "resources": {"limits": limits}}]}}


SHELL = ["bash", "-c", f"torchrun --nnodes=$PET_NNODES --nproc_per_node=$PET_NPROC_PER_NODE {HF}"]
MANIFESTS = {
    "pytorchjob": (
        {"kind": "PyTorchJob", "spec": {"pytorchReplicaSpecs": {
            "Master": {"replicas": 1, "template": _pod(SHELL)}, "Worker": {"replicas": 3, "template": _pod(SHELL)}}}}, 32),
    "mpijob": (
        {"kind": "MPIJob", "spec": {"slotsPerWorker": 8, "mpiReplicaSpecs": {
            "Launcher": {"replicas": 1, "template": {"spec": {"containers": [
                {"image": "a", "command": ["mpirun", "-np", "16", "python", *HF.split()]}]}}},
            "Worker": {"replicas": 2, "template": _pod([])}}}}, 16),
    "jobset": (
        {"kind": "JobSet", "spec": {"replicatedJobs": [{"name": "w", "replicas": 1, "template": {
            "spec": {"parallelism": 4, "template": _pod(["torchrun", "--nproc_per_node=8", *HF.split()])}}}]}}, 32),
    "trainjob": (
        {"kind": "TrainJob", "spec": {"trainer": {"numNodes": 2, "command": ["torchrun", *HF.split()],
                                                  "resourcesPerNode": {"limits": {"nvidia.com/gpu": "8"}}}}}, 16),
    "volcano": ({"kind": "Job", "spec": {"tasks": [{"replicas": 2, "template": _pod(["torchrun", *HF.split()])}]}}, 16),
    "skypilot": ({"num_nodes": 4, "resources": {"accelerators": "H100:8"}, "run": (
        f"torchrun --nnodes $SKYPILOT_NUM_NODES --nproc_per_node $SKYPILOT_NUM_GPUS_PER_NODE {HF}\n")}, 32),
    "skypilot-one": ({"resources": {"accelerators": {"A100-80GB": 4}}, "run": f"torchrun --nproc_per_node 4 {HF}\n"}, 4),
    "dstack": ({"type": "task", "nodes": 2, "resources": {"gpu": "H100:8"}, "commands": [f"torchrun {HF}"]}, 16),
    "text": (
        {"kind": "PyTorchJob", "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": "2", "template": {"spec": {"containers": [
            {"image": "a", "command": f"torchrun --nproc_per_node=$(CARDS) {HF}", "env": [{"name": "CARDS", "value": "8"}],
             "resources": {"limits": {"nvidia.com/gpu": 8}}}]}}}}}}, 16),
    "mosaicml": ({"compute": {"gpus": 16}, "image": "a", "command": f"torchrun {HF}\n"}, 16),
}  # fmt: skip


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_manifest_states_nodes_and_gpus(name: str, tmp_path: Path) -> None:
    table, gpus = MANIFESTS[name]
    assert _load(tmp_path, json.dumps(table), f"{name}.yaml")[0] == gpus


def test_a_manifest_without_a_command_says_so(tmp_path: Path) -> None:
    with pytest.raises(WindtunnelError, match="command"):
        _load(tmp_path, json.dumps({"kind": "PyTorchJob", "spec": {"replicas": 2}}), "job.yaml")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.toml", '[model]\nname = "qwen3"\nflavor = "32B"\n[training]\nlocal_batch_size = 1\nseq_len = 4096\n[parallelism]\n'
         "data_parallel_shard_degree = -1\n"),
        ("b.yaml", "model_name_or_path: Qwen/Qwen3-8B\nstage: sft\nfinetuning_type: full\ncutoff_len: 4096\n"
         "per_device_train_batch_size: 1\n"),
        ("c.yaml", "base_model: Qwen/Qwen3-8B\nsequence_len: 4096\nmicro_batch_size: 1\ndatasets: []\n"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("machine", ["h100-ib", "a100-ib", "b200-ib", "rtx-4090", "h200-ib"])
def test_a_configuration_without_a_number_is_one_node(name: str, text: str, machine: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    loaded = load_described_job(str(tmp_path / name), [], machine)
    assert loaded.job.cluster.gpus == load_cluster(machine).node.gpus
    assert f"one node of {machine}" in loaded.assumed[0]


def test_a_job_that_is_the_machine_keeps_its_size(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(SWIFT + "\n", encoding="utf-8")
    loaded = load_described_job(str(tmp_path / "run.sh"), [], "llama2-70b-64xh100")
    assert loaded.job.cluster.gpus == 64 and any("64 GPUs, all of the machine" in note for note in loaded.assumed)


def test_counts_of_words() -> None:
    assert launcher_of(["srun", "-N2", "--ntasks-per-node", "1", "torchrun", "--nproc-per-node=4"], {}) == Launched(None, 2, 4)
    assert launcher_of(["torchrun", "--nnodes", "1:$MAX", "--nproc_per_node", "8"], {}).total is None
    assert launcher_of([], {"NNODES": "3", "NPROC_PER_NODE": "5"}).total == 15
    assert launcher_of(["python"], {}) == Launched()


def test_a_script_that_names_a_server_is_walked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """verl's rollout names sglang, so that both the reader of servers and verl's ask for its commands."""
    walked: list[str] = []
    walk = command._Script.run
    monkeypatch.setattr(command._Script, "run", lambda script, text: (walked.append(text), walk(script, text))[1])
    line = "python3 -m verl.trainer.main_ppo actor_rollout_ref.rollout.name=sglang actor_rollout_ref.model.path=Qwen/Qwen2.5-7B"
    (tmp_path / "run.sh").write_text(f"{line} trainer.n_gpus_per_node=8\n", encoding="utf-8")
    assert import_job(tmp_path / "run.sh").model.name == "qwen2.5-7b"
    assert len(walked) == 1
