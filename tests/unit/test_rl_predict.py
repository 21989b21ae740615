"""A step of reinforcement learning: sums of its parts, what each field does, scripts and logs of verl, and what cannot be."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import windtunnel as wt
from windtunnel.base.errors import FileError, PlanError, SpecError
from windtunnel.cli import main
from windtunnel.jobs.rl import load_rl
from windtunnel.predict import predict
from windtunnel.rl import PostTraining, RLJob, RLStep, RolloutSpec, load_rl_job, predict_rl
from windtunnel.rl.batch import balance, draw_batch
from windtunnel.rl.rollout import lane_load, roll_out, rollout_server
from windtunnel.rl.training import on_gpus, train_passes
from windtunnel.serving.simulate import run_lane

TABLE: dict[str, Any] = {
    "workload": "rl",
    "name": "small",
    "model": "qwen2.5-1.5b",
    "cluster": {"base": "h100-ib", "gpus": 16},
    "rl": {
        "prompts": 64, "samples": 4, "mini_batch": 32, "prompt": "100-300", "response": "600~0.8<4096",
        "rollout": {"tp": 1},
    },
}  # fmt: skip


def small(*overrides: str) -> RLJob:
    return load_rl_job(TABLE, overrides)


def split(mode: str, gpus: int = 8) -> list[str]:
    return [f"rl.mode={mode}", f"rl.rollout.gpus={gpus}"]


def test_phases_of_a_colocated_step_add_up() -> None:
    step = predict_rl(small())
    assert step.step_time_s == pytest.approx(sum(phase.seconds for phase in step.timing.phases))
    names = [phase.name for phase in step.timing.phases]
    assert names == [
        "engine wakes and sleeps", "rollout", "old log-probabilities", "reference log-probabilities", "update",
        "weights to the engine",
    ]  # fmt: skip
    assert step.timing.spans[-1].end == pytest.approx(step.step_time_s)
    assert all(a.end == pytest.approx(b.start) for a, b in zip(step.timing.spans, step.timing.spans[1:], strict=False))


@pytest.mark.parametrize(("changes", "modes"), [([], "in_turn"), (split("async", 8), "ahead")])
def test_a_step_states_the_error_of_published_steps_of_its_kind(changes: list[str], modes: str) -> None:
    step = predict_rl(small(*changes))
    assert step.published_steps is not None and step.published_steps.modes == modes
    assert step.relative_error == step.published_steps.step.error > 0.0
    assert step.fits and not replace(step, memory=(replace(step.memory[0], capacity=1.0), *step.memory[1:])).fits


def test_a_rollout_of_one_sample_is_its_passes_one_after_the_other() -> None:
    """Nobody else is there: a pass over the prompt, and one for each further token."""
    whole = small("rl.prompts=1", "rl.mini_batch=1", "rl.samples=1", "rl.prompt=128", "rl.response=64")
    batch = draw_batch(whole.rl, whole.model.max_seq)
    at = rollout_server(whole, None, 192)
    alone = run_lane(at.times, lane_load(whole, batch, np.array([0]), at.server.engine.block), at.room.lane_tokens)
    assert roll_out(at, whole, batch).seconds == pytest.approx(float(alone.last[0]))
    assert alone.steps == 64


def test_updates_of_equal_samples_are_training_steps() -> None:
    """64 samples of 1,024 tokens on 16 replicas, 4 in a pack: each update is a training step of one pack a replica."""
    fixed = ["rl.prompts=64", "rl.samples=1", "rl.mini_batch=64", "rl.prompt=256", "rl.response=768", "rl.pack_tokens=4096"]
    whole = small(*fixed)
    passes = train_passes(whole, draw_batch(whole.rl, whole.model.max_seq))
    assert (passes.packing.count, passes.packing.documents, passes.packing.length) == (1, 4, 1024)
    plan = {"seq": 4096, "document": 1024, "micro_batch": 1, "global_batch": 16}
    job = whole.job.model_copy(update={"plan": whole.job.plan.model_copy(update=plan)})
    assert passes.update_s == pytest.approx(predict(job).step_time_s)
    spans = [s for s in passes.prediction.timeline if s.category == "forward" and s.stream == "compute"]
    assert passes.forward_s == pytest.approx(sum(s.end - s.start for s in spans))


def test_log_probabilities_are_a_part_of_an_update() -> None:
    """A pass forward against one forward, one again and one backward: a quarter, and its ends."""
    step = predict_rl(small())
    share = step.seconds_of("old log-probabilities") / step.seconds_of("update")
    assert 0.15 < share < 0.4


def test_samples_are_dealt_evenly() -> None:
    lengths = np.array([9, 1, 1, 1, 5, 5, 2, 2, 8, 3])
    dealt = balance(lengths, 3)
    assert dealt.sum() == lengths.sum() and dealt.max() <= 13
    assert balance(lengths[:2], 4).tolist() == [9.0, 1.0, 0.0, 0.0]


def test_doubling_gpus_leaves_the_rollout_where_the_tail_rules() -> None:
    """The longest sample needs its passes whatever else runs; more GPUs shorten the update alone."""
    many = ["model=qwen2.5-7b", "rl.samples=32", "rl.mini_batch=64"]
    some = predict_rl(small("cluster.gpus=32", *many))
    more = predict_rl(small("cluster.gpus=64", *many))
    assert more.seconds_of("rollout") > 0.9 * some.seconds_of("rollout")
    assert more.seconds_of("update") < 0.8 * some.seconds_of("update")
    assert any("tail" in line for line in more.waits)


@pytest.mark.parametrize("response", ["600~0.3<4096", "600~1.2<8192", "2000~0.8<8192"])
@pytest.mark.parametrize("gpus", [4, 8, 12])
def test_modes_that_wait_less_take_less(response: str, gpus: int) -> None:
    """On the same GPUs: one step ahead hides the shorter of both, without waiting hides the tail."""
    steps = {}
    for mode in ("split", "one_step_off", "async"):
        steps[mode] = predict_rl(small(*split(mode, gpus), f"rl.response={response}", "rl.old_logprobs=false")).step_time_s
    assert steps["one_step_off"] < steps["split"]
    assert steps["async"] < 1.03 * steps["one_step_off"]


def test_more_staleness_does_not_slow_a_step() -> None:
    times = [predict_rl(small(*split("async", 4), f"rl.staleness={s}")).step_time_s for s in (0.0, 0.25, 1.0, 2.0)]
    assert all(later < 1.02 * earlier for earlier, later in zip(times, times[1:], strict=False))
    assert times[-1] < times[0]


def test_turns_wait_for_tools_and_reuse_the_cache() -> None:
    one = predict_rl(small("rl.response=1200"))
    slow = predict_rl(small("rl.response=1200", "rl.turns=4", "rl.tool_seconds=5.0", "rl.tool_tokens=0"))
    assert slow.seconds_of("rollout") - one.seconds_of("rollout") == pytest.approx(15.0, rel=0.15)
    whole = small("rl.turns=4", "rl.tool_tokens=100")
    batch = draw_batch(whole.rl, whole.model.max_seq)
    load = lane_load(whole, batch, np.arange(8), 16)
    assert load.output.sum() == batch.response[:8].sum() and len(load) == 32
    assert (load.prompt[24:] + load.output[24:] == batch.lengths[:8]).all()
    at = rollout_server(whole, None, int(batch.lengths.max()))
    ran = run_lane(at.times, load, at.room.lane_tokens)
    assert ran.hits > 0.6 * load.prompt[8:].sum() - 8 * 3 * 16  # all but a block of what came before


def test_samples_of_a_prompt_share_its_cache() -> None:
    long = ["rl.prompt=2048", "rl.response=64", "rl.samples=8"]
    whole = small(*long)
    batch = draw_batch(whole.rl, whole.model.max_seq)
    at = rollout_server(whole, None, 4096)
    ran = roll_out(at, whole, batch)
    assert ran.hits > 0.95 * 7 / 8 * batch.prompt.sum() - 16 * len(batch)  # all but the last block, and one of the eight


CHANGES: dict[str, tuple[str, ...]] = {
    "algorithm": ("rl.algorithm=ppo",),
    "mode": tuple(split("split")),
    "trainer": ("rl.trainer=verl",),
    "prompts": ("rl.prompts=128",),
    "samples": ("rl.samples=8",),
    "mini_batch": ("rl.mini_batch=16",),
    "epochs": ("rl.epochs=2",),
    "prompt": ("rl.prompt=900",),
    "response": ("rl.response=900~0.8<4096",),
    "keep": ("rl.keep=0.5",),
    "pack_tokens": ("rl.pack_tokens=5000",),
    "logprob_tokens": ("rl.logprob_tokens=4096",),
    "padded": ("rl.padded=longest",),
    "reference": ("rl.reference=false",),
    "reward_model": ("rl.reward_model=true",),
    "groups": ('rl.groups=[{roles=["reference"],gpus=4}]',),
    "critic": ("rl.critic=true",),
    "old_logprobs": ("rl.old_logprobs=false",),
    "reward_seconds": ("rl.reward_seconds=7.0",),
    "turns": ("rl.turns=3",),
    "tool_tokens": ("rl.turns=3", "rl.tool_tokens=900"),
    "tool_seconds": ("rl.turns=3", "rl.tool_seconds=9.0"),
    "offload": ("rl.offload=all",),
    "staleness": (*split("async", 4), "rl.staleness=0.0"),
    "sync_every": (*split("async", 4), "rl.sync_every=2"),
    "require": (*split("async", 4), "rl.require=2"),
    "partial": (*split("async", 4), "rl.partial=false"),
    "seed": ("rl.seed=5",),
    "rollout.engine": ("rl.rollout.engine=sglang",),
    "rollout.gpus": tuple(split("split", 4)),
    "rollout.tp": ("rl.rollout.tp=2",),
    "rollout.pp": ("rl.rollout.pp=2",),
    "rollout.dp": ("rl.rollout.dp=2",),
    "rollout.ep": ("model=qwen3-30b-a3b", "rl.rollout.tp=4", "rl.rollout.ep=4"),
    "rollout.weights": ("rl.rollout.weights=fp8",),
    "rollout.kv": ("rl.rollout.kv=fp8",),
    "rollout.memory": ("rl.rollout.memory=0.3",),
    "rollout.running": ("rl.rollout.running=4",),
    "rollout.step_tokens": ("rl.rollout.step_tokens=64",),
    "rollout.speculate": ("rl.rollout.speculate=eagle,drafts=2,accepted=2.2",),
    "rollout.graphs": ("rl.rollout.graphs=false",),
    "rollout.ahead": ("rl.rollout.ahead=true",),
}
"""Fields of `rl`, and changes of which the last one is the field's."""


