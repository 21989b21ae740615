"""The driver's incident log, with no job behind it."""

from pathlib import Path

from windtunnel.fleet.driver.book import Book
from windtunnel.fleet.driver.plan import JobState
from windtunnel.fleet.driver.sight import SeenFault
from windtunnel.records.incidents import read_incidents


def _crash(at: float) -> SeenFault:
    return SeenFault("crash", ("node0",), (1,), "SIGKILL", at, at + 1.0)


def test_a_fault_amid_the_replay_of_another_counts_steps_once(tmp_path: Path) -> None:
    """100 steps are done, the checkpoint is at 60. The first replay gets 5 steps far: 5 + 40 steps are done twice."""
    book = Book(tmp_path, "job", JobState(nodes=["node0"]))
    book.open(_crash(10.0))
    book.steps(60, 40)
    book.open(_crash(20.0))
    book.struck(5)
    book.spent(start=3.0)
    book.steps(60, 40)
    book.close("recovered")
    first, second = read_incidents(tmp_path)
    assert (first.lost_steps, second.lost_steps) == (5, 40)
    assert (first.seconds.start, second.seconds.start) == (None, 3.0)


def test_what_an_incident_cost_stays_where_the_next_attempt_comes_after_the_replay(tmp_path: Path) -> None:
    book = Book(tmp_path, "job", JobState(nodes=["node0"]))
    book.open(_crash(10.0))
    book.steps(60, 40)
    book.struck(70)
    book.close("recovered")
    assert read_incidents(tmp_path)[0].lost_steps == 40
