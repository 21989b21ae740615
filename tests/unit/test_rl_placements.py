"""Roles of a step on GPUs of their own: by hand, and as AReaL, ROLL, OpenRLHF, vime and verl place them."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from windtunnel.base.errors import PlanError, WindtunnelError
from windtunnel.formats.jobs.rl.areal import read_allocation
from windtunnel.formats.jobs.rl.roll import devices_of
from windtunnel.formats.jobs.rl.trainer import mean_tokens
from windtunnel.jobs.load import load_described_job
from windtunnel.jobs.rl import load_rl
from windtunnel.rl import predict_rl
from windtunnel.rl.job import RLJob
from windtunnel.rl.modes.step_mode import RLPhase, lay_in_turn, train_seconds
from windtunnel.rl.predict import _train_phases
from windtunnel.rl.spec import PostTraining
from windtunnel.rl.sync import BetweenPhases

MACHINE = "h100-ib"


def passes(update: float, forward: float) -> Any:
    return SimpleNamespace(update_s=update, forward_s=forward)


def ppo(*groups: dict[str, Any]) -> PostTraining:
    return PostTraining.model_validate({"algorithm": "ppo", "reward_model": True, "groups": groups})


@pytest.mark.parametrize(
    ("groups", "seconds", "waits", "starts"),
    [
        # all on the update's GPUs: reward, old, reference, values; critic, actor
        ((), 4 * 3 + 2 * 7, 0.0, {}),
        # two passes of 4.5 beside old and reference of 6, then 14 beside 7
        ([{"roles": ["critic", "reward"], "gpus": 4}], 9 + 14, 3 + 7, {"values": 4.5, "update of the critic": 9.0}),
        # called one after the other: 6 + 9 and 7 + 14
        ([{"roles": ["critic", "reward"], "gpus": 4, "beside": False}], 15 + 21, 9 + 14, {"values": 10.5}),
        # each on its own: the slowest forward pass, of 6, and the critic's update
        (
            [{"roles": ["critic"], "gpus": 4}, {"roles": ["reward"], "gpus": 4}, {"roles": ["reference"], "gpus": 4}],
            6 + 14, 3 + 7, {"values": 0.0, "update of the critic": 6.0},
        ),
    ],
)  # fmt: skip
def test_groups_run_beside_each_other_by_hand(groups: Any, seconds: float, waits: float, starts: dict[str, float]) -> None:
    """3 s for a pass of log-probabilities and 7 s for the updates on the GPUs of the update. On those of a group: 6 and 14, but 4.5
    and 14 where critic and reward share it."""
    rl = ppo(*groups)
    forward = 4.5 if len(groups) == 1 else 6.0
    apart = {group.label: passes(14.0, forward) for group in rl.groups}
    found = _train_phases(rl, passes(7.0, 3.0), BetweenPhases(0.0), apart)
    placed = {phase.name: phase.beside for phase in found if phase.beside is not None}
    assert (train_seconds(found), sum(phase.seconds for phase in found if phase.idle)) == (seconds, waits)
    assert {name: placed[name] for name in starts} == starts


def test_spans_of_a_group_lie_beside_those_of_the_update() -> None:
    training = [
        RLPhase("old", 2.0, "train"),
        RLPhase("values", 3.0, "critic", beside=0.0),
        RLPhase("wait", 1.0, "train", idle=True),
    ]
    before, after = [RLPhase("rollout", 10.0, "rollout")], [RLPhase("sync", 1.0, "both")]
    timing = lay_in_turn(before, training, after, SimpleNamespace(seconds=10.0), shared=False)  # type: ignore[arg-type]
    assert [(span.start, span.end) for span in timing.spans] == [(0, 10), (10, 12), (10, 13), (12, 13), (13, 14)]
    assert (timing.seconds, timing.train_busy) == (14.0, 2.0 / 14.0)


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ([{"roles": ["critic"], "gpus": 8}, {"roles": ["critic"], "gpus": 8}], "critic twice"),
        ([{"roles": ["reward"], "gpus": 8}], "rl.reward_model = true"),
        ([{"roles": ["critic"], "gpus": 24}], "less than the cluster's 24"),
    ],
)
def test_groups_that_cannot_be_say_why(groups: list[dict[str, Any]], words: str) -> None:
    from windtunnel.rl import load_rl_job

    table = {"model": "llama3-8b", "cluster": {"base": MACHINE, "gpus": 24}, "rl": {"algorithm": "ppo", "groups": groups}}
    with pytest.raises(PlanError, match=words):
        load_rl_job(table)


OPENRLHF = """ray job submit --address="http://127.0.0.1:8265" -- python3 -m openrlhf.cli.train_ppo_ray \\
  --ref_num_nodes 1 --ref_num_gpus_per_node 8 --reward_num_nodes 1 --reward_num_gpus_per_node {reward} \\
  --critic_num_nodes 1 --critic_num_gpus_per_node 8 --actor_num_nodes 1 --actor_num_gpus_per_node 8 \\
  --vllm_num_engines 8 --vllm_tensor_parallel_size 1 {place} --pretrain meta-llama/Meta-Llama-3-8B \\
  --reward_pretrain meta-llama/Meta-Llama-3-8B --micro_train_batch_size 8 --train_batch_size 256 --rollout_batch_size 256 \\
  --prompt_max_len 512 --generate_max_len 512 --zero_stage 3 --gradient_checkpointing {more}
