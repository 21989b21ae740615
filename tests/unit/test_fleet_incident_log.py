"""The driver's incident log, with no job behind it."""

from pathlib import Path

from windtunnel.fleet.driver.detect import DetectedFault
from windtunnel.fleet.driver.incident_log import IncidentLog
from windtunnel.fleet.driver.plan import JobState
from windtunnel.records.incidents import IncidentSeconds, read_incidents


def _crash(at: float) -> DetectedFault:
    return DetectedFault("crash", ("node0",), (1,), "SIGKILL", at, at + 1.0)


def test_a_fault_amid_the_replay_of_another_counts_steps_once(tmp_path: Path) -> None:
    """100 steps are done, the checkpoint is at 60. The first replay gets 5 steps far: 5 + 40 steps are done twice."""
    incident_log = IncidentLog(tmp_path, "job", JobState(nodes=["node0"]))
    incident_log.open(_crash(10.0))
    incident_log.extend("start", 14.0, load=0.5)
    incident_log.record_steps(60, 40)
    incident_log.open(_crash(20.0))
    incident_log.cap_lost_steps(5)
    incident_log.extend("start", 24.0, load=0.5)
    incident_log.record_steps(60, 40)
    incident_log.close("recovered")
    first, second = read_incidents(tmp_path)
    assert (first.lost_steps, second.lost_steps) == (5, 40)
    assert (first.ended, second.ended) == (14.0, 24.0)


def test_what_an_incident_cost_stays_where_the_next_attempt_comes_after_the_replay(tmp_path: Path) -> None:
    incident_log = IncidentLog(tmp_path, "job", JobState(nodes=["node0"]))
    incident_log.open(_crash(10.0))
    incident_log.record_steps(60, 40)
    incident_log.cap_lost_steps(70)
    incident_log.close("recovered")
    assert read_incidents(tmp_path)[0].lost_steps == 40


def test_parts_add_up_whatever_comes_between(tmp_path: Path) -> None:
    """A fault amid the start of another ends it; a driver that was away for 5 s leaves no second out."""
    incident_log = IncidentLog(tmp_path, "job", JobState(nodes=["node0"]))
    incident_log.open(_crash(10.0))
    incident_log.extend("diagnose", 12.0)
    incident_log.extend("wait", 12.5)
    incident_log.open(_crash(15.0))
    incident_log.extend("diagnose", 16.5)
    incident_log.extend("wait", 21.5)
    incident_log.extend("start", 25.0, load=1.0)
    incident_log.close("recovered")
    first, second = read_incidents(tmp_path)
    assert first.seconds == IncidentSeconds(detect=1.0, diagnose=1.0, wait=0.5, start=2.5)
    assert second.seconds == IncidentSeconds(detect=1.0, diagnose=0.5, wait=5.0, start=2.5, load=1.0)
