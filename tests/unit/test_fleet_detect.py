"""Each rule of the table, and how culprits are told from those that follow them."""

from __future__ import annotations

from pathlib import Path

import pytest

from windtunnel.fleet.agent.node_probes import PATTERNS, LogTail, last_exception, match_lines
from windtunnel.fleet.driver.detect import JOB_RULES, RANK_RULES, DetectionLimits, JobSnapshot, NodeSnapshot, describe_exit, detect
from windtunnel.fleet.wire.messages import LogFinding, RankReport

LIMITS = DetectionLimits(step=(0.1, 0.2))
NOW = 1000.0
PEER = (LogFinding("peer", "Connection reset by peer"),)


def _ended(rank: int, code: int, ended: float = NOW - 0.1, *kinds: str) -> RankReport:
    return RankReport(
        rank, 100 + rank, code, "", ended=ended, found=tuple(LogFinding(kind, f"an error of {kind}") for kind in kinds)
    )


def _sight(*nodes: NodeSnapshot, **changed: float) -> JobSnapshot:
    return JobSnapshot(NOW, nodes, **{"running": 2, "still": 0.1, **changed})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rank", "node", "what"),
    [
        (_ended(0, -9), {"memory_kills": 1}, "oom"),
        (_ended(0, 1, NOW, "oom"), {}, "oom"),
        (_ended(0, -6, NOW, "nccl"), {}, "nccl"),
        (_ended(0, 1, NOW, "cuda"), {}, "cuda"),
        (_ended(0, 1, NOW, "storage"), {}, "storage"),
        (_ended(0, 1, NOW, "data"), {}, "data"),
        (_ended(0, 1, NOW, "nan"), {}, "nan"),
        (RankReport(0, 1, found=(LogFinding("nan", "loss nan"),)), {}, "nan"),
        (_ended(0, -11), {}, "segfault"),
        (_ended(0, 139), {}, "segfault"),
        (_ended(0, 0, NOW - 11.0), {}, "early-exit"),
        (_ended(0, -9), {}, "crash"),
        (_ended(0, 1), {}, "crash"),
        (RankReport(0, 1, process="T"), {"stopped": {0: 2.5}}, "hang"),
        (RankReport(0, 1, silent=16.0), {}, "hang"),
    ],
)
def test_a_rule_of_ranks(rank: RankReport, node: dict[str, object], what: str) -> None:
    fault = detect(_sight(NodeSnapshot("n0", ranks=(rank,), **node)), LIMITS)  # type: ignore[arg-type]
    assert fault is not None
    assert (fault.what, fault.nodes, fault.ranks, fault.separable) == (what, ("n0",), (0,), True)
    assert fault.began <= fault.seen


@pytest.mark.parametrize(
    "rank",
    [
        RankReport(0, 1), RankReport(0, 1, process="T"), RankReport(0, 1, silent=3.0), _ended(0, 0), RankReport(0, 1, found=PEER),
        RankReport(0, 1, found=(LogFinding("cuda", "CUDA error: it was caught"),)),
    ],
)  # fmt: skip
def test_what_is_no_fault(rank: RankReport) -> None:
    assert detect(_sight(NodeSnapshot("n0", ranks=(rank,), stopped={0: 0.5})), LIMITS) is None


def test_an_agent_without_heartbeats() -> None:
    fault = detect(_sight(NodeSnapshot("n1", silent=6.0, ranks=(RankReport(2, 1), RankReport(3, 1)))), LIMITS)
    assert fault is not None
    assert (fault.what, fault.nodes, fault.ranks, fault.began) == ("agent-lost", ("n1",), (2, 3), NOW - 6.0)


def test_traffic_that_has_gone() -> None:
    node = NodeSnapshot("n1", ranks=(RankReport(2, 1),), traffic_still=61.0)
    fault = detect(_sight(node, still=31.0), DetectionLimits(stall=100.0))
    assert fault is not None
    assert fault.what == "traffic-gone"
    assert detect(_sight(node, still=5.0), DetectionLimits(stall=100.0)) is None


