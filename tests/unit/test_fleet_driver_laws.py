"""What must hold for a driver whatever happens: random faults in virtual time, no process and no sleep."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import pytest
from drawn import examples
from fleet_world import World, virtual
from hypothesis import example, given, note
from hypothesis import strategies as st

from windtunnel.fleet.driver.plan import JobPlan, RecoveryPolicy
from windtunnel.records.incidents import Incident, read_incidents

RESTARTS = ("retry", "replace", "shrink")
KINDS = (
    "crash", "two", "nan", "stopped", "spin", "agent-killed", "agent-frozen", "node-lost", "spare-broken", "slow-orders",
    "driver-killed", "driver-at-save",
)  # fmt: skip
FAULTS = st.lists(
    st.tuples(st.integers(0, 120).map(lambda quarter: quarter / 4), st.sampled_from(KINDS), st.integers(0, 30)), max_size=8
)


def _world(folder: Path, rejoin: bool = False, **policy: object) -> World:
    plan = JobPlan(
        ("train",), 2, 2, 2, "job", str(folder), preload=("torch",), load_seconds=60.0, start_seconds=20.0, adopt_seconds=5.0,
        rejoin=rejoin,
        policy=RecoveryPolicy(**{"retries": 6, "tests": (("memory-copy",),), **policy}),  # type: ignore[arg-type]
    )  # fmt: skip
    return World(plan, folder)


def _laws(world: World, code: int, faults: list[tuple[float, str, int]], incidents: list[Incident]) -> None:
    assert not world.broken
    assert world.state is not None and world.state.phase == "ENDED"
    assert all(one.outcome != "open" for one in incidents)
    assert not list(world.living())
    if code:
        assert any(" stops: " in line for line in world.history)
    else:
        assert any(one.code == 0 for node in world.nodes.values() for one in node.ranks.values())
    assert set().union(*world.started.values()) - set(world.state.nodes) <= set(world.state.blocked)
    restarts = [one for one in incidents if one.action in RESTARTS]
    assert world.newest <= len(restarts) + world.resumed_amid
    hurts = sum(kind not in ("driver-killed", "driver-at-save", "spare-broken") for _, kind, _ in faults)
    if not any(kind == "slow-orders" for _, kind, _ in faults):
        assert len(restarts) <= hurts
    assert len(restarts) <= world.plan.policy.retries
    _parts(world, {one.number: one for one in incidents})


def _parts(world: World, incidents: dict[int, Incident]) -> None:
    """An incident lasts until the next one begins or training goes on: not longer, and no second lacks."""
    went_on: dict[int, float] = {}
    for moment, numbers in world.went_on:
        went_on.setdefault(numbers[-1], moment)
        for number, following in zip(numbers, numbers[1:], strict=False):
            until = min(went_on.get(number, moment), max(incidents[following].began, incidents[number].seen))
            assert until - 0.01 <= incidents[number].ended <= moment + 0.01, (number, following, until)
    for number, moment in went_on.items():
        assert incidents[number].ended == pytest.approx(moment, abs=0.01), number


@examples(35)
@example([(0.0, "driver-killed", 0), (1.75, "crash", 0), (0.0, "agent-killed", 1)], False, False, 1, False)
@example([(12.0, "node-lost", 7), (12.0, "node-lost", 7), (21.25, "node-lost", 14)], True, False, 6, True)
@given(FAULTS, st.booleans(), st.booleans(), st.sampled_from([1, 2, 6]), st.booleans())
def test_any_faults_in_any_order(
    faults: list[tuple[float, str, int]], shrink: bool, after: bool, retries: int, rejoin: bool
) -> None:
    """One generation of ranks at a time; no restart twice for one fault; bounded; blocked nodes stay out; every incident ends and
    its parts add up; the job ends done or with a reason."""
    with tempfile.TemporaryDirectory() as place:
        world = _world(Path(place), rejoin, shrink=shrink, after=after, retries=retries)
        try:
            code = virtual(world.run(faults))
        finally:
            note("\n".join(world.history))
        _laws(world, code, faults, list(read_incidents(Path(place))))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("spare-broken", "slow-orders")])
def test_one_fault_costs_at_most_one_restart(kind: str, tmp_path: Path) -> None:
    world = _world(tmp_path)
    assert virtual(world.run([(12.0, kind, 1)])) == 0, world.history
    incidents = list(read_incidents(tmp_path))
    _laws(world, 0, [(12.0, kind, 1)], incidents)
    assert sum(one.action in RESTARTS for one in incidents) == (0 if kind.startswith(("agent", "driver")) else 1)


@pytest.mark.parametrize("kind", ["crash", "two"])
def test_ranks_that_die_rejoin_the_attempt(kind: str, tmp_path: Path) -> None:
    world = _world(tmp_path, rejoin=True)
    assert virtual(world.run([(12.0, kind, 1), (22.0, kind, 2)])) == 0, world.history
    incidents = list(read_incidents(tmp_path))
    _laws(world, 0, [(12.0, kind, 1), (22.0, kind, 2)], incidents)
    assert [(one.action, one.outcome, one.lost_steps) for one in incidents] == [("rejoin", "recovered", 0)] * 2, world.history
    assert world.newest == 0


def test_a_hang_names_the_rank_that_the_others_wait_for(tmp_path: Path) -> None:
    world = _world(tmp_path)
    assert virtual(world.run([(12.0, "spin", 2)])) == 0, world.history
    (hang,) = read_incidents(tmp_path)
    assert (hang.what, hang.node, hang.ranks, hang.action) == ("hang", "n1", (2,), "retry")
    assert "rank 2: has not begun" in hang.evidence


@pytest.mark.parametrize("fresh", [0.0, 3600.0])
def test_a_spare_that_broke_while_it_waited_is_tested_again(fresh: float, tmp_path: Path) -> None:
    """The first spare would be taken. Its test before the job is not enough where it is called old."""
    world = _world(tmp_path, fresh=fresh)
    assert virtual(world.run([(6.0, "spare-broken", 1), (12.0, "node-lost", 1)])) == 0, world.history
    (lost,) = [one for one in read_incidents(tmp_path) if one.what == "node-lost"]
    assert lost.action == "replace" and world.state is not None
    assert ("n2" in world.state.blocked, "n2" in world.state.nodes) == ((True, False) if fresh == 0.0 else (False, True))


def test_a_spare_that_comes_late_gets_warm_too(tmp_path: Path) -> None:
    world = _world(tmp_path)
    late = list(world.nodes.values())[-1]

    async def run() -> int:
        late.frozen = True
        asyncio.get_running_loop().call_later(6.0, setattr, late, "frozen", False)
        return await world.run([])

    assert virtual(run()) == 0, world.history
    assert [node.name for node in world.nodes.values() if not node.warm] == []