"""


@pytest.mark.parametrize(
    ("place", "reward", "more", "gpus", "groups"),
    [
        ("--colocate_critic_reward --colocate_actor_ref", 8, "", 24, [("critic", "reward")]),
        ("--colocate_actor_ref", 4, "", 28, [("critic",), ("reward",)]),
        ("--colocate_critic_reward", 8, "", 32, [("reference",), ("critic", "reward")]),
        ("", 8, "", 40, [("reference",), ("critic",), ("reward",)]),
        ("", 8, "--advantage_estimator reinforce --init_kl_coef 0", 24, [("reward",)]),
        ("", 8, "--remote_rm_url http://x --init_kl_coef 0", 24, [("critic",)]),
        ("--colocate_all_models", 8, "", 8, []),
        ("--colocate_critic_reward", 8, "--advantage_estimator group_norm", 32, [("reference",), ("reward",)]),
    ],
)
def test_openrlhf_places_roles_as_asked(
    tmp_path: Path, place: str, reward: int, more: str, gpus: int, groups: list[tuple[str, ...]]
) -> None:
    (tmp_path / "run.sh").write_text(OPENRLHF.format(place=place, reward=reward, more=more), encoding="utf-8")
    job = load_rl(tmp_path / "run.sh", MACHINE)
    assert (job.job.cluster.gpus, [group.roles for group in job.rl.groups]) == (gpus, groups)
    assert job.train_gpus == 8 and all(group.beside for group in job.rl.groups)


def test_a_critic_of_its_own_shortens_the_step(tmp_path: Path) -> None:
    """Beside each other on 24 GPUs, critic and actor take as long as one of them; the actor's GPUs no longer hold the critic."""
    steps = []
    for place in ("--colocate_critic_reward --colocate_actor_ref", "--colocate_all_models"):
        (tmp_path / "run.sh").write_text(OPENRLHF.format(place=place, reward=8, more=""), encoding="utf-8")
        steps.append(predict_rl(load_rl(tmp_path / "run.sh", MACHINE)))
    apart, together = steps
    assert apart.seconds_of("update of the critic") == pytest.approx(apart.seconds_of("update"))
    assert apart.step_time_s < together.step_time_s - 0.9 * apart.seconds_of("update")
    held = {one.phase: one for one in apart.memory}
    assert "critic" not in held["update"].parts and held["critic and reward"].parts["optimizer"] >= 0.0
    path = sum(phase.seconds for phase in apart.timing.phases if phase.on != "critic and reward")
    assert path == pytest.approx(apart.step_time_s)


AREAL = """
experiment_name: x
cluster: {{n_nodes: {nodes}, n_gpus_per_node: 8}}
rollout: {{{rollout} max_head_offpolicyness: {ahead}, max_concurrent_rollouts: 64}}
gconfig: {{n_samples: 4, max_new_tokens: 2048}}
actor: {{{actor} path: Qwen/Qwen2.5-1.5B-Instruct, gradient_checkpointing: {checkpoints}, kl_ctl: {kl}, ppo_n_minibatches: 2,
  recompute_logprob: true, mb_spec: {{max_tokens_per_mb: 10240}}}}
{more}
train_dataset: {{batch_size: 64, max_length: 1024}}
sglang: {{mem_fraction_static: 0.8}}
vllm: {{gpu_memory_utilization: 0.7}}
"""