def test_every_field_has_a_change() -> None:
    fields = {*PostTraining.model_fields, *(f"rollout.{name}" for name in RolloutSpec.model_fields)} - {"rollout"}
    assert fields == set(CHANGES)


@pytest.mark.parametrize("field", CHANGES)
def test_every_field_moves_the_answer(field: str) -> None:
    def figures(step: RLStep) -> dict[str, Any]:
        said = step.as_dict()
        return {key: said[key] for key in ("step_time_s", "phases", "memory", "rollout")}

    *before, last = CHANGES[field]
    if field in ("mode", "rollout.gpus"):
        before, last = ([], last) if field == "mode" else (split("split", 8), last)
    changed = CHANGES[field] if field == "mode" else (*before, last)
    assert figures(predict_rl(small(*before))) != figures(predict_rl(small(*changed)))


def test_memory_of_phases_and_what_to_do() -> None:
    """A 7B on 8 GPUs of 80 GB: training states stay unless they are offloaded; the engine takes what is left."""
    roomy = predict_rl(small("model=qwen2.5-7b", "rl.offload=all", "cluster.gpus=8"))
    tight = predict_rl(small("model=qwen2.5-7b", "cluster.gpus=8"))
    assert roomy.fits and tight.fits
    assert tight.rollout.room.cache < roomy.rollout.room.cache
    over = predict_rl(small("model=qwen2.5-7b", "cluster.gpus=8", "rl.rollout.memory=0.95"))
    assert not over.fits and "rl.rollout.memory = 0." in over.warnings[0] and "rl.offload = all" in over.warnings[0]
    less = over.warnings[0].split("rl.rollout.memory = ")[1][:4]
    assert predict_rl(small("model=qwen2.5-7b", "cluster.gpus=8", f"rl.rollout.memory={less}")).fits


