"""Parts of a step of reinforcement learning with numbers by hand: phases, syncs, waits, packs, states that stay."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.unit.test_rl_predict import small, split
from windtunnel.base.lengths import draw_lengths
from windtunnel.memory.tiers import legs
from windtunnel.predict.price.calls import CallBook
from windtunnel.rl import predict_rl
from windtunnel.rl.batch import draw_batch
from windtunnel.rl.modes.asynchronous import _end_syncs, _resume_seconds, run_continuously
from windtunnel.rl.modes.one_step_off import lay_beside
from windtunnel.rl.modes.step_mode import RLPhase, StepMode
from windtunnel.rl.predict import _train_phases
from windtunnel.rl.rollout import RolloutResult, rollout_server
from windtunnel.rl.sync import BetweenPhases, between_phases, data_seconds, offload_seconds, parked_bytes, sync_seconds, tensors_of
from windtunnel.rl.training import TrainingPasses, _pack, bins_of, on_gpus, part_of, train_passes
from windtunnel.serving.lengths import Passing
from windtunnel.serving.load import ServeLoad
from windtunnel.serving.simulate import LaneResult
from windtunnel.spec import load_cluster, load_model
from windtunnel.workload.ops import Axis, Comm


def rollout_of(seconds: float) -> RolloutResult:
    nothing = np.zeros(0)
    return RolloutResult(seconds, nothing, nothing, 0.0, 1.0, 0.0, 1.0, 0, 0, 0.0, 0, 1, ())


UPDATE = [RLPhase("old log-probabilities", 1.0, "train"), RLPhase("update", 3.0, "train")]


@pytest.mark.parametrize(
    ("mode", "seconds", "shares", "spans"),
    [
        # the engine wakes and sleeps in half a second each; all GPUs have a phase all the time
        ("colocated", 17.0, (1.0, 1.0), [(0, 1), (1, 11), (11, 12), (12, 15), (15, 17)]),
        ("split", 16.0, (10 / 16, 4 / 16), [(0, 10), (10, 11), (11, 14), (14, 16)]),
    ],
)
def test_phases_in_turn_by_hand(
    monkeypatch: pytest.MonkeyPatch, mode: str, seconds: float, shares: tuple[float, float], spans: list[tuple[float, float]]
) -> None:
    """10 s of rollout, 4 s of training, 2 s of the sync."""
    monkeypatch.setattr(f"windtunnel.rl.modes.{mode}.roll_out", lambda *_: rollout_of(10.0))
    whole = small(*(split(mode) if mode == "split" else []))
    assert isinstance(whole.mode, StepMode)
    batch = draw_batch(whole.rl, whole.model.max_seq)
    ran = whole.mode.run(whole, rollout_server(whole, None, int(batch.lengths.max())), batch, UPDATE, 2.0, False)
    timing = ran.timing
    assert ran.seconds == 10.0
    assert (timing.seconds, timing.rollout_busy, timing.train_busy) == (seconds, *shares)
    assert [(span.start, span.end) for span in timing.spans] == spans


@pytest.mark.parametrize(("rollout", "seconds", "waits"), [(10.0, 12.0, 6.0), (3.0, 6.0, 0.0)])
def test_phases_of_one_step_ahead_by_hand(rollout: float, seconds: float, waits: float) -> None:
    """4 s of training beside the rollout of the next batch; the longer one, and 2 s of the sync."""
    timing = lay_beside(rollout_of(rollout), UPDATE, 2.0)
    assert (timing.seconds, timing.rollout_busy, timing.train_busy) == (seconds, rollout / seconds, 4 / seconds)
    assert sum(phase.seconds for phase in timing.phases if phase.name == "wait for the rollout") == waits
    assert (timing.spans[-1].start, timing.spans[-1].end) == (seconds - 2.0, seconds)


@pytest.mark.parametrize(
    ("changes", "phases"),
    [
        ([], {"old log-probabilities": 3.0, "reference log-probabilities": 3.0, "update": 7.0}),
        (["rl.reference=false", "rl.reward_seconds=5.0"], {"rewards": 5.0, "old log-probabilities": 3.0, "update": 7.0}),
        (
            ["rl.critic=true", "rl.old_logprobs=false"],
            {"reference log-probabilities": 3.0, "values": 3.0, "update of the critic": 7.0, "update": 7.0},
        ),
    ],
)
def test_phases_of_the_update_by_hand(changes: list[str], phases: dict[str, float]) -> None:
    """3 s for a pass of log-probabilities, 7 s for the updates, 2 s for states that come and go."""
    step = predict_rl(small())
    passes = TrainingPasses(step.update, step.packing, 1, 7.0, 3.0, step.packing)
    found = _train_phases(small(*changes).rl, passes, BetweenPhases(2.0))
    assert {phase.name: phase.seconds for phase in found} == {"states from and to host memory": 2.0, **phases}


@pytest.mark.parametrize(
    ("partial", "updates", "done"),
    [
        # one update behind each 2 samples; ends in order: 1, 3, 4, 5, 6, 9, 20, 21
        (True, 1, [3 + 1.5, 5 + 1.5, 9 + 1.5, 21 + 1.5]),
        # one behind each sample: 1 + 1, 3 + 1; 4.5 + 1 (its sample came at 4), + 1; 7 + 1, 9 + 1; 20 + 1, 21 + 1
        (True, 2, [4.5, 7.0, 10.5, 22.5]),
        # the engine must be empty: of the first two samples one ends at 9, all that were sent by 9.5 at 21
        (False, 1, [9.5, 21.5, 23.0, 24.5]),
    ],
)
def test_syncs_by_hand(partial: bool, updates: int, done: list[float]) -> None:
    """1 s for an update, half a second for a sync."""
    finished = np.array([1.0, 9.0, 3.0, 4.0, 5.0, 6.0, 20.0, 21.0])
    sent = np.array([0.0, 0.0, 3.0, 3.0, 5.0, 5.0, 7.0, 7.0])
    assert _end_syncs(finished, sent, 2, updates, 1.0, 0.5, partial).tolist() == done


@pytest.mark.parametrize(("gap", "window", "wait"), [(1.0, 16.0, 12.0), (0.01, 4.0, 0.0)])
def test_a_step_without_waiting_by_hand(monkeypatch: pytest.MonkeyPatch, gap: float, window: float, wait: float) -> None:
    """Half of the 256 samples on 8 lanes: 16 of each between two syncs, which end one after the other. Half of the step's 4 s of
    training and 2 s of a sync for them; the update waits for the rest, without the sync."""
    whole = small(*split("async", 8))
    batch = draw_batch(whole.rl, whole.model.max_seq)
    at = rollout_server(whole, None, int(batch.lengths.max()))

    def ends(times: object, load: ServeLoad, *_: object) -> LaneResult:
        ended = gap * np.arange(1.0, len(load) + 1.0)
        return LaneResult(load.arrival, ended, ended, 0.5 * float(ended.max()), 1, 0, 0, 0, 0.0, 0.0, 0.0)

    monkeypatch.setattr("windtunnel.rl.modes.asynchronous.run_lane", ends)
    timing, ran = run_continuously(whole, at, batch, UPDATE, 2.0)
    assert (ran.window, ran.wait, ran.resumed) == (pytest.approx(window), pytest.approx(wait), 0.0)
    phases = {phase.name: phase.seconds for phase in timing.phases}
    assert timing.seconds == pytest.approx(2 * window) and phases["rollout"] == pytest.approx(2 * window - 4.0)
    assert phases.get("wait for samples", 0.0) == pytest.approx(2 * wait) and phases["weights to the engine"] == pytest.approx(4.0)
    assert (timing.rollout_busy, timing.train_busy) == (0.5, pytest.approx(4.0 / (2 * window)))


def test_interrupted_samples_are_computed_again() -> None:
    """10 of them with 100 prompt tokens and half of 400 response tokens: 3,000 tokens, in passes of the engine's limit."""
    whole = small(*split("async", 8), "rl.prompt=100", "rl.response=400", "rl.rollout.step_tokens=1000")
    batch = draw_batch(whole.rl, whole.model.max_seq)
    at = rollout_server(whole, None, 600)
    nothing = np.zeros(1)
    result = LaneResult(nothing, nothing, nothing, 0.0, 1, 0, 0, 0, 0.0, 10.0, 0.0)
    alone = at.times.seconds(Passing(1000, 1, 500_000.0, 0, 0.0), 1)
    assert _resume_seconds(at, batch, result) == pytest.approx(3.0 * alone)