def areal(folder: Path, **fields: Any) -> RLJob:
    usual = {"nodes": 1, "rollout": '"backend": "sglang:d4",', "actor": '"backend": "fsdp:d4",', "ahead": 2, "kl": 0.0,
             "checkpoints": "true", "more": ""}  # fmt: skip
    (folder / "run.yaml").write_text(AREAL.format(**{**usual, **fields}), encoding="utf-8")
    return load_rl(folder / "run.yaml", MACHINE)


@pytest.mark.parametrize(
    ("text", "gpus", "degrees"),
    [
        ("sglang:d4t2", 8, {"d": 4, "t": 2}), ("vllm.d2p2t2", 8, {"d": 2, "p": 2, "t": 2}),
        ("d4m2p4", 32, {"d": 4, "t": 2, "p": 4}),
        ("sglang.d80m2p1", 160, {"d": 80, "t": 2, "p": 1}), ("d4p1t1c2", 8, {"d": 4, "p": 1, "t": 1, "c": 2}),
        ("megatron:(attn:d4p4t2|ffn:d2p4e4)", 32, {"d": 4, "p": 4, "t": 2, "e": 4}), ("fsdp[actor]:d8", 8, {"d": 8}),
        ("megatron:attn:d1p12t4|ffn:d1p12t2e2", 48, {"d": 1, "p": 12, "t": 4, "e": 2, "x": 2}), ("archon:d2", 2, {"d": 2}),
    ],
)  # fmt: skip
def test_allocations_of_areal(text: str, gpus: int, degrees: dict[str, int]) -> None:
    placed = read_allocation(text)
    assert (placed.gpus, dict(placed.degrees)) == (gpus, degrees)


@pytest.mark.parametrize("text", ["", "d", "4d", "sglang:", "trtllm:d4", "sglang:d0", "(d4", "manual", "d4|x"])
def test_other_allocations_are_refused(text: str) -> None:
    with pytest.raises(WindtunnelError, match="sglang:d4t2"):
        read_allocation(text)


SIBLINGS = list(itertools.product(("sglang", "vllm"), ("fsdp", "megatron", "archon"), (0, 2, 40), (False, True)))


@pytest.mark.parametrize(("engine", "trains", "ahead", "legacy"), SIBLINGS)
def test_areal_in_every_spelling(tmp_path: Path, engine: str, trains: str, ahead: int, legacy: bool) -> None:
    """Backends of roles, or one allocation mode of all."""
    if legacy:
        mode = f'allocation_mode: "{engine}:d4t2+{trains}:d4t2"'
        job = areal(tmp_path, rollout="", actor="", ahead=ahead, nodes=2, more=mode)
    else:
        job = areal(tmp_path, rollout=f'"backend": "{engine}:d4t2",', actor=f'"backend": "{trains}:d4t2",', ahead=ahead, nodes=2)
    assert (job.job.cluster.gpus, job.train_gpus, job.rollout_gpus, job.rl.rollout.engine) == (16, 8, 8, engine)
    assert (job.rl.prompts, job.rl.samples, job.rl.mini, job.rl.pack_tokens) == (64, 4, 32, 10240)
    assert (job.rl.mode, job.rl.has_reference, job.rl.old_logprobs) == ("async" if ahead else "split", False, True)
    assert not ahead or (job.rl.staleness, job.rl.sync_every) == (min(ahead, 16), 2)
    assert (job.job.plan.tp, job.rl.rollout.tp, job.rl.rollout.running) == (2, 2, 64)
    assert job.rl.rollout.memory == (0.8 if engine == "sglang" else 0.7)
    assert (job.job.plan.sharding, job.job.plan.recompute) == ("zero1" if trains == "megatron" else "fsdp", "full")


ROLE = '{name}: {{backend: "fsdp:d{gpus}", path: Qwen/Qwen2.5-1.5B-Instruct{where}}}'


@pytest.mark.parametrize(
    ("critic", "ref", "groups", "gpus"),
    [
        ("", "", [(("critic",), 4), (("reference",), 4)], 16),
        ("actor", "actor", [], 8),
        ("", "critic", [(("critic", "reference"), 4)], 12),
        ("actor", "", [(("reference",), 4)], 12),
    ],
)
def test_areal_places_critic_and_reference(tmp_path: Path, critic: str, ref: str, groups: Any, gpus: int) -> None:
    where = [f", scheduling_strategy: {{type: colocation, target: {target}}}" if target else "" for target in (critic, ref)]
    more = "\n".join(ROLE.format(name=name, gpus=4, where=text) for name, text in zip(("critic", "ref"), where, strict=True))
    job = areal(tmp_path, kl=0.1, more=more)
    assert (job.rl.algorithm, [(group.roles, group.gpus) for group in job.rl.groups]) == ("ppo", groups)
    assert job.job.cluster.gpus == gpus and not any(group.beside for group in job.rl.groups)


