"""State machine of a job: RUN → DETECT → DIAGNOSE → WAIT → START → LOAD → REPLAY → RUN, until it ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.fleet.driver.detect import DetectedFault, detect, errors_at_exit
from windtunnel.fleet.driver.incident_log import IncidentLog, SaveWatch
from windtunnel.fleet.driver.plan import JobPlan, JobState, RecoveryContext, RecoveryDecision, decide, ranks_to_rejoin
from windtunnel.fleet.driver.roster import ORDER_SECONDS, NodeTests, Roster
from windtunnel.fleet.driver.stall import may_be_mismatch, name_differing_ranks, name_faulty_node, name_stall_culprits
from windtunnel.fleet.wire.messages import AskRankStatus, Kill, Leave, OrderAnswer, Pick, StartRanks
from windtunnel.records.checkpoint_events import CheckpointEvent
from windtunnel.records.incidents import Class

AGENT_SECONDS = 1.0  # between two looks at agents that have not come
FOLLOWERS_SECONDS = 2.0
"""To wait, if only ranks have ended that follow another one, for the other one to appear."""
STANDS_SECONDS = 5.0  # timeout of a request for the status of the ranks
BEATS_SECONDS = 2.0  # largest age of an agent's report: one heartbeat and its delay
QUIET_START = 60.0
"""Seconds after which a job whose ranks have no rings counts as running: rings are created when torch is imported."""
SAVE_SECONDS = 600.0
"""To wait, after all ranks have ended, for a save that is still being written."""


class Starter(Protocol):
    """The operations that a job needs of the engine (`fleet.engines.Engine`): to restart the agent of a node, and to end it."""

    async def restart(self, node: str) -> None: ...

    async def end(self, node: str) -> None: ...


@dataclass
class DriverJob:
    """Runs a job through its states."""

    plan: JobPlan
    state: JobState
    roster: Roster
    starter: Starter
    incident_log: IncidentLog
    save: Callable[[], None]
    """Stores the state."""
    say: Callable[[str], None]
    """Prints a line for the user."""
    requeue_job: str = ""
    """Number of the Slurm job that is started again when nodes run out; empty for none."""
    ended_agents: Callable[[Sequence[str]], dict[str, str]] = lambda nodes: {}
    """The last line of each node's agent that has ended."""
    _start_ordered_at: float = 0.0
    _slow_reported: bool = False

    def __post_init__(self) -> None:
        self.saves = SaveWatch(Path(self.plan.folder))
        self.tests = NodeTests(self.plan, self.state, self.roster, self.save, self.say)

    async def run(self, resumed: bool) -> int:
        """Runs until the job has ended; returns its exit status."""
        self.saves.skip()
        await self._await_agents(resumed)
        fault = await self._resume_job() if resumed else await self._start_first()
        while True:
            if fault is None:
                fault = await self._watch_until_fault()
            if fault is None:
                return await self._finish(0)
            fault, code = await self._recover(fault)
            if self.state.phase == "REQUEUED" and code is not None:
                return code  # the incident stays open until training goes on
            if code is not None:
                return await self._finish(code)

    # -- start-up

    async def _await_agents(self, resumed: bool) -> None:
        """Waits for the agents of the job's nodes; tells them, and the spares that are connected, to preload modules."""
        limit = self.plan.adopt_seconds if resumed else self.plan.start_seconds
        until, told, look_at = self._monotonic() + limit, set[str](), self._monotonic() + AGENT_SECONDS
        while self._monotonic() < until and (away := [one for one in self.state.nodes if not self.roster.is_responsive(one)]):
            await self._wait_for_change(0.1)
            if self._monotonic() >= look_at:
                look_at = self._monotonic() + AGENT_SECONDS
                for node, words in (await asyncio.to_thread(self.ended_agents, [one for one in away if one not in told])).items():
                    told.add(node)
                    self.say(f"the agent of {node} has ended: {words}")
        await asyncio.gather(*(self.tests.warm(node) for node in [*self.state.nodes, *self.state.spares]))

    async def _start_first(self) -> DetectedFault | None:
        missing = [node for node in self.state.nodes if not self.roster.is_responsive(node)]
        if missing:
            return self._fault_of_nodes("node-lost", missing, "its agent did not come")
        await self._test_spares()
        if self.state.phase == "REQUEUED":
            self.say(f"goes on after attempt {self.state.attempt}: the scheduler has started the job again")
        return await self._start_attempt()

    async def _resume_job(self) -> DetectedFault | None:
        """Continues after the driver itself was restarted: running ranks continue; an interrupted restart is repeated as a new
        attempt.
        """
        state = self.state
        self.roster.begin_attempt(state.attempt, state.nodes)
        awaited = [self.roster.nodes[node] for node in state.nodes if self.roster.is_connected(node)]
        until = self._monotonic() + self.plan.adopt_seconds
        while self._monotonic() < until and not all(node.has_reported for node in awaited):
            await self._wait_for_change(0.1)
        if state.phase in ("DETECT", "DIAGNOSE"):  # no action was taken yet: the fault will be detected again
            if state.phase == "DIAGNOSE" and state.open:
                self.incident_log.record_action("none", "the driver ended before it decided")
                self.incident_log.close_last("ignored")
            state.phase = state.before
        gone = [node for node in state.nodes if len(self.roster.nodes[node].ranks) != self.plan.per_node]
        lost = [node for node in gone if not self.roster.is_responsive(node)]
        if state.phase in ("RUN", "LOAD", "REPLAY"):
            self._start_ordered_at = self._monotonic()
            if gone:
                text = "gone when the driver came back"
                return self._fault_of_nodes("agent-lost", lost, text) if lost else self._fault_of_nodes("crash", gone, text)
            self.say(f"attempt {state.attempt} goes on: the driver is back")
            return None
        self.say("the driver is back, amid a restart")
        await self._release_nodes(state.blocked)
        return await self._kill_ranks(state.nodes) or await self._start_attempt()

    # -- detection

    async def _watch_until_fault(self) -> DetectedFault | None:
        """The next fault; None when all ranks are done."""
        while True:
            await self._wait_for_change(0.25)
            if self.roster.all_ranks_done(self.plan.per_node):
                return None
            self._update_phase()
            self._watch_saves()
            self._watch_gpus()
            fault = self._detect_fault()
            if fault is not None:
                return await self._name_culprits(await self._await_related_faults(fault))
            if self.state.phase in ("LOAD", "REPLAY") and self._monotonic() - self._start_ordered_at > self.plan.load_seconds:
                text = f"no step within {self.plan.load_seconds:g} s"
                return await self._name_culprits(self._fault_of_nodes("hang", list(self.state.nodes), text, separable=False))

    def _watch_saves(self) -> None:
        """Tells of saves that failed, and keeps their incident."""
        for line in self.saves.look(self.incident_log, self._unix_time()):
            self.say(line)

    def _watch_gpus(self) -> None:
        """Tells once of each GPU that is not well. Training goes on; its node is replaced at its next fault."""
        for name in self.state.nodes:
            node = self.roster.nodes[name]
            for text in node.gpus:
                what = text.partition(":")[0]  # without figures, which change
                if what not in self.state.gpus.get(name, []):
                    self.state.gpus.setdefault(name, []).append(what)
                    self.say(f"{name}: {text}")
                    self.incident_log.note("gpu", name, text, self._unix_time())
                    self.save()

    def _detect_fault(self) -> DetectedFault | None:
        fault = detect(self.roster.snapshot(), self.plan.limits)
        if fault is not None and fault.what == "slow":
            if not self._slow_reported:
                self._slow_reported = True
                self.incident_log.open(fault)
                self.incident_log.close_last("ignored")
                self.say(f"slow: {fault.evidence}")
            return None
        if fault is not None and fault.what == "hang" and not fault.nodes:
            ranks = tuple(rank.rank for rank in self.roster.rank_reports())
            return replace(fault, nodes=tuple(self.state.nodes), ranks=ranks)
        return fault

    async def _await_related_faults(self, fault: DetectedFault) -> DetectedFault:
        """The fault after related symptoms have appeared: a second culprit, or the first one if only its followers have ended."""
        self.state.before = self.state.phase
        self._set_phase("DETECT")
        await asyncio.sleep(self.plan.limits.settle)
        later = self._detect_fault() or fault
        missing = any(self.roster.is_overdue(node) for node in self.state.nodes)
        until = self._monotonic() + (self.plan.limits.silent + 1.0 if missing else FOLLOWERS_SECONDS)
        while later.what == "link" and self._monotonic() < until:
            await self._wait_for_change(0.1)
            later = self._detect_fault() or later
        return replace(later, began=min(fault.began, later.began), seen=fault.seen)

    async def _name_culprits(self, fault: DetectedFault) -> DetectedFault:
        """Names the culprit of a hang of all ranks (the one that the others wait for), or of a broken link (the end that broke)."""
        if fault.what == "hang" and not fault.separable:
            fault = name_stall_culprits(fault, await self._ask_rank_status())
        elif may_be_mismatch(fault):
            fault = name_differing_ranks(fault, await self._ask_rank_status())
        stood = self._monotonic() - (self._unix_time() - fault.began)
        since = min(stood, stood if self.roster.moved is None else self.roster.moved) - BEATS_SECONDS
        return name_faulty_node(fault, [self.roster.nodes[node] for node in self.state.nodes], since)

    async def _ask_rank_status(self) -> dict[str, OrderAnswer]:
        roster = self.roster
        able = [node for node in self.state.nodes if roster.is_responsive(node)]
        orders = [roster.send_order(node, AskRankStatus(roster.fence, roster.next_order()), STANDS_SECONDS) for node in able]
        return dict(zip(able, await asyncio.gather(*orders), strict=True))

    def _update_phase(self) -> None:
        """LOAD → REPLAY when the checkpoint is read; REPLAY → RUN when the lost steps have been repeated."""
        state, ranks = self.state, self.roster.rank_reports()
        if state.phase not in ("LOAD", "REPLAY"):
            if state.phase == "RUN" and self.roster.step > 0:
                state.reached = max(state.reached, state.base + self.roster.step)
            return
        anew = [rank for rank in ranks if rank.rank in self.roster.rejoining]
        loaded = max((rank.loaded for rank in anew or ranks), default=-1)
        since = self._monotonic() - self._start_ordered_at
        ringless = bool(ranks) and all(rank.silent < 0 for rank in ranks) and since > QUIET_START
        if state.phase == "LOAD" and (self.roster.has_stepped() or ringless):
            load = max((rank.load_seconds for rank in anew or ranks), default=0.0)
            begin = max(loaded, 0)
            state.base = min(state.base, begin) if anew else begin  # survivors count on
            known = loaded >= 0 or (state.attempt == 0 and not anew)
            if loaded == 0 and state.reached > 0 and not anew:
                again = f"{state.reached:,} step{'' if state.reached == 1 else 's'} are repeated"
                self.say(f"attempt {state.attempt} began again at step 0: {again}; no checkpoint was loaded")
            if state.open:
                self.incident_log.extend("start", self._unix_time(), load)
                self.incident_log.record_steps(begin if known else None, max(0, state.reached - begin) if known else None)
            state.fruitless = 0
            self._set_phase("REPLAY")
        if state.phase == "REPLAY" and (ringless or state.base + self.roster.step >= state.reached or loaded < 0):
            if state.open:
                self.say(f"training goes on, {self._unix_time() - state.open[0].began:.1f} s after the fault")
                self.incident_log.close("recovered")
            state.ran = self._unix_time()
            self._set_phase("RUN")

    # -- decision and action

    async def _recover(self, fault: DetectedFault) -> tuple[DetectedFault | None, int | None]:
        """(next fault or None, exit status or None if the job continues)."""
        if self.state.phase != "DETECT":
            self.state.before = self.state.phase
        self.incident_log.open(fault)
        self._set_phase("DIAGNOSE")
        self.say(f"{fault.what}: {fault.evidence}")
        if fault.what == "agent-lost":
            return await self._recover_lost_agents(fault), None
        await self._test_suspects(fault)
        decision = await self._decide_with_tested_spares(fault)
        unheard = [node for node in self.state.nodes if not self.roster.is_responsive(node)]
        if decision.action == "stop" and unheard and fault.what != "node-lost":
            await self._restart_agents(unheard)
            decision = await self._decide_with_tested_spares(fault)
        self._count_fault(fault)
        ranks = self.roster.rank_reports() if self.plan.rejoin else []
        dead = ranks_to_rejoin(decision, ranks, len(self.state.nodes) * self.plan.per_node, self.state.fruitless)
        self.incident_log.record_action("rejoin" if dead else decision.action, decision.why)
        self.incident_log.extend("diagnose", self._unix_time())
        if decision.out_of_nodes and self.requeue_job:
            self.say(f"{decision.why}: Slurm requeues job {self.requeue_job}")
            self._set_phase("REQUEUED")
            await self._kill_ranks(self.state.nodes)
            await self.leave()
            return None, os.EX_TEMPFAIL
        if decision.action == "stop":
            self.say(f"stops: {decision.why}; its ranks' words are in {self.plan.folder}/logs/attempt-{self.state.attempt:04d}")
            self.incident_log.close("stopped")
            return None, os.EX_IOERR if fault.what == "checkpoint" else 1
        if dead and await self._rejoin(dead):
            return None, None
        old = list(self.state.nodes)
        self._apply_decision(decision)
        self._set_phase("WAIT")
        cleared = await self._kill_ranks(old)
        await self._release_nodes(decision.evict)
        return cleared or await self._start_attempt(), None

    def _decide(self, fault: DetectedFault) -> RecoveryDecision:
        state = self.state
        if state.ran and self._unix_time() - state.ran > self.plan.policy.steady and state.restarts:
            state.restarts = 0
        able = frozenset(node for node in [*state.nodes, *state.spares] if self.roster.is_responsive(node))
        spares = tuple(node for node in state.spares if node in able and node in state.tested and node not in state.blocked)
        usable = able - set(state.blocked)
        standing = RecoveryContext(
            tuple(state.nodes), usable, spares, state.restarts, dict(state.counts), state.fruitless, frozenset(state.gpus)
        )
        return decide(fault, standing, self.plan.policy)

    def _count_fault(self, fault: DetectedFault) -> None:
        state = self.state
        state.restarts += 1
        for key in (fault.what, *(f"{fault.what}@{node}" for node in fault.nodes)):
            state.counts[key] = state.counts.get(key, 0) + 1

    async def _decide_with_tested_spares(self, fault: DetectedFault) -> RecoveryDecision:
        """The decision. Spares that it uses and whose test is too old are tested again first; those that fail are left out."""
        while True:
            decision = self._decide(fault)
            since = self._unix_time() - self.plan.policy.fresh
            stale = [node for node in decision.nodes if node in self.state.spares and self.state.tested.get(node, 0.0) < since]
            if not stale or not self.plan.policy.tests:
                return decision
            await self.tests.test(stale)

    async def _recover_lost_agents(self, fault: DetectedFault) -> DetectedFault | None:
        """Restarts the agents. If an agent still has its ranks, only the agent was lost; otherwise the node is."""
        hellos = {node: self.roster.nodes[node].hellos for node in fault.nodes}
        await self._restart_agents(fault.nodes)
        ranks = {node: len(self.roster.nodes[node].ranks) for node in fault.nodes if self.roster.is_responsive(node)}
        lost = [node for node in fault.nodes if ranks.get(node) != self.plan.per_node]
        again = sum(self.roster.nodes[node].hellos - hellos[node] for node in fault.nodes)
        if not lost:
            self.incident_log.record_action("none", f"the agent is back ({again}), and training went on without it")
            self.incident_log.clear_cost()
            self.incident_log.close_last("recovered")
            self.say(f"the agent of {', '.join(fault.nodes)} is back; its ranks never stopped")
            self._set_phase(self.state.before)
            return None
        self.incident_log.clear_cost()
        self.incident_log.close_last("ignored")
        text = f"no heartbeat, and no ranks of attempt {self.state.attempt} there any more"
        return replace(self._fault_of_nodes("node-lost", lost, text), began=fault.began)

    async def _restart_agents(self, nodes: Sequence[str]) -> None:
        """Restarts agents that do not respond and waits for them: without an agent, the ranks of its node cannot be ended."""
        await asyncio.gather(*(self.starter.restart(node) for node in nodes if not self.roster.is_responsive(node)))
        until = self._monotonic() + self.plan.adopt_seconds
        while self._monotonic() < until and not all(self.roster.is_responsive(node) for node in nodes):
            await self._wait_for_change(0.1)

    async def _test_suspects(self, fault: DetectedFault) -> None:
        """Runs self-tests on the nodes of a fault if the policy asks for it; nodes that fail count as repeat offenders."""
        if not (self.plan.policy.after and fault.separable):
            return
        for node in fault.nodes:
            if self.roster.is_responsive(node) and not await self.tests.passes(node):
                self.state.counts[f"{fault.what}@{node}"] = self.plan.policy.same

    async def _kill_ranks(self, nodes: Sequence[str]) -> DetectedFault | None:
        """Ends all ranks. A node that does not confirm may still run ranks, so it is reported as lost."""
        seconds = self.plan.grace + ORDER_SECONDS
        able = [node for node in nodes if self.roster.is_responsive(node)]
        kills = [Kill(self.roster.fence, self.roster.next_order(), self.state.attempt, self.plan.grace) for _ in able]
        answers = await asyncio.gather(
            *(self.roster.send_order(node, kill, seconds) for node, kill in zip(able, kills, strict=True))
        )
        failed = [node for node, answer in zip(able, answers, strict=True) if answer.refused and node in self.state.nodes]
        return self._fault_of_nodes("node-lost", failed, f"does not end its ranks within {seconds:g} s") if failed else None

    def _apply_decision(self, decision: RecoveryDecision) -> None:
        """Sets the nodes of the next attempt: evicted nodes are blocked, spares that are used leave the list of spares."""
        state = self.state
        state.blocked += [node for node in decision.evict if node not in state.blocked]
        state.nodes = list(decision.nodes)
        state.spares = [node for node in state.spares if node not in decision.nodes]
        if decision.evict:
            self.say(f"without {', '.join(decision.evict)}: now on {', '.join(decision.nodes)}")

    async def _release_nodes(self, nodes: Sequence[str]) -> None:
        """Ends the ranks and agents of `nodes`."""
        for node in nodes:
            if self.roster.is_connected(node):
                await self.roster.send_order(node, Leave(self.roster.fence, self.roster.next_order()), 5.0)
            await self.starter.end(node)

    async def _start_attempt(self) -> DetectedFault | None:
        """Starts a new attempt. A node that fails to start is the next fault."""
        state, fence, nodes = self.state, self.roster.fence, tuple(self.state.nodes)
        state.attempt += 1
        state.fruitless += 1
        self.incident_log.extend("wait", self._unix_time())
        self._set_phase("START")
        self.incident_log.cap_lost_steps(self.roster.step)
        self.roster.begin_attempt(state.attempt, nodes)
        self._start_ordered_at = self._monotonic()
        place = await self.roster.send_order(nodes[0], Pick(fence, self.roster.next_order()), ORDER_SECONDS)
        if place.refused:
            return self._fault_of_nodes("node-lost", [nodes[0]], place.refused)
        state.store = (place.address, place.port)
        refused = await self._order_ranks({node: () for node in nodes})
        if refused:
            return self._fault_of_nodes("node-lost", list(refused), "; ".join(refused.values()))
        self._set_phase("LOAD")
        self.say(f"attempt {state.attempt}: {len(nodes) * self.plan.per_node} ranks on {', '.join(nodes)}")
        return None

    async def _rejoin(self, ranks: tuple[int, ...]) -> bool:
        """Starts ranks that have died anew in this attempt, beside those that live; whether their agents did."""
        state = self.state
        state.fruitless += 1
        self.incident_log.extend("wait", self._unix_time())
        self._set_phase("START")
        self._start_ordered_at = self._monotonic()
        self.roster.begin_rejoin(ranks)
        placed = [(state.nodes[rank // self.plan.per_node], rank) for rank in ranks]
        only = {node: tuple(rank for place, rank in placed if place == node) for node, _ in placed}
        if refused := await self._order_ranks(only):
            self.incident_log.record_action("retry", why := f"all ranks start again: {'; '.join(refused.values())}")
            self.say(why)
            return False
        self._set_phase("LOAD")
        self.say(f"attempt {state.attempt}: rank {', '.join(map(str, ranks))} is started anew, the others stay")
        return True

    async def _order_ranks(self, only: dict[str, tuple[int, ...]]) -> dict[str, str]:
        """Has the agents of these nodes start ranks: all of the node in a new attempt, or those named; why nodes refused."""
        plan, state, roster = self.plan, self.state, self.roster
        orders = [
            StartRanks(
                roster.fence, roster.next_order(), state.attempt, plan.argv, index * plan.per_node, plan.per_node,
                len(state.nodes) * plan.per_node, index, *state.store, plan.run, plan.folder, plan.checkpoint, plan.variables,
                plan.rejoin, only[node],
            ) for index, node in enumerate(state.nodes) if node in only
        ]  # fmt: skip
        nodes = [node for node in state.nodes if node in only]
        answers: list[OrderAnswer] = await asyncio.gather(
            *(roster.send_order(node, order, ORDER_SECONDS) for node, order in zip(nodes, orders, strict=True))
        )
        return {node: answer.refused for node, answer in zip(nodes, answers, strict=True) if answer.refused}

    # -- spares, tests, end

    async def _test_spares(self) -> None:
        until = self._monotonic() + self.plan.start_seconds
        while self._monotonic() < until and not all(self.roster.is_responsive(node) for node in self.state.spares):
            await self._wait_for_change(0.1)
        able = [node for node in self.state.spares if self.roster.is_responsive(node) and node not in self.state.blocked]
        await asyncio.gather(*(self.tests.warm(node) for node in able))
        await self.tests.test(able)

    async def _finish(self, code: int) -> int:
        if code == 0:
            self.incident_log.mark_loaded(self._unix_time())
            for rank, text in errors_at_exit(self.roster.rank_reports()).items():
                self.say(f"crash: {text}")
                self.incident_log.note("crash", self.state.nodes[rank // self.plan.per_node], text, self._unix_time(), (rank,))
        lost = await self._await_saves(SAVE_SECONDS if code == 0 else 0.0)
        done, code = code == 0, code or (os.EX_IOERR if lost else 0)
        if lost:
            self.say(f"{lost}; make room or mend the disk, and run again")
        self.state.phase, self.state.code = "ENDED", code
        self.incident_log.close("recovered" if done else "stopped")
        self.save()
        await self.leave()
        return code

    async def _await_saves(self, seconds: float) -> str:
        """What is lost of the job's last saves, once they have been written or have failed; empty if the newest was kept."""
        until, told = self._monotonic() + seconds, False
        self._watch_saves()
        while self.saves.record.pending is not None and self._monotonic() < until:
            if not told:
                self.say(f"waits for the checkpoint of step {self.saves.record.pending:,} to be written")
            told = True
            await asyncio.sleep(0.2)
            self._watch_saves()
        if seconds > 0 and (step := self.saves.record.pending) is not None:
            self.saves.record.add(CheckpointEvent("failed", step, self._unix_time(), why=f"not written in {seconds:g} s"))
            self._watch_saves()
        return self.saves.record.text

    async def leave(self) -> None:
        """Ends all ranks and agents."""
        nodes = [node for node in self.roster.nodes if self.roster.is_connected(node)]
        orders = [Leave(self.roster.fence, self.roster.next_order()) for _ in nodes]
        await asyncio.gather(*(self.roster.send_order(node, order, 5.0) for node, order in zip(nodes, orders, strict=True)))

    def _monotonic(self) -> float:
        return self.roster.clock.monotonic()

    def _unix_time(self) -> float:
        return self.roster.clock.unix()

    def _fault_of_nodes(self, what: Class, nodes: list[str], text: str, separable: bool = True) -> DetectedFault:
        ranks = tuple(
            rank for index, node in enumerate(self.state.nodes) if node in nodes
            for rank in range(index * self.plan.per_node, (index + 1) * self.plan.per_node)
        )  # fmt: skip
        now = self._unix_time()
        return DetectedFault(what, tuple(nodes), ranks, text, now, now, separable)

    def _set_phase(self, phase: str) -> None:
        self.state.phase = phase
        self.save()

    async def _wait_for_change(self, seconds: float) -> None:
        """Waits until an agent reports something new, or for `seconds`."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.roster.changed.wait(), seconds)
        self.roster.changed.clear()