def test_prompts_that_are_filtered_out_are_drawn_besides() -> None:
    """Half of the prompts are kept: 128 for 64, of 4 samples each; 256 samples are learned from."""
    batch = draw_batch(small("rl.keep=0.5").rl, 32768)
    assert (len(batch), batch.trained, batch.group.tolist()) == (512, 256, np.repeat(np.arange(128), 4).tolist())


@pytest.mark.parametrize(
    ("model", "tensors"),
    [("qwen2.5-7b", 339), ("mixtral-8x7b", 12 * 32 + 3 + 32 * (3 * 8 + 1)), ("deepseek-v3", 12 * 61 + 3 + 58 * (3 * 256 + 1))],
)
def test_tensors_of_a_checkpoint(model: str, tensors: int) -> None:
    assert tensors_of(load_model(model)) == tensors


@pytest.mark.parametrize(
    ("changes", "parked"),
    [
        ([], 15e9), (["rl.offload=optimizer"], 3e9), (["rl.offload=all"], 0.0),
        (["rl.critic=true"], 30e9), (["rl.critic=true", "rl.offload=optimizer"], 6e9),
    ],
)  # fmt: skip
def test_states_that_stay_by_hand(changes: list[str], parked: float) -> None:
    """3 GB of weights and 12 GB of optimizer states, as much for a critic; what does not stay goes to the host and comes back."""
    whole = small(*changes)
    memory = replace(predict_rl(small()).update.memory[0], weights=3e9, optimizer=12e9)
    assert parked_bytes(whole, memory) == parked
    moved = (30e9 if whole.rl.has_critic else 15e9) - parked
    ways = [leg for out in (True, False) for leg in legs(whole.job.cluster, "host", out)]
    assert offload_seconds(whole, memory) == pytest.approx(sum(leg.latency + moved / leg.rate for leg in ways) if moved else 0.0)