def test_areal_rolls_out_on_the_gpus_of_the_actor(tmp_path: Path) -> None:
    rollout = '"backend": "sglang:d4", scheduling_strategy: {type: colocation, target: actor},'
    job = areal(tmp_path, rollout=rollout, checkpoints="false")
    assert (job.rl.mode, job.job.cluster.gpus, job.job.plan.recompute) == ("colocated", 4, "none")


def test_areal_of_2025_is_read(tmp_path: Path) -> None:
    text = """
max_head_offpolicyness: 8
allocation_mode: sglang.d24m2p1+d4m2p1
n_nodes: 7
n_gpus_per_node: 8
group_size: 16
actor: {path: /storage/models/Qwen__Qwen3-8B/}
actor_train: {mb_spec: {max_tokens_per_mb: 30720}}
dataset: {max_prompt_len: 1024, train_bs_n_seqs: 128}
ppo: {ppo_n_minibatches: 4, gen: {max_new_tokens: 8192}, kl_ctl: 0.0}
"""
    (tmp_path / "run.yaml").write_text(text, encoding="utf-8")
    job = load_rl(tmp_path / "run.yaml", MACHINE)
    assert (job.job.cluster.gpus, job.train_gpus, job.rollout_gpus, job.model.name) == (56, 8, 48, "qwen3-8b")
    assert (job.rl.prompts, job.rl.samples, job.rl.mini, job.rl.staleness, job.rl.sync_every) == (128, 16, 32, 8.0, 4)
    assert (job.job.plan.tp, job.rl.rollout.tp, job.rl.pack_tokens, job.job.plan.recompute) == (2, 2, 30720, "full")
    script = (
        "python3 training/main_async_ppo.py n_nodes=7 allocation_mode=sglang.d24m2p1+d4m2p1 group_size=16 ppo.kl_ctl=0.0 "
        "actor.path=Qwen/Qwen3-8B dataset.train_bs_n_seqs=128 ppo.gen.max_new_tokens=8192 max_head_offpolicyness=8 \\\n"
        "  actor_train.mb_spec.max_tokens_per_mb=30720\n"
    )
    (tmp_path / "run.sh").write_text(script, encoding="utf-8")
    typed = load_rl(tmp_path / "run.sh", MACHINE)
    assert (typed.job.plan, typed.rl) == (job.job.plan, job.rl)


def test_a_command_changes_its_configuration(tmp_path: Path) -> None:
    areal(tmp_path)
    script = (
        "python3 examples/math/gsm8k_rl.py --config run.yaml scheduler.type=local train_dataset.batch_size=128 +actor.kl_ctl=0.1\n"
    )
    (tmp_path / "run.sh").write_text(script, encoding="utf-8")
    job = load_rl(tmp_path / "run.sh", MACHINE)
    assert (job.rl.prompts, job.rl.mini, job.train_gpus) == (128, 64, 4)
    update = load_described_job(str(tmp_path / "run.sh"), [], MACHINE).job
    assert (update.cluster.gpus, update.plan.global_batch, update.model.name) == (4, 256, "qwen2.5-1.5b")


def test_what_is_not_read_is_listed(tmp_path: Path) -> None:
    job = areal(tmp_path, more="teacher: {path: Qwen/Qwen2.5-7B, rl_loss_weight: 0.5}\nstats_logger: {wandb: {mode: disabled}}")
    assert "not read: teacher.path, teacher.rl_loss_weight" in job.notes


ROLL = """
exp_name: x
rollout_batch_size: 64
prompt_length: 2048
response_length: 8192
num_return_sequences_in_group: 8
adv_estimator: {estimator}
init_kl_coef: {kl}
async_generation_ratio: {ahead}
pretrain: Qwen/Qwen3-8B
actor_train:
  training_args: {{per_device_train_batch_size: 1, gradient_accumulation_steps: 32}}
  strategy_args: {{strategy_name: {trains}, strategy_config: {{{config}}}}}
  {packs}
  device_mapping: {train}
actor_infer:
  strategy_args: {{strategy_name: {engine}, strategy_config: {{gpu_memory_utilization: 0.8}}}}
  device_mapping: {infer}
{more}
"""


