"""Self-tests of nodes before they are used, and modules that they import in advance."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from windtunnel.fleet.driver.plan import JobPlan, JobState
from windtunnel.fleet.driver.roster import Roster
from windtunnel.fleet.wire.messages import RunTest, Warm

ORDER_SECONDS = 20.0
"""Time for an agent to answer an order."""


@dataclass
class NodeTests:
    """What a job asks of a node before it runs there."""

    plan: JobPlan
    state: JobState
    roster: Roster
    save: Callable[[], None]
    say: Callable[[str], None]

    async def warm(self, node: str) -> None:
        """Has the node's keeper import the script's modules."""
        if self.plan.preload and self.roster.is_connected(node) and not self.roster.nodes[node].warm:
            await self.roster.send_order(node, Warm(self.roster.fence, self.roster.next_order(), self.plan.preload), ORDER_SECONDS)

    async def test(self, spares: Sequence[str]) -> None:
        """Tests spares concurrently; one that fails is blocked."""
        passed = await asyncio.gather(*(self.passes(node) for node in spares))
        for node, right in zip(spares, passed, strict=True):
            if right:
                self.state.tested[node] = self.roster.clock.unix()
            else:
                self.state.tested.pop(node, None)
                self.state.blocked.append(node)
                self.state.spares.remove(node)
        self.save()

    async def passes(self, node: str) -> bool:
        """Whether the node passes the tests of the policy; says which it fails."""
        policy = self.plan.policy
        for name, *options in policy.tests:
            order = RunTest(self.roster.fence, self.roster.next_order(), name, tuple(options), policy.test_seconds)
            answer = await self.roster.send_order(node, order, policy.test_seconds + 5.0)
            if answer.refused or answer.passed is False:
                self.say(f"{node} fails {name}: {answer.refused or answer.why}")
                return False
        return True