def test_no_progress_though_all_live() -> None:
    fault = detect(_sight(still=31.0), LIMITS)
    assert fault is not None
    assert (fault.what, fault.separable) == ("hang", False)
    assert detect(_sight(still=31.0, step_seconds=10.0), LIMITS) is None  # five steps are longer
    assert detect(_sight(still=31.0, running=0), LIMITS) is None


def test_steps_out_of_their_prediction() -> None:
    fault = detect(_sight(step_seconds=0.3, steps_seen=30), LIMITS)
    assert fault is not None
    assert fault.what == "slow"
    assert detect(_sight(step_seconds=0.15, steps_seen=30), LIMITS) is None
    assert detect(_sight(step_seconds=0.3, steps_seen=29), LIMITS) is None


def test_a_save_that_was_lost_is_told_before_what_its_error_says() -> None:
    said = "windtunnel.fleet.checkpoint.commit.LostSaveError: no save was kept; step 5 failed: [Errno 28] No space left on device"
    found = (*match_lines(said), last_exception(said))
    rank = RankReport(0, 100, 1, "", ended=NOW - 0.1, found=tuple(one for one in found if one is not None))
    fault = detect(_sight(NodeSnapshot("n0", ranks=(rank,))), LIMITS)
    assert fault is not None
    assert {one.kind for one in rank.found} == {"storage", "raised"}
    assert (fault.what, fault.evidence) == (
        "checkpoint", "rank 0: no save was kept; step 5 failed: [Errno 28] No space left on device"
    )  # fmt: skip


def test_a_line_of_windtunnel_in_a_log_is_no_error_of_the_rank(tmp_path: Path) -> None:
    log = tmp_path / "rank.log"
    log.write_text("windtunnel fleet: the checkpoint of step 5 was not kept: No space left on device; no save was kept\n")
    tail = LogTail(log)
    tail.look()
    assert tail.findings(True) == ()
    log.write_text(log.read_text() + "OSError: No space left on device\n")
    tail.look()
    assert [one.kind for one in tail.findings(True)] == ["storage", "raised"]


def test_every_rule_has_fired_above() -> None:
    assert {rule.what for rule in RANK_RULES} == {
        "checkpoint", "oom", "nccl", "cuda", "storage", "data", "nan", "segfault", "early-exit", "crash", "hang"
    }  # fmt: skip
    assert [rule.what for rule in JOB_RULES] == ["agent-lost", "traffic-gone", "hang", "slow"]


def test_those_that_follow_are_no_culprits() -> None:
    followers = NodeSnapshot("n1", ranks=(RankReport(2, 1, 1, "", ended=NOW - 0.3, found=PEER),))
    fault = detect(_sight(followers, NodeSnapshot("n0", ranks=(_ended(0, -9, NOW - 0.2),))), LIMITS)
    assert fault is not None
    assert (fault.what, fault.ranks, fault.nodes) == ("crash", (0,), ("n0",))
    alone = detect(_sight(followers), LIMITS)
    assert alone is not None
    assert (alone.what, alone.separable) == ("link", False)
    lost = detect(_sight(followers, NodeSnapshot("n0", silent=6.0)), LIMITS)
    assert lost is not None
    assert lost.what == "agent-lost"


def test_a_rank_that_is_done_too_early_fails_the_others() -> None:
    fault = detect(
        _sight(NodeSnapshot("n0", ranks=(_ended(1, 0, NOW - 0.3), RankReport(2, 1, 1, "", ended=NOW, found=PEER)))), LIMITS
    )
    assert fault is not None
    assert (fault.what, fault.ranks) == ("early-exit", (1,))