SCRIPT = """set -x
python3 -m verl.trainer.main_ppo \\
    algorithm.adv_estimator=grpo data.train_batch_size=128 data.max_prompt_length=1024 data.max_response_length=4096 \\
    actor_rollout_ref.model.path=Qwen/Qwen2.5-7B-Instruct actor_rollout_ref.model.enable_gradient_checkpointing=True \\
    actor_rollout_ref.actor.ppo_mini_batch_size=64 actor_rollout_ref.actor.use_dynamic_bsz=True \\
    actor_rollout_ref.actor.ppo_max_token_len_per_gpu=24576 actor_rollout_ref.actor.use_kl_loss=True \\
    actor_rollout_ref.actor.fsdp_config.param_offload=True actor_rollout_ref.actor.fsdp_config.optimizer_offload=True \\
    actor_rollout_ref.rollout.n=8 actor_rollout_ref.rollout.tensor_model_parallel_size=2 \\
    actor_rollout_ref.rollout.name=sglang actor_rollout_ref.rollout.gpu_memory_utilization=0.6 \\
    trainer.n_gpus_per_node=8 trainer.nnodes=2
"""


def test_a_launch_script_of_verl(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(SCRIPT)
    whole = load_rl(script, "h100-ib")
    rl = whole.rl
    assert (rl.algorithm, rl.prompts, rl.samples, rl.mini, rl.has_reference, rl.has_critic) == ("grpo", 128, 8, 64, True, False)
    assert (rl.rollout.engine, rl.rollout.tp, rl.rollout.memory, rl.offload, rl.pack_tokens) == ("sglang", 2, 0.6, "all", 24576)
    assert whole.job.cluster.gpus == 16 and whole.job.plan.recompute == "full" and whole.model.name == "qwen2.5-7b"
    assert any("lengths" in note for note in whole.notes)
    assert load_rl(script, "h100-ib", ["rl.response=500", "cluster.gpus=32"]).job.cluster.gpus == 32
    critic = tmp_path / "ppo.sh"
    critic.write_text(SCRIPT.replace("adv_estimator=grpo", "adv_estimator=gae").replace("use_kl_loss=True", "use_kl_loss=False"))
    assert load_rl(critic, "h100-ib").rl.has_critic and not load_rl(critic, "h100-ib").rl.has_reference


def test_an_asynchronous_launch_script_of_verl(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    more = (
        " rollout.nnodes=1 rollout.n_gpus_per_node=8 async_training.staleness_threshold=0.3 async_training.require_batches=1"
        " async_training.trigger_parameter_sync_step=2 async_training.partial_rollout=True"
    )
    trainer = "verl.experimental.fully_async_policy.fully_async_main"
    script.write_text(SCRIPT.replace("verl.trainer.main_ppo", trainer).rstrip() + more)
    whole = load_rl(script, "h100-ib")
    assert (whole.rl.mode, whole.rl.staleness, whole.rl.sync_every, whole.rl.partial) == ("async", 0.3, 2, True)
    assert (whole.train_gpus, whole.rollout_gpus) == (16, 8)


def log_of(lengths: np.ndarray[Any, Any], steps: int = 3) -> str:
    line = (
        "(TaskRunner pid=1) step:{n} - response_length/mean:{mean} - response_length/max:{most} - response_length/clip_ratio:{clip}"
        " - prompt_length/mean:120.0 - timing_s/gen:70.5 - timing_s/old_log_prob:3.5 - timing_s/update_actor:14.0"
        " - timing_s/step:96.0"
    )
    clip = float((lengths >= 8192).mean())
    return "\n".join(line.format(n=n + 1, mean=lengths.mean(), most=lengths.max(), clip=clip) for n in range(steps))


@pytest.mark.parametrize("spread", [0.5, 1.0, 1.5])
def test_a_log_gives_lengths_back(tmp_path: Path, spread: float) -> None:
    """Lengths are drawn, a log says mean, maximum and clipped share of them: the distribution is found again."""
    sigma = math.sqrt(math.log1p(spread**2))
    drawn = np.random.default_rng(3).lognormal(math.log(900) - sigma**2 / 2, sigma, 1024)
    (tmp_path / "run.sh").write_text(SCRIPT)
    (tmp_path / "console.log").write_text(log_of(np.minimum(np.round(drawn), 8192)))
    whole = load_rl(tmp_path / "run.sh", "h100-ib", log=tmp_path / "console.log")
    mean, _, rest = whole.rl.response.partition("~")
    assert float(mean) == pytest.approx(900, rel=0.1) and float(rest.partition("<")[0]) == pytest.approx(spread, rel=0.25)
    assert dict(whole.measured) == {"rollout": 70.5, "old log-probabilities": 3.5, "update": 14.0, "step": 96.0}


def test_lengths_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "lengths.csv"
    path.write_text("response\n100\n200\n300\n")
    batch = draw_batch(small(f"rl.response={path}").rl, 32768)
    assert set(batch.response.tolist()) == {100, 200, 300}
    path.write_text("a\nb\n")
    with pytest.raises(FileError, match=r"rl\.response"):
        draw_batch(small(f"rl.response={path}").rl, 32768)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        (["rl.prompts=100", "rl.mini_batch=33"], r"rl\.mini_batch = (25|50)"),
        (["rl.mode=async"], r"rl\.rollout\.gpus"),
        (split("async", 16), r"less than the cluster's 16"),
        (["rl.rollout.gpus=4"], r"colocated"),
        (["rl.staleness=0.5"], r"only with rl\.mode"),
        (["rl.tool_seconds=2.0"], r"rl\.turns"),
        (["rl.mode=later"], r"colocated"),
        (["rl.promts=3"], r"rl\.promts"),
        (["rl.response=many"], r"MEAN~CV"),
        (["rl.prompt=400000"], r"context"),
        (["workload=serve"], r"workload"),
        (["rl.rollout.tp=5"], r"a multiple of 5"),
        (["model=deepseek-v3"], r"cluster\.gpus: got 16; .* Write --set cluster\.gpus=256, or --set rl\.offload=all\.$"),
        (["model=deepseek-v3", "rl.offload=all"], r"Write --set rl\.rollout\.tp=32 --set cluster\.gpus=32\.$"),
        (["rl.rollout.memory=1.5"], r"rl\.rollout\.memory"),
    ],
)
def test_what_cannot_be_is_said(changes: list[str], match: str) -> None:
    with pytest.raises((SpecError, PlanError), match=match):
        predict_rl(small(*changes))


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.json"
    path.write_text(json.dumps(TABLE))
    assert main(["rl-predict", str(path)]) == 0
    said = capsys.readouterr().out
    assert "colocated" in said and "rollout" in said and "price" in said
    assert main(["predict", str(path), "--json", "-"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["step_time_s"] == pytest.approx(wt.rl_predict(path).step_time_s)
    assert main(["predict", str(path), "--network", "flow"]) == 2
    assert "rl-predict" in capsys.readouterr().err
    assert main(["rl-predict"]) == 2 and main(["rl-predict", str(tmp_path / "none.toml")]) == 2
    (tmp_path / "train.toml").write_text('base = "llama2-70b-64xh100"\n')
    assert main(["rl-predict", str(tmp_path / "train.toml")]) == 2
    assert "workload" in capsys.readouterr().err


def test_a_model_alone_is_a_step_with_what_is_assumed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rl-predict", "qwen2.5-7b", "--on", "h100-ib", "--gpus", "16", "--set", "rl.samples=4", "--json", "-"]) == 0
    answer = json.loads(capsys.readouterr().out)
    table = {"workload": "rl", "name": "x", "model": "qwen2.5-7b", "cluster": {"base": "h100-ib", "gpus": 16}, "rl": {"samples": 4}}
    assert answer["step_time_s"] == pytest.approx(wt.rl_predict(table).step_time_s)
    assert any("rl.response = " in note and "rl.samples" not in note for note in answer["notes"])
    assert wt.rl_predict("Qwen/Qwen2.5-7B-Instruct", "h100-ib", overrides=["cluster.gpus=16", "rl.samples=4"]).step_time_s == (
        pytest.approx(answer["step_time_s"])
    )
    assert main(["rl-predict", "qwen2.5-7b"]) == 2
    assert "--on" in capsys.readouterr().err


def test_divisions_of_the_gpus(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.json"
    path.write_text(json.dumps(TABLE | {"cluster": {"base": "h100-ib", "gpus": 32}}))
    tried = wt.rl_splits(path, overrides=split("async", 8))
    assert sorted(one.rollout_gpus for one, _ in tried) == [8, 16, 24]
    times = [step.step_time_s for _, step in tried if isinstance(step, RLStep)]
    assert times == sorted(times)
    assert main(["rl-predict", str(path), "--splits"]) == 0
    assert "rollout busy" in capsys.readouterr().out


def test_an_update_runs_on_its_own_gpus() -> None:
    whole = small(*split("split", 8))
    assert on_gpus(whole.job, whole.train_gpus).dp == 8
    assert predict_rl(whole).update.job.cluster.gpus == 8


def test_samples_of_one_turn_wait_for_no_tool() -> None:
    whole = small()
    load = lane_load(whole, draw_batch(whole.rl, whole.model.max_seq), np.arange(4), 16)
    assert len(load) == 4 and load.after is None and load.pause == 0.0 and not load.outputs_named
