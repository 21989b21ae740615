"""The state machine of a job: RUN → DETECT → DIAGNOSE → WAIT → START → LOAD → REPLAY → RUN, until it ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from windtunnel.fleet.driver.detect import detect
from windtunnel.fleet.driver.incident_log import Book
from windtunnel.fleet.driver.link_faults import name_ports
from windtunnel.fleet.driver.plan import JobPlan, JobState
from windtunnel.fleet.driver.policy import RecoveryDecision, Standing, decide
from windtunnel.fleet.driver.roster import Roster
from windtunnel.fleet.driver.snapshot import SeenFault
from windtunnel.fleet.driver.stall import name_silent
from windtunnel.fleet.wire.messages import AskStands, Kill, Leave, OrderAnswer, Pick, RunTest, StartRanks, Warm
from windtunnel.records.incidents import Class

ORDER_SECONDS = 20.0
FOLLOWERS_SECONDS = 2.0
"""Where only ranks have ended that follow another one: for the other one to show."""
STANDS_SECONDS = 5.0
BEATS_SECONDS = 2.0
"""What an agent says is at most so old: a heartbeat and its delay."""
QUIET_START = 60.0
"""A job whose ranks have no rings runs when its processes have lived for so long: ranks make theirs when torch is imported."""


class Starter(Protocol):
    """What a job asks of the engine (`fleet.engines.Engine`)."""

    async def restart(self, node: str) -> None:
        """Starts the node's agent anew."""

    async def end(self, node: str) -> None:
        """Ends the node's agent."""