def roll(folder: Path, **fields: Any) -> RLJob:
    usual = {"estimator": "reinforce", "kl": 0.0, "ahead": 0, "trains": "megatron_train", "engine": "vllm",
             "packs": "infer_batch_size: 2",
             "config": "tensor_model_parallel_size: 2, recompute_granularity: full", "train": "list(range(0,8))",
             "infer": "list(range(8,16))", "more": ""}  # fmt: skip
    (folder / "run.yaml").write_text(ROLL.format(**{**usual, **fields}), encoding="utf-8")
    return load_rl(folder / "run.yaml", MACHINE)


@pytest.mark.parametrize(
    ("value", "devices"),
    [
        ("list(range(0,8))", range(8)), ("list(range(8))", range(8)), ("list(range(0, 8, 2))", range(0, 8, 2)), ([4, 5], (4, 5)),
        ("[0,1,2]", range(3)), ("list(range(0,4)) + list(range(8,12))", (0, 1, 2, 3, 8, 9, 10, 11)), (None, ()),
    ],
)  # fmt: skip
def test_devices_of_roll(value: object, devices: Any) -> None:
    assert devices_of(value) == frozenset(devices)


@pytest.mark.parametrize("value", ["all", "range(0,x)", "list(range(0,8)) * 2", "list(range(0,999999999))", "__import__('os')"])
def test_other_devices_are_refused(value: str) -> None:
    with pytest.raises(WindtunnelError, match="GPUs"):
        devices_of(value)