@pytest.mark.parametrize(
    ("most", "limit", "packing"),
    [
        (1000.0, 512, (2, 500.0, 2, 256)),  # two packs of 500: 1.67 documents of 300, each 1.95 times 128
        (1000.0, 100, (3, 1000 / 3, 1, 384)),  # a pack holds the longest sample at least: 400
        (100.0, 512, (1, 250.0, 1, 256)),  # and the mean one
    ],
)
def test_packs_by_hand(most: float, limit: int, packing: tuple[int, float, int, int]) -> None:
    """Samples of 100, 200, 300 and 400 tokens: the squares of 1,000 / 300 documents of 300 are theirs; lengths in units of 128."""
    found = _pack(small().job, np.array([100, 200, 300, 400]), most, limit, 1.0)
    assert (found.count, found.tokens, found.documents, found.length) == packing


def test_bins_by_hand() -> None:
    """Bins of 4,096: 3,000 and 1,000 share one, 2,000 and 2,000 another, 2,500 and 1,500 a third; 2,500 has one of its own."""
    lengths = np.array([1000, 1500, 2000, 2000, 2500, 2500, 3000])
    assert bins_of(lengths, 4096) == 4
    assert _pack(small().job, lengths, 8192.0, 4096, 1.0).count == 2
    assert _pack(small("cluster.gpus=8").job, lengths, 8192.0, 4096, 1.0, None, np.repeat(lengths, 100)).count == 50


def test_the_path_of_the_data_by_hand() -> None:
    """verl's controller writes 48 and 64 bytes of each position that may be, 2,048 + 4,096, at 0.406 GB/s, and reads 8 of each of a
    response at 1.42; NeMo RL's batch is as long as its longest sample."""
    whole = small("rl.trainer=verl", "rl.prompt=100~0.5<2048", "rl.response=500~1<4096")
    batch = draw_batch(whole.rl, whole.model.max_seq)
    sent, found = batch.trained * 6144, batch.trained * 4096 * 8 / 1.42e9
    assert data_seconds(whole, batch, False) == pytest.approx(sent * 48 / 0.406e9 + found)
    assert data_seconds(whole, batch, True) == pytest.approx(sent * 64 / 0.406e9)
    other = small("rl.trainer=nemo-rl", "rl.prompt=100~0.5<2048", "rl.response=500~1<4096")
    longest = int(batch.prompt.max()) + int(batch.response.max())
    assert data_seconds(other, batch, True) == pytest.approx(batch.trained * longest * 32 / 0.406e9)
    assert data_seconds(small(), batch, True) == 0.0


def test_the_paths_of_other_trainers_by_hand() -> None:
    """slime sends 16 bytes of each token once; OpenRLHF 17 and 45, and reads 8 of each generated one; TRL's ranks keep theirs."""
    texts = ("rl.prompt=100~0.5<2048", "rl.response=500~1<4096")
    slime, openrlhf, trl = (small(f"rl.trainer={name}", *texts) for name in ("slime", "openrlhf", "trl"))
    batch = draw_batch(slime.rl, slime.model.max_seq)
    tokens, made = float(batch.lengths[: batch.trained].sum()), float(batch.response[: batch.trained].sum())
    assert (data_seconds(slime, batch, False), data_seconds(slime, batch, True)) == (0.0, pytest.approx(tokens * 16 / 0.406e9))
    assert data_seconds(openrlhf, batch, False) == pytest.approx(tokens * 17 / 0.406e9 + made * 8 / 1.42e9)
    assert data_seconds(openrlhf, batch, True) == pytest.approx(tokens * 45 / 0.406e9)
    assert data_seconds(trl, batch, False) == data_seconds(trl, batch, True) == 0.0


