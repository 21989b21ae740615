"""What is done about faults: bounded for any of them, never on a node that is not able; one owner of a job."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
from drawn import examples
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.fleet.driver.detect import DetectedFault
from windtunnel.fleet.driver.plan import ACTIONS_BY_FAULT, RecoveryContext, RecoveryDecision, RecoveryPolicy, decide
from windtunnel.fleet.driver.serve import DriverStore, FencedError
from windtunnel.records.incidents import Class

NODES = ("n0", "n1", "n2")
SPARES = ("s0", "s1")


def _fault(what: str = "crash", nodes: tuple[str, ...] = ("n1",), separable: bool = True) -> DetectedFault:
    return DetectedFault(what, nodes, (), "", 0.0, 0.0, separable)  # type: ignore[arg-type]


def _standing(**changed: Any) -> RecoveryContext:
    fields = {"nodes": NODES, "able": frozenset(NODES + SPARES), "spares": SPARES}
    return RecoveryContext(**{**fields, **changed})


def test_every_class_has_a_line() -> None:
    assert set(ACTIONS_BY_FAULT) == set(get_args(Class))


def test_a_crash_is_tried_again_in_place_then_elsewhere() -> None:
    assert decide(_fault(), _standing(), RecoveryPolicy()) == RecoveryDecision("retry", NODES)
    worn = decide(_fault(), _standing(counts={"crash@n1": 2, "crash": 2}), RecoveryPolicy())
    assert (worn.action, worn.nodes, worn.evict) == ("replace", ("n0", "s0", "n2"), ("n1",))


def test_a_cuda_error_is_the_nodes() -> None:
    assert decide(_fault("cuda"), _standing(), RecoveryPolicy()).nodes == ("n0", "s0", "n2")
    assert decide(_fault("cuda"), _standing(spares=()), RecoveryPolicy()).action == "retry"


def test_a_lost_node_needs_a_spare_or_leave_to_shrink() -> None:
    gone = frozenset(NODES + SPARES) - {"n1"}
    assert decide(_fault("node-lost"), _standing(able=gone), RecoveryPolicy()).nodes == ("n0", "s0", "n2")
    stopped = decide(_fault("node-lost"), _standing(able=gone, spares=()), RecoveryPolicy())
    assert (stopped.action, stopped.why) == ("stop", "no spare for n1")
    shrunk = decide(_fault("node-lost"), _standing(able=gone, spares=()), RecoveryPolicy(shrink=True))
    assert (shrunk.action, shrunk.nodes, shrunk.evict) == ("shrink", ("n0", "n2"), ("n1",))


def test_another_node_that_is_gone_is_replaced_too() -> None:
    gone = frozenset(NODES + SPARES) - {"n0"}
    assert decide(_fault("crash"), _standing(able=gone), RecoveryPolicy()).nodes == ("s0", "n1", "n2")


def test_a_program_that_never_makes_a_step_is_stopped() -> None:
    assert decide(_fault(), _standing(fruitless=2), RecoveryPolicy()).action == "retry"
    stopped = decide(_fault(), _standing(fruitless=3), RecoveryPolicy())
    assert (stopped.action, stopped.why) == ("stop", "3 attempts in a row ended before their first step")
    assert decide(_fault("node-lost"), _standing(fruitless=3), RecoveryPolicy()).action != "stop"


def test_a_program_that_fails_is_stopped() -> None:
    again = decide(_fault("nan"), _standing(counts={"nan": 2}), RecoveryPolicy())
    assert again.action == "stop"
    assert "nan" in again.why


def test_restarts_in_a_row_are_bounded() -> None:
    assert decide(_fault(), _standing(restarts=10), RecoveryPolicy()).action == "stop"


def test_a_culprit_that_cannot_be_told_takes_its_group_along() -> None:
    group = _fault("hang", ("n0", "n1"), separable=False)
    assert decide(group, _standing(), RecoveryPolicy()).action == "retry"
    assert decide(group, _standing(counts={"hang": 2}), RecoveryPolicy()).evict == ("n0", "n1")


_FAULTS = st.tuples(
    st.sampled_from(sorted(ACTIONS_BY_FAULT)),
    st.sets(st.integers(0, 4), min_size=1),
    st.booleans(),
    st.sets(st.integers(0, 4), max_size=2),
)


@examples(100)
@given(st.lists(_FAULTS, min_size=1, max_size=60), st.booleans(), st.integers(0, 12))
def test_bounded_and_no_livelock(faults: list[Any], shrink: bool, retries: int) -> None:
    """Whatever faults come in whatever order: at most `retries` restarts without steady training, only able nodes, no node twice,
    none that was evicted."""
    policy, every = RecoveryPolicy(retries=retries, shrink=shrink), list(NODES + SPARES)
    nodes, counts, blocked, restarts = NODES, {}, set[str](), 0
    for what, numbers, separable, dead in faults:
        at = tuple(every[number] for number in sorted(numbers) if every[number] in nodes)
        if not at:
            continue
        able = frozenset(every) - {every[number] for number in dead} - blocked
        spares = tuple(node for node in SPARES if node in able and node not in nodes)
        decision = decide(_fault(what, at, separable), RecoveryContext(nodes, able, spares, restarts, dict(counts)), policy)
        if decision.action == "stop":
            assert decision.why
            return
        if decision.action == "none":
            assert decision.nodes == nodes
            continue
        restarts += 1
        assert restarts <= retries
        assert len(set(decision.nodes)) == len(decision.nodes) > 0
        assert set(decision.nodes) <= able
        assert len(decision.nodes) == len(nodes) or shrink
        assert not set(decision.evict) & set(decision.nodes)
        blocked |= set(decision.evict)
        nodes = decision.nodes
        for key in (what, *(f"{what}@{node}" for node in at)):
            counts[key] = counts.get(key, 0) + 1


@pytest.fixture
def store(tmp_path: Path) -> Any:
    made = DriverStore(f"sqlite:///{tmp_path / 'driver.db'}")
    yield made
    made.close()


def test_a_stale_driver_writes_nothing(store: DriverStore) -> None:
    first = store.acquire("a", 3.0, 100.0)
    assert first == 1
    store.put(first, "state", {"x": 1})
    assert store.acquire("b", 3.0, 102.0) is None
    second = store.acquire("b", 3.0, 104.0)
    assert second == 2
    with pytest.raises(FencedError, match="driver 1 has lost the job to driver 2"):
        store.put(first, "state", {"x": 2})
    assert not store.renew(first, 3.0, 104.0)
    assert store.get("state") == {"x": 1}


def test_a_lease_that_is_given_back_is_free(store: DriverStore) -> None:
    fence = store.acquire("a", 3.0, 100.0)
    assert fence is not None
    store.release(fence)
    assert store.acquire("b", 3.0, 100.0) == 2


@examples(20)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["take", "renew", "put"]), st.integers(0, 4)), max_size=40))
def test_exactly_one_owner(steps: list[tuple[str, str, int]]) -> None:
    """Only who took the lease last can renew it or write, and it is never taken before it has expired."""
    store, now, fences, owner, expires = DriverStore("sqlite://"), 0.0, dict[str, int](), "", 0.0
    for who, what, later in steps:
        now += later
        if what == "take":
            fence = store.acquire(who, 3.0, now)
            assert (fence is None) == (bool(owner) and expires > now and owner != who)
            if fence is not None:
                assert fence > max(fences.values(), default=0)
                fences[who], owner, expires = fence, who, now + 3.0
        elif who in fences and what == "renew":
            right = store.renew(fences[who], 3.0, now)
            assert right == (owner == who)
            expires = now + 3.0 if right else expires
        elif who in fences:
            try:
                store.put(fences[who], "x", who)
                assert owner == who
            except FencedError:
                assert owner != who
    store.close()