@pytest.mark.parametrize("trains", ["megatron_train", "fsdp2_train"])
@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize(("infer", "ahead", "mode"), [
    ("list(range(8,16))", 0, "split"), ("list(range(8,16))", 1, "async"), ("list(range(0,8))", 0, "colocated"),
    ("list(range(0,8))", 1, "colocated"),
])  # fmt: skip
def test_roll_by_the_gpus_that_roles_share(tmp_path: Path, trains: str, engine: str, infer: str, ahead: int, mode: str) -> None:
    config = "tensor_model_parallel_size: 2, recompute_granularity: full" if trains == "megatron_train" else "fsdp_size: 8"
    job = roll(tmp_path, trains=trains, engine=engine, infer=infer, ahead=ahead, config=config)
    apart = 0 if mode == "colocated" else 8
    assert (job.rl.mode, job.job.cluster.gpus, job.train_gpus) == (mode, 8 + apart, 8)
    replicas = 4 if trains == "megatron_train" else 8
    assert (job.rl.prompts, job.rl.samples, job.rl.mini) == (64, 8, 32 * replicas // 8)
    assert (job.rl.padded, job.rl.old_logprobs) == (10240, True)
    assert (job.rl.rollout.engine, job.rl.has_reference, job.rl.has_critic) == (engine, False, False)
    assert (job.job.plan.recompute, job.job.plan.sharding) == ("full", "zero1" if trains == "megatron_train" else "fsdp")


@pytest.mark.parametrize(
    ("packs", "pack", "pad"),
    [
        ("use_sequence_packing: true\n  sequence_packing_args: {max_packed_sequence_length_train: 16384}", 16384, None),
        ("use_dynamic_batching_in_train: true\n  max_tokens_per_microbatch_in_train: 20480", 20480, None),
        ("infer_batch_size: 4", None, 10240),
    ],
)
def test_roll_packs_or_pads(tmp_path: Path, packs: str, pack: int | None, pad: int | None) -> None:
    job = roll(tmp_path, packs=packs)
    assert job.rl.padded == pad
    assert job.rl.pack_tokens == (pack or mean_tokens({"prompt": job.rl.prompt, "response": job.rl.response}))


@pytest.mark.parametrize(("critic", "reference", "groups"), [
    ("list(range(0,8))", "list(range(0,8))", []), ("list(range(16,24))", "list(range(0,8))", [(("critic",), 8)]),
    ("list(range(16,24))", "list(range(16,24))", [(("critic", "reference"), 8)]),
    ("list(range(16,24))", "list(range(24,28))", [(("critic",), 8), (("reference",), 4)]),
])  # fmt: skip
def test_roll_places_critic_and_reference(tmp_path: Path, critic: str, reference: str, groups: Any) -> None:
    more = f"critic: {{device_mapping: '{critic}'}}\nreference: {{device_mapping: '{reference}'}}\n"
    job = roll(tmp_path, estimator="gae", kl=0.1, more=more)
    assert [(group.roles, group.gpus) for group in job.rl.groups] == groups
    assert job.job.cluster.gpus == 16 + sum(gpus for _, gpus in groups) and job.rl.has_critic and job.rl.has_reference


def test_roll_by_its_command(tmp_path: Path) -> None:
    (tmp_path / "examples" / "mine").mkdir(parents=True)
    job = roll(tmp_path / "examples" / "mine")
    command = "python examples/start_rlvr_pipeline.py --config_path mine --config_name run rollout_batch_size=128\n"
    (tmp_path / "run.sh").write_text(command, encoding="utf-8")
    typed = load_rl(tmp_path / "run.sh", MACHINE)
    assert (typed.rl.prompts, typed.job.plan.tp, typed.job.cluster.gpus) == (128, job.job.plan.tp, 16)


def test_padding_costs_time(tmp_path: Path) -> None:
    padded = predict_rl(roll(tmp_path))
    packed = predict_rl(roll(tmp_path, packs="use_sequence_packing: true"))
    assert padded.seconds_of("update") > 2.5 * packed.seconds_of("update")  # samples of 2,400 tokens in 10,240


VIME = """ray job submit -- python3 {script} --actor-num-nodes 1 --actor-num-gpus-per-node 4 --rollout-num-gpus 4 \\
  --rollout-function-path vime.rollout.{function} --hf-checkpoint /models/Qwen3-4B --swiglu --num-layers 36 --hidden-size 2560 \\
  --ffn-hidden-size 9728 --num-attention-heads 32 --group-query-attention --num-query-groups 8 --kv-channels 128 \\
  --vocab-size 151936 --normalization RMSNorm --disable-bias-linear --rollout-batch-size 32 --n-samples-per-prompt 8 \\
  --rollout-max-response-len 8192 --global-batch-size 256 --tensor-model-parallel-size 2 --sequence-parallel \\
  --use-dynamic-batch-size --max-tokens-per-gpu 9216 --rollout-num-gpus-per-engine {ranks} {more}
"""


@pytest.mark.parametrize(("script", "function", "mode"), [
    ("train.py", "sgl_rollout.generate", "split"), ("train_async.py", "sgl_rollout.generate", "one_step_off"),
    ("train_async.py", "fully_async_rollout.generate", "async"),
])  # fmt: skip
@pytest.mark.parametrize("ranks", [1, 2])
def test_vime_is_slime_with_vllm(tmp_path: Path, script: str, function: str, mode: str, ranks: int) -> None:
    more = "--vllm-gpu-memory-utilization 0.6 --vllm-max-num-seqs 64 --vllm-enforce-eager"
    (tmp_path / "run.sh").write_text(VIME.format(script=script, function=function, ranks=ranks, more=more), encoding="utf-8")
    job = load_rl(tmp_path / "run.sh", MACHINE)
    assert (job.rl.mode, job.job.cluster.gpus, job.rollout_gpus) == (mode, 8, 4)
    engine = job.rl.rollout
    assert (engine.engine, engine.tp, engine.memory, engine.running, engine.graphs) == ("vllm", ranks, 0.6, 64, False)


def test_verl_gives_the_reward_model_its_pool(tmp_path: Path) -> None:
    text = (
        "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_batch_size=64 data.max_prompt_length=512 "
        "data.max_response_length=512 actor_rollout_ref.model.path=Qwen/Qwen2.5-7B actor_rollout_ref.rollout.n=4 "
        "actor_rollout_ref.actor.ppo_mini_batch_size=64 trainer.nnodes=1 trainer.n_gpus_per_node=8 reward_model.enable=True "
        "reward_model.enable_resource_pool=True reward_model.nnodes=1 reward_model.n_gpus_per_node=8\n"
    )
    (tmp_path / "run.sh").write_text(text, encoding="utf-8")
    job = load_rl(tmp_path / "run.sh", MACHINE)
    assert (job.job.cluster.gpus, job.train_gpus, job.rollout_gpus) == (16, 8, 8)
    assert [(group.roles, group.beside) for group in job.rl.groups] == [(("reward",), False)]


@pytest.mark.parametrize("machine", ["h200-ib", "b200-ib"])
def test_a_job_file_is_put_on_another_machine(tmp_path: Path, machine: str) -> None:
    """Its number of GPUs stays."""
    text = 'workload = "rl"\nmodel = "qwen3-4b"\n[cluster]\nbase = "h800-ib"\ngpus = 16\n[rl]\nmode = "split"\nrollout.gpus = 8\n'
    (tmp_path / "job.toml").write_text(text, encoding="utf-8")
    job = load_rl(tmp_path / "job.toml", machine)
    assert (job.job.cluster.id, job.job.cluster.gpus) == (machine, 16)