def test_trl_pads_what_others_pack() -> None:
    """Samples of a micro batch have the length of its longest, as with rl.padded=longest; a stated length stands."""
    texts = ("rl.prompt=100", "rl.response=500~1<4096", "rl.pack_tokens=4096")
    jobs = (small(*texts, *more) for more in (("rl.trainer=trl",), (), ("rl.padded=longest",)))
    trl, packed, padded = (train_passes(job, draw_batch(job.rl, job.model.max_seq)) for job in jobs)
    assert (trl.packing, trl.scoring) == (padded.packing, padded.scoring)
    assert trl.packing.padding > 0.2 and packed.packing.padding == 0.0


def test_the_reference_of_slime_comes_from_pinned_memory_by_hand() -> None:
    """3 GB of weights: out once, in twice, by the node's own links."""
    memory = replace(predict_rl(small()).update.memory[0], weights=3e9, optimizer=12e9)
    slime = small("rl.trainer=slime", "rl.offload=all")
    out, back = (sum(leg.seconds(3e9) for leg in legs(slime.job.cluster, "host", way)) for way in (True, False))
    between = between_phases(slime, draw_batch(slime.rl, slime.model.max_seq), memory)
    assert between.swapped == pytest.approx(out + 2 * back)
    assert between.offload == pytest.approx(5 * (out + back), rel=0.01)


def test_states_of_a_trainer_by_hand() -> None:
    """3 GB of weights, 12 GB of states. NeMo RL: states by pageable copies, 2.8 GB/s out and 6 back; the reference's 3 GB in place
    of the policy's: out once, in twice. verl: all pageable, parameters for each pass, states for the updates."""
    memory = replace(predict_rl(small()).update.memory[0], weights=3e9, optimizer=12e9)
    nemo, verl = (small(f"rl.trainer={name}", "rl.offload=all") for name in ("nemo-rl", "verl"))
    batch = draw_batch(nemo.rl, nemo.model.max_seq)
    pinned = sum(leg.seconds(3e9) for out in (True, False) for leg in legs(nemo.job.cluster, "host", out))
    between = between_phases(nemo, batch, memory)
    assert between.offload == pytest.approx(pinned + 12 / 2.8 + 12 / 6)
    assert between.swapped == pytest.approx(3 / 2.8 + 2 * 3 / 6)
    between = between_phases(verl, batch, memory)
    assert (between.offload, between.swapped) == (pytest.approx(3 / 2.8 + 3 / 6), 0.0)
    assert between.updated - data_seconds(verl, batch, True) == pytest.approx(15 / 2.8 + 15 / 6)


@pytest.mark.parametrize("changes", [[], split("split")])
def test_a_sync_by_hand(changes: list[str]) -> None:
    """2 GB in four buckets of 512 MiB at most, gathered one after the other, and sent to all GPUs where rollout has its own; 0.3 ms
    for each of 339 tensors."""
    whole = small("model=qwen2.5-7b", *changes)
    trainer = on_gpus(whole.job, whole.train_gpus)
    axis = Axis.SHARD if trainer.plan.shards_parameters else Axis.TP
    gathered = CallBook(trainer).price(Comm.ALL_GATHER, axis, 5e8).seconds
    sent = CallBook(whole.job).price(Comm.BROADCAST, Axis.WORLD, 5e8).seconds if changes else 0.0
    assert gathered > 0.0
    assert sync_seconds(whole, 1e9) == pytest.approx(339 * 0.3e-3 + 4 * (gathered + sent))


@pytest.mark.parametrize(
    ("gpus", "nodes", "each"),
    [(16, 2, 8), (32, 4, 8), (4, 0, 8), (20, 4, 5)],  # 20 of four nodes of 8: five of each
)
def test_a_part_of_a_cluster_by_hand(gpus: int, nodes: int, each: int) -> None:
    part = part_of(load_cluster("h100-ib").model_copy(update={"gpus": 32}), gpus)
    assert (part.gpus, part.gpus // part.node.gpus, part.node.gpus, part.node.scale_up.size) == (gpus, nodes, each, each)


@pytest.mark.parametrize("text", ["3053~0.6<3946", "1000~1<4096", "800~1.2<32768", "500~0<600"])
def test_the_mean_of_cut_lengths_is_the_stated_one(text: str) -> None:
    drawn = draw_lengths("rl.response", text, 200_000, np.random.default_rng(1))
    assert drawn.mean() == pytest.approx(float(text.partition("~")[0]), rel=0.01)
    assert drawn.max() <= int(text.partition("<")[2])


def test_a_sync_of_one_bucket_is_one_call() -> None:
    whole = small("model=qwen2.5-7b", *split("split"))
    trainer = on_gpus(whole.job, whole.train_gpus)
    axis = Axis.SHARD if trainer.plan.shards_parameters else Axis.TP
    seconds = CallBook(trainer).price(Comm.ALL_GATHER, axis, 2e6).seconds
    sent = CallBook(whole.job).price(Comm.BROADCAST, Axis.WORLD, 2e6).seconds
    assert sync_seconds(whole, 1e6) == pytest.approx(339 * 0.3e-3 + seconds + sent)