def test_a_rank_that_is_done_after_another_failed_is_not_to_blame() -> None:
    """A connection is cut in the last step: who is through already ends with 0."""
    ranks = (RankReport(2, 1, 1, "", ended=NOW - 0.4, found=PEER), _ended(1, 0, NOW - 0.3))
    fault = detect(_sight(NodeSnapshot("n0", ranks=ranks)), LIMITS)
    assert fault is not None
    assert (fault.what, fault.ranks) == ("link", (2,))


def test_two_culprits_are_both_named() -> None:
    fault = detect(_sight(NodeSnapshot("n0", ranks=(_ended(0, -9),)), NodeSnapshot("n1", ranks=(_ended(2, -9),))), LIMITS)
    assert fault is not None
    assert (fault.ranks, fault.nodes) == ((0, 2), ("n0", "n1"))


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", "oom"),
        ("RuntimeError: CUDA error: an illegal memory access was encountered", "cuda"),
        ("torch.distributed.DistBackendError: NCCL error in: x.cpp:1", "nccl"),
        ("OSError: [Errno 28] No space left on device", "storage"),
        ("RuntimeError: DataLoader worker (pid 7) is killed by signal", "data"),
        ("step 7 loss=nan", "nan"),
        ("iteration 10 | lm loss: nan | grad norm: 1.0", "nan"),
        ("Fatal Python error: Segmentation fault", "segfault"),
        ("RuntimeError: [../third_party/gloo/pair.cc:1] Connection reset by peer", "peer"),
        ("torch.distributed.DistNetworkError: The server socket has failed to listen: code: -98, name: EADDRINUSE", "port"),
    ],
)
def test_patterns_of_logs(line: str, kind: str) -> None:
    assert [one.kind for one in match_lines(f"before\n{line}\nafter")] == [kind]
    assert match_lines(f"before\n{line}\nafter")[0].text == line


@pytest.mark.parametrize("line", ["step 7 loss 0.31 nanoseconds 12", "loss information: 3", "cuda is available", "financial loss"])
def test_lines_that_are_no_errors(line: str) -> None:
    assert match_lines(line) == []


@pytest.mark.parametrize(
    ("log", "last"),
    [
        ("Traceback (most recent call last):\n  File 'a.py', line 1\nValueError: no such shard\n", "ValueError: no such shard"),
        ("[rank3]: Traceback (most recent call last):\n[rank3]: my.pack.OddError: 7\nbye", "my.pack.OddError: 7"),
        ("KeyError: 'first'\ncaught\nAssertionError\n", "AssertionError"),
        ("an Error: of nobody\n  ValueError: in the text of another", None),
        ("step 7 | TotalError: 3", None),
    ],
)
def test_the_last_exception_of_a_log(log: str, last: str | None) -> None:
    found = last_exception(log)
    assert (found and found.text) == last


def test_a_crash_says_what_its_log_ends_in(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("ValueError: caught\nstep 1\nValueError: no such shard\n", encoding="utf-8")
    tail = LogTail(log)
    tail.look()
    assert tail.findings(ended=False) == ()
    fault = detect(_sight(NodeSnapshot("n0", ranks=(RankReport(0, 1, 1, ended=NOW, found=tail.findings(ended=True)),))), LIMITS)
    assert fault is not None
    assert (fault.what, fault.evidence) == ("crash", "rank 0: exit status 1; its log ends in: ValueError: no such shard")
    log.write_text(log.read_text() + "RuntimeError: Connection reset by peer\n", encoding="utf-8")
    tail.look()
    follower = RankReport(0, 1, 1, ended=NOW, found=tail.findings(ended=True))
    fault = detect(_sight(NodeSnapshot("n0", ranks=(follower,)), NodeSnapshot("n1", ranks=(_ended(2, -9),))), LIMITS)
    assert fault is not None
    assert fault.ranks == (2,)


def test_kinds_and_texts() -> None:
    assert len({kind for kind, _ in PATTERNS}) == len(PATTERNS)
    assert [describe_exit(RankReport(0, 1, code)) for code in (None, 3, -9, -99)] == [
        "it runs", "exit status 3", "SIGKILL", "signal 99"
    ]  # fmt: skip