@dataclass
class DriverJob:
    """`save` keeps the state; `say` tells a person."""

    plan: JobPlan
    state: JobState
    roster: Roster
    starter: Starter
    book: Book
    save: Callable[[], None]
    say: Callable[[str], None]
    _ordered: float = 0.0
    _slow_told: bool = False

    async def run(self, resumed: bool) -> int:
        """Until the job has ended; the exit status."""
        await self._gather(resumed)
        fault = await self._resume() if resumed else await self._first()
        while True:
            if fault is None:
                fault = await self._watch()
            if fault is None:
                return await self._ended(0)
            fault, code = await self._recover(fault)
            if code is not None:
                return await self._ended(code)

    # -- coming up

    async def _gather(self, resumed: bool) -> None:
        """Waits for the agents of the nodes that the job runs on; they and the spares that are there get warm."""
        limit = self.plan.adopt_seconds if resumed else self.plan.start_seconds
        until = self._now() + limit
        while self._now() < until and not all(self.roster.able(node) for node in self.state.nodes):
            await self._changed(0.1)
        await asyncio.gather(*(self._warm(node) for node in [*self.state.nodes, *self.state.spares]))

    async def _first(self) -> SeenFault | None:
        missing = [node for node in self.state.nodes if not self.roster.able(node)]
        if missing:
            return self._fault("node-lost", missing, "its agent did not come")
        await self._test_spares()
        return await self._start()

    async def _resume(self) -> SeenFault | None:
        """After a driver's end: what runs goes on; what was amid a restart is started once more, under a new number."""
        state = self.state
        self.roster.begin(state.attempt, state.nodes)
        for node in state.nodes:
            known = self.roster.nodes[node]
            if known.channel is not None:
                known.attempt = -2
        until = self._now() + self.plan.adopt_seconds
        while self._now() < until and any(self.roster.nodes[node].attempt == -2 for node in state.nodes):
            await self._changed(0.1)
        if state.phase in ("DETECT", "DIAGNOSE"):  # nothing was done yet: what is wrong will show again
            if state.phase == "DIAGNOSE" and state.open:
                self.book.decided("none", "the driver ended before it decided")
                self.book.close_last("ignored")
            state.phase = state.before
        gone = [node for node in state.nodes if len(self.roster.nodes[node].ranks) != self.plan.per_node]
        lost = [node for node in gone if not self.roster.able(node)]
        if state.phase in ("RUN", "LOAD", "REPLAY"):
            self._ordered = self._now()
            if gone:
                text = "gone when the driver came back"
                return self._fault("agent-lost", lost, text) if lost else self._fault("crash", gone, text)
            self.say(f"attempt {state.attempt} goes on: the driver is back")
            return None
        self.say("the driver is back, amid a restart")
        await self._let_go(state.blocked)
        return await self._cleared(state.nodes) or await self._start()

    # -- seeing

    async def _watch(self) -> SeenFault | None:
        """The next fault; None when all ranks are done."""
        while True:
            await self._changed(0.25)
            if self.roster.done(self.plan.per_node):
                return None
            self._progress()
            fault = self._detected()
            if fault is not None:
                return await self._blamed(await self._settled(fault))
            if self.state.phase in ("LOAD", "REPLAY") and self._now() - self._ordered > self.plan.load_seconds:
                text = f"no step within {self.plan.load_seconds:g} s"
                return await self._blamed(self._fault("hang", list(self.state.nodes), text, separable=False))

    def _detected(self) -> SeenFault | None:
        fault = detect(self.roster.sight(), self.plan.limits)
        if fault is not None and fault.what == "slow":
            if not self._slow_told:
                self._slow_told = True
                self.book.open(fault)
                self.book.close_last("ignored")
                self.say(f"slow: {fault.evidence}")
            return None
        if fault is not None and fault.what == "hang" and not fault.nodes:
            ranks = tuple(rank.rank for rank in self.roster.ranks())
            return replace(fault, nodes=tuple(self.state.nodes), ranks=ranks)
        return fault

    async def _settled(self, fault: SeenFault) -> SeenFault:
        """The fault once what belongs to it has shown: a second culprit, or the first where only its followers have ended."""
        self.state.before = self.state.phase
        self._phase("DETECT")
        await asyncio.sleep(self.plan.limits.settle)
        later = self._detected() or fault
        missing = any(self.roster.quiet(node) for node in self.state.nodes)
        until = self._now() + (self.plan.limits.silent + 1.0 if missing else FOLLOWERS_SECONDS)
        while later.what == "link" and self._now() < until:
            await self._changed(0.1)
            later = self._detected() or later
        return replace(later, began=min(fault.began, later.began), seen=fault.seen)

    async def _blamed(self, fault: SeenFault) -> SeenFault:
        """A hang of all ranks with the one that the others wait for as its culprit; a broken link, with the end that broke."""
        if fault.what == "hang" and not fault.separable:
            fault = await self._silent(fault)
        stood = self._now() - (self._unix() - fault.began)
        since = min(stood, stood if self.roster.moved is None else self.roster.moved) - BEATS_SECONDS
        return name_ports(fault, [self.roster.nodes[node] for node in self.state.nodes], since)

    async def _silent(self, fault: SeenFault) -> SeenFault:
        able = [node for node in self.state.nodes if self.roster.able(node)]
        asks = [AskStands(self.roster.fence, self.roster.number()) for _ in able]
        answers = await asyncio.gather(
            *(self.roster.order(node, ask, STANDS_SECONDS) for node, ask in zip(able, asks, strict=True))
        )
        return name_silent(fault, dict(zip(able, answers, strict=True)))

    def _progress(self) -> None:
        """From LOAD to REPLAY when the checkpoint is read, to RUN when the steps that were lost are done again."""
        state, ranks = self.state, self.roster.ranks()
        if state.phase not in ("LOAD", "REPLAY"):
            if state.phase == "RUN" and self.roster.step > 0:
                state.reached = max(state.reached, state.base + self.roster.step)
            return
        loaded = max((rank.loaded for rank in ranks), default=-1)
        since = self._now() - self._ordered
        ringless = bool(ranks) and all(rank.silent < 0 for rank in ranks) and since > QUIET_START
        if state.phase == "LOAD" and (self.roster.step >= 1 or ringless):
            load = max((rank.load_seconds for rank in ranks), default=0.0)
            state.base = max(loaded, 0)
            known = loaded >= 0 or state.attempt == 0
            if state.open:
                self.book.lasts("start", self._unix(), load)
                self.book.steps(state.base if known else None, max(0, state.reached - state.base) if known else None)
            state.fruitless = 0
            self._phase("REPLAY")
        if state.phase == "REPLAY" and (ringless or state.base + self.roster.step >= state.reached or loaded < 0):
            if state.open:
                self.say(f"training goes on, {self._unix() - state.open[0].began:.1f} s after the fault")
                self.book.close("recovered")
            state.ran = self._unix()
            self._phase("RUN")

    # -- deciding and acting

    async def _recover(self, fault: SeenFault) -> tuple[SeenFault | None, int | None]:
        """(next fault or None, exit status or None where the job goes on)."""
        if self.state.phase != "DETECT":
            self.state.before = self.state.phase
        self.book.open(fault)
        self._phase("DIAGNOSE")
        self.say(f"{fault.what}: {fault.evidence}")
        if fault.what == "agent-lost":
            return await self._agent_lost(fault), None
        await self._tested_suspects(fault)
        decision = await self._with_sound_spares(fault)
        unheard = [node for node in self.state.nodes if not self.roster.able(node)]
        if decision.action == "stop" and unheard and fault.what != "node-lost":
            await self._fetched(unheard)
            decision = await self._with_sound_spares(fault)
        self._count(fault)
        self.book.decided(decision.action, decision.why)
        self.book.lasts("diagnose", self._unix())
        if decision.action == "stop":
            self.say(f"stops: {decision.why}; its ranks' words are in {self.plan.folder}/logs/attempt-{self.state.attempt:04d}")
            self.book.close("stopped")
            return None, 1
        old = list(self.state.nodes)
        self._take(decision)
        self._phase("WAIT")
        cleared = await self._cleared(old)
        await self._let_go(decision.evict)
        return cleared or await self._start(), None

    def _decision(self, fault: SeenFault) -> RecoveryDecision:
        state = self.state
        if state.ran and self._unix() - state.ran > self.plan.policy.steady and state.restarts:
            state.restarts = 0
        able = frozenset(node for node in [*state.nodes, *state.spares] if self.roster.able(node))
        spares = tuple(node for node in state.spares if node in able and node in state.tested and node not in state.blocked)
        usable = able - set(state.blocked)
        standing = Standing(tuple(state.nodes), usable, spares, state.restarts, dict(state.counts), state.fruitless)
        return decide(fault, standing, self.plan.policy)

    def _count(self, fault: SeenFault) -> None:
        state = self.state
        state.restarts += 1
        for key in (fault.what, *(f"{fault.what}@{node}" for node in fault.nodes)):
            state.counts[key] = state.counts.get(key, 0) + 1

    async def _with_sound_spares(self, fault: SeenFault) -> RecoveryDecision:
        """The decision; spares that it takes and whose test is long ago pass it again before, or it is made without them."""
        while True:
            decision = self._decision(fault)
            since = self._unix() - self.plan.policy.fresh
            stale = [node for node in decision.nodes if node in self.state.spares and self.state.tested.get(node, 0.0) < since]
            if not stale or not self.plan.policy.tests:
                return decision
            await self._test(stale)

    async def _agent_lost(self, fault: SeenFault) -> SeenFault | None:
        """Starts the agents anew: those that find their ranks had only been lost themselves; else the node is."""
        hellos = {node: self.roster.nodes[node].hellos for node in fault.nodes}
        await self._fetched(fault.nodes)
        ranks = {node: len(self.roster.nodes[node].ranks) for node in fault.nodes if self.roster.able(node)}
        lost = [node for node in fault.nodes if ranks.get(node) != self.plan.per_node]
        again = sum(self.roster.nodes[node].hellos - hellos[node] for node in fault.nodes)
        if not lost:
            self.book.decided("none", f"the agent is back ({again}), and training went on without it")
            self.book.free()
            self.book.close_last("recovered")
            self.say(f"the agent of {', '.join(fault.nodes)} is back; its ranks never stopped")
            self._phase(self.state.before)
            return None
        self.book.free()
        self.book.close_last("ignored")
        text = f"no heartbeat, and no ranks of attempt {self.state.attempt} there any more"
        return replace(self._fault("node-lost", lost, text), began=fault.began)

    async def _fetched(self, nodes: Sequence[str]) -> None:
        """Starts the agents that are not there anew, and waits for them: without one, nobody can end the ranks of its node."""
        await asyncio.gather(*(self.starter.restart(node) for node in nodes if not self.roster.able(node)))
        until = self._now() + self.plan.adopt_seconds
        while self._now() < until and not all(self.roster.able(node) for node in nodes):
            await self._changed(0.1)

    async def _tested_suspects(self, fault: SeenFault) -> None:
        """Self-tests of the nodes of a fault, where the policy has them; those that fail count as worn out."""
        if not (self.plan.policy.after and fault.separable):
            return
        for node in fault.nodes:
            if self.roster.able(node) and not await self._passes(node):
                self.state.counts[f"{fault.what}@{node}"] = self.plan.policy.same

    async def _cleared(self, nodes: Sequence[str]) -> SeenFault | None:
        """Ends all ranks. Those of a node that does not say so may live: it cannot be one of the next attempt."""
        seconds = self.plan.grace + ORDER_SECONDS
        able = [node for node in nodes if self.roster.able(node)]
        kills = [Kill(self.roster.fence, self.roster.number(), self.state.attempt, self.plan.grace) for _ in able]
        answers = await asyncio.gather(*(self.roster.order(node, kill, seconds) for node, kill in zip(able, kills, strict=True)))
        failed = [node for node, answer in zip(able, answers, strict=True) if answer.refused and node in self.state.nodes]
        return self._fault("node-lost", failed, f"does not end its ranks within {seconds:g} s") if failed else None

    def _take(self, decision: RecoveryDecision) -> None:
        """The nodes of the next attempt: evicted ones are blocked, spares that came in are no spares any more."""
        state = self.state
        state.blocked += [node for node in decision.evict if node not in state.blocked]
        state.nodes = list(decision.nodes)
        state.spares = [node for node in state.spares if node not in decision.nodes]
        if decision.evict:
            self.say(f"without {', '.join(decision.evict)}: now on {', '.join(decision.nodes)}")

    async def _let_go(self, nodes: Sequence[str]) -> None:
        """Ends ranks and agents there."""
        for node in nodes:
            if self.roster.connected(node):
                await self.roster.order(node, Leave(self.roster.fence, self.roster.number()), 5.0)
            await self.starter.end(node)

    async def _start(self) -> SeenFault | None:
        return await self._start_on(tuple(self.state.nodes))

    async def _start_on(self, nodes: tuple[str, ...]) -> SeenFault | None:
        """Starts a new attempt. A node that does not is the next fault."""
        state, fence = self.state, self.roster.fence
        state.attempt += 1
        state.fruitless += 1
        self.book.lasts("wait", self._unix())
        self._phase("START")
        self.book.struck(self.roster.step)
        self.roster.begin(state.attempt, nodes)
        self._ordered = self._now()
        place = await self.roster.order(nodes[0], Pick(fence, self.roster.number()), ORDER_SECONDS)
        if place.refused:
            return self._fault("node-lost", [nodes[0]], place.refused)
        plan = self.plan
        orders = [
            StartRanks(
                fence, self.roster.number(), state.attempt, plan.argv, index * plan.per_node, plan.per_node,
                len(nodes) * plan.per_node, index, place.address, place.port, plan.run, plan.folder, plan.checkpoint,
                plan.variables,
            ) for index in range(len(nodes))
        ]  # fmt: skip
        answers: list[OrderAnswer] = await asyncio.gather(
            *(self.roster.order(node, order, ORDER_SECONDS) for node, order in zip(nodes, orders, strict=True))
        )
        lost = [node for node, answer in zip(nodes, answers, strict=True) if answer.refused]
        if lost:
            why = "; ".join(answer.refused for answer in answers if answer.refused)
            return self._fault("node-lost", lost, why)
        self._phase("LOAD")
        self.say(f"attempt {state.attempt}: {len(nodes) * plan.per_node} ranks on {', '.join(nodes)}")
        return None

    # -- spares, tests, the end

    async def _warm(self, node: str) -> None:
        if self.plan.preload and self.roster.connected(node) and not self.roster.nodes[node].warm:
            await self.roster.order(node, Warm(self.roster.fence, self.roster.number(), self.plan.preload), ORDER_SECONDS)

    async def _test_spares(self) -> None:
        until = self._now() + self.plan.start_seconds
        while self._now() < until and not all(self.roster.able(node) for node in self.state.spares):
            await self._changed(0.1)
        able = [node for node in self.state.spares if self.roster.able(node) and node not in self.state.blocked]
        await asyncio.gather(*(self._warm(node) for node in able))
        await self._test(able)

    async def _test(self, spares: list[str]) -> None:
        """Tests them at the same time; one that fails is a spare no more."""
        passed = await asyncio.gather(*(self._passes(node) for node in spares))
        for node, right in zip(spares, passed, strict=True):
            if right:
                self.state.tested[node] = self._unix()
            else:
                self.state.tested.pop(node, None)
                self.state.blocked.append(node)
                self.state.spares.remove(node)
        self.save()

    async def _passes(self, node: str) -> bool:
        policy = self.plan.policy
        for name, *options in policy.tests:
            order = RunTest(self.roster.fence, self.roster.number(), name, tuple(options), policy.test_seconds)
            answer = await self.roster.order(node, order, policy.test_seconds + 5.0)
            if answer.refused or answer.passed is False:
                self.say(f"{node} fails {name}: {answer.refused or answer.why}")
                return False
        return True

    async def _ended(self, code: int) -> int:
        if code == 0:
            self.book.loaded(self._unix())
        self.state.phase, self.state.code = "ENDED", code
        self.book.close("recovered" if code == 0 else "stopped")
        self.save()
        await self.leave()
        return code

    async def leave(self) -> None:
        """Ends all ranks and agents."""
        nodes = [node for node in self.roster.nodes if self.roster.connected(node)]
        orders = [Leave(self.roster.fence, self.roster.number()) for _ in nodes]
        await asyncio.gather(*(self.roster.order(node, order, 5.0) for node, order in zip(nodes, orders, strict=True)))

    # -- small things

    def _now(self) -> float:
        return self.roster.clock.monotonic()

    def _unix(self) -> float:
        return self.roster.clock.unix()

    def _fault(self, what: Class, nodes: list[str], text: str, separable: bool = True) -> SeenFault:
        ranks = tuple(
            rank for index, node in enumerate(self.state.nodes) if node in nodes
            for rank in range(index * self.plan.per_node, (index + 1) * self.plan.per_node)
        )  # fmt: skip
        now = self._unix()
        return SeenFault(what, tuple(nodes), ranks, text, now, now, separable)

    def _phase(self, phase: str) -> None:
        self.state.phase = phase
        self.save()

    async def _changed(self, seconds: float) -> None:
        """Waits until an agent says something new, or so many seconds."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.roster.changed.wait(), seconds)
        self.roster.changed.clear()
