"""A job of reinforcement learning to its step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from windtunnel.base.errors import PlanError, WindtunnelError
from windtunnel.predict.answer.money import bill
from windtunnel.rl.answer import PhaseMemory, RLStep, RolloutFacts, engine_share, group_memory, no_room_beside, phase_memory
from windtunnel.rl.batch import RLBatch, draw_batch
from windtunnel.rl.job import RLJob, check_rl_job
from windtunnel.rl.modes.step_mode import ModeRun, RLPhase, StepMode, StepTiming, train_seconds
from windtunnel.rl.rollout import RolloutServer, rollout_server
from windtunnel.rl.spec import PostTraining
from windtunnel.rl.sync import BetweenPhases, between_phases, sync_seconds
from windtunnel.rl.training import TrainingPasses, train_passes
from windtunnel.serving.engine import engine_of
from windtunnel.sheet.sentence import Sentence


def predict_rl(whole: RLJob, record: bool = False) -> RLStep:
    """How long a step takes, in which phases, who waits, what each phase holds in memory, and what it costs.

    Deterministic: depends on the job and the catalogue alone. `record`: the answer has what passes of the rollout did, for pages.
    Raises PlanError for an update that contradicts itself and for a rollout that nothing holds.
    """
    check_rl_job(whole)
    rl = whole.rl
    batch = draw_batch(rl, whole.model.max_seq)
    passes = train_passes(whole, batch)
    fullest = max(passes.prediction.memory, key=lambda one: one.total)
    usual = engine_of(rl.rollout.engine, whole.job.cluster.gpu).memory
    share = engine_share(whole, fullest, usual) if whole.mode.shares_gpus else None
    try:
        at = rollout_server(whole, share, int(batch.lengths.max()))
    except PlanError as error:
        raise no_room_beside(whole, fullest) or error from None
    sync = sync_seconds(whole, passes.prediction.parameters)
    apart = {group.label: train_passes(whole, batch, group.gpus) for group in rl.groups}
    between = between_phases(whole, batch, fullest)
    training = _train_phases(rl, passes, between, apart)
    mode = whole.mode
    assert isinstance(mode, StepMode)
    ran = mode.run(whole, at, batch, training, sync, record)
    timing, facts = ran.timing, _facts(whole, at, batch, ran)
    memory = phase_memory(whole, fullest, at.room, passes.scoring.tokens / passes.packing.tokens)
    memory += tuple(
        group_memory(group, max(apart[group.label].prediction.memory, key=lambda stage: stage.total)) for group in rl.groups
    )
    tokens = float(batch.lengths[: batch.trained].sum())
    dollars, joules = _price(whole, timing, passes, tokens)
    waits = _waits(whole, timing, facts, passes)
    return RLStep(
        whole, timing, facts, passes.prediction, passes.packing, passes.updates, memory, tokens, waits, dollars, joules,
        _warnings(whole, memory, facts), whole.notes, ran.log, ran.ends,
    )  # fmt: skip


def try_splits(whole: RLJob, record: bool = False) -> list[tuple[RLJob, RLStep | WindtunnelError]]:
    """The job with every number of whole nodes for the rollout, in its mode or the one that divides the GPUs, and what each gives;
    of many nodes only so many that neighbours differ by a tenth. Those that fit come first, the fastest of them first."""
    mode = whole.mode.divided or whole.rl.mode
    cluster = whole.job.cluster
    rest = cluster.gpus - whole.grouped_gpus
    unit = min(cluster.node.gpus, max(1, rest // 2))
    tried: list[tuple[RLJob, RLStep | WindtunnelError]] = []
    for gpus in _few(unit, rest):
        rollout = whole.rl.rollout.model_copy(update={"gpus": gpus})
        one = replace(whole, rl=whole.rl.model_copy(update={"mode": mode, "rollout": rollout}))
        try:
            tried.append((one, predict_rl(one, record)))
        except WindtunnelError as error:
            tried.append((one, error))
    return sorted(tried, key=_order)


def _order(one: tuple[RLJob, RLStep | WindtunnelError]) -> tuple[bool, bool, float]:
    step = one[1]
    return (not isinstance(step, RLStep), not (isinstance(step, RLStep) and step.fits), getattr(step, "step_time_s", 0.0))


def _few(unit: int, gpus: int) -> list[int]:
    """Multiples of `unit` below `gpus`, neighbours a tenth apart at least."""
    found: list[int] = []
    for count in range(unit, gpus, unit):
        if not found or count >= 1.1 * found[-1] or gpus - count < 1.1 * unit:
            found.append(count)
    return found


def _facts(whole: RLJob, at: RolloutServer, batch: RLBatch, ran: ModeRun) -> RolloutFacts:
    tokens = float(batch.response.sum())
    longest = int(batch.response.max())
    capped = float((batch.response == longest).mean()) if int((batch.response == longest).sum()) > 1 else 0.0
    return RolloutFacts(
        at.server.plan, at.server.replicas, tokens, tokens / ran.seconds / whole.rollout_gpus, ran.seconds, ran.tail, ran.batch,
        float(batch.response.mean()), longest, capped, ran.rollout.preempted, ran.rollout.recomputed, ran.rollout.peak, at.room,
    )  # fmt: skip


def _train_phases(
    rl: PostTraining, passes: TrainingPasses, between: BetweenPhases, apart: Mapping[str, TrainingPasses] | None = None
) -> list[RLPhase]:
    """Phases of the update's GPUs, in order, and of groups of other roles beside them. `apart`: passes on the GPUs of each group.

    Samples are scored before the first update, and the next rollout waits for all updates: at these two moments GPUs that are done
    wait for those of other groups.
    """
    homes: dict[str, str] = {role: group.label for group in rl.groups for role in group.roles}
    on = {"train": passes, **(apart or {})}

    def phase(name: str, role: str, part: str, present: bool = True) -> RLPhase:
        home = homes.get(role, "train")
        more = (between.updated if part == "update_s" else between.scored) + (between.swapped if role == "reference" else 0.0)
        return RLPhase(name, getattr(on[home], part) + more if present else 0.0, home)

    first = [RLPhase("states from and to host memory", between.offload, "train"), RLPhase("rewards", rl.reward_seconds, "train")]
    scored = [
        phase("scores of the reward model", "reward", "forward_s", rl.reward_model),
        phase("old log-probabilities", "actor", "forward_s", rl.has_old_logprobs),
        phase("reference log-probabilities", "reference", "forward_s", rl.has_reference),
        phase("values", "critic", "forward_s", rl.has_critic),
    ]
    updated = [phase("update of the critic", "critic", "update_s", rl.has_critic), phase("update", "actor", "update_s")]
    found = [phase for phase in first if phase.seconds > 0.0]
    for part in (scored, updated):
        found += _lay_groups(rl, [phase for phase in part if phase.seconds > 0.0], train_seconds(found))
    return found


def _lay_groups(rl: PostTraining, phases: Sequence[RLPhase], start: float) -> list[RLPhase]:
    """Phases between two moments at which all groups meet: those of the update's GPUs, then their wait for others. `start`: of the
    first moment, in seconds."""
    own = [phase for phase in phases if phase.on == "train"]
    alone = start + train_seconds(own)  # where a trainer calls one group after the other
    ends, placed = alone, list[RLPhase]()
    for group in rl.groups:
        now = start if group.beside else alone
        for phase in phases:
            if phase.on == group.label:
                placed.append(phase._replace(beside=now))
                now += phase.seconds
        alone = alone if group.beside else now
        ends = max(ends, now, alone)
    wait = ends - start - train_seconds(own)
    return [*own, *placed, *([RLPhase("wait for other roles", wait, "train", idle=True)] if wait > 1e-9 else [])]


def _waits(whole: RLJob, timing: StepTiming, facts: RolloutFacts, passes: TrainingPasses) -> tuple[str, ...]:
    """Who idles and why, in words."""
    said: list[str] = []
    share = facts.tail / timing.seconds
    if share > 0.02:
        said.append(
            Sentence(
                "{share} % of the step is the rollout's tail: few samples are left, the longest of {longest} tokens; more GPUs "
                "do not shorten it",
                share=f"{100 * share:.0f}", longest=f"{facts.longest:,}",
            )
        )  # fmt: skip
    if not whole.mode.shares_gpus:
        for template, gpus, busy in (
            ("the {gpus} GPUs of the rollout wait {idle} % of the step for the update or the sync", whole.rollout_gpus,
             timing.rollout_busy),
            ("the {gpus} GPUs of the update wait {idle} % of the step for the rollout or the sync", whole.train_gpus,
             timing.train_busy),
        ):  # fmt: skip
            if busy < 0.98:
                said.append(Sentence(template, gpus=gpus, idle=f"{100 * (1 - busy):.0f}"))
    if passes.packing.uneven > 1.02:
        said.append(
            Sentence(
                "replicas of the update wait for the one with {uneven} % more tokens than the mean; larger mini batches even it",
                uneven=f"{100 * (passes.packing.uneven - 1):.0f}",
            )
        )
    if passes.packing.padding > 0.02:
        said.append(
            Sentence(
                "{share} % of the positions of the update's micro batches are padding: samples of {mean} tokens take {length}",
                share=f"{100 * passes.packing.padding:.0f}", length=f"{passes.packing.length:,}",
                mean=f"{passes.packing.length * (1 - passes.packing.padding):,.0f}",
            )
        )  # fmt: skip
    if facts.preempted:
        said.append(
            Sentence(
                "{samples} samples lost their cache to others; {tokens} tokens were computed again",
                samples=facts.preempted, tokens=f"{facts.recomputed:,}",
            )
        )  # fmt: skip
    return tuple(said)


def _warnings(whole: RLJob, memory: tuple[PhaseMemory, ...], facts: RolloutFacts) -> tuple[str, ...]:
    """Phases that do not fit, and what to change."""
    found = []
    for one in memory:
        if one.fits:
            continue
        over = (one.total - one.capacity) / 1e9
        if one.phase == "rollout" and whole.mode.shares_gpus:
            less = max(0.05, (whole.rl.rollout.memory or 0.9) - max(over, 0.0) * 1e9 / one.capacity - 0.02)
            hint = f"write rl.rollout.memory = {less:.2f}" + ("" if whole.rl.offload == "all" else ", or rl.offload = all")
        else:
            hint = "lower rl.pack_tokens, or shard the update over more GPUs"
        found.append(f"{one.phase} needs {one.total / 1e9:.1f} GB of {one.capacity / 1e9:.1f} GB a GPU: {hint}")
    return tuple(found)


def _price(whole: RLJob, timing: StepTiming, passes: TrainingPasses, tokens: float) -> tuple[float | None, float | None]:
    """Dollars and joules of a step: updates are matrix products, decoding is bound by memory, the rest waits."""
    gpus, rollout_gpus, train_gpus = whole.job.cluster.gpus, whole.rollout_gpus, whole.train_gpus
    products = sum(phase.seconds for phase in timing.phases if phase.on == "train" and not phase.idle)
    sizes = {group.label: group.gpus for group in whole.rl.groups}
    apart = sum(phase.seconds * sizes[phase.on] for phase in timing.phases if phase.on in sizes)
    decoding = sum(p.seconds for p in timing.phases if p.name == "rollout") * timing.rollout_busy
    computing, reading = (products * train_gpus + apart) / gpus, decoding * rollout_gpus / gpus
    rest = max(0.0, timing.seconds - computing - reading)
    one = bill(whole.job, timing.seconds, tokens, [{"matmul": computing, "memory_bound": reading, "wait_data": rest}])
    return one.cost_per_step, one.energy_j_per_step


__all__ = ["predict_rl", "try_splits"]
