"""A job's last words: lines of PyTorch's watchdog, dumps of NCCL's RAS, and CUDA out of memory."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from drawn import examples
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.base.errors import FileError, WindtunnelError
from windtunnel.cli import main
from windtunnel.formats.door import read_files
from windtunnel.formats.logs.failures.out_of_memory import parse_line
from windtunnel.formats.reading import Content, Reading

GIB = 2**30
FORMS = {
    "1.10": "{head}[E ProcessGroupNCCL.cpp:566] [Rank {rank}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum={seq}, OpType={op}, Timeout(ms)=1800000) ran for 1800041 milliseconds before timing out.\n",
    "1.13": "{head}[E ProcessGroupNCCL.cpp:821] [Rank {rank}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum={seq}, OpType={op}, TensorShape=[{size}], Timeout(ms)=1800000) ran for 1800041 "
    "milliseconds before timing out.\n",
    "2.1": "{head}[E ProcessGroupNCCL.cpp:475] [Rank {rank}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn={size}, NumelOut={size}, Timeout(ms)=600000) ran for 600041 milliseconds "
    "before timing out.\n",
    "2.4": "{head}[rank{rank}]:[E101 06:24:44.9 ProcessGroupNCCL.cpp:607] [Rank {rank}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn={size}, NumelOut={size}, Timeout(ms)=600000) ran for 600020 milliseconds "
    "before timing out.\n{head}[rank{rank}]:[E101 06:24:44.9 ProcessGroupNCCL.cpp:1664] [PG 0 (default_pg) Rank {rank}] Exception "
    "(either an error or timeout) detected by watchdog at work: {seq}, last enqueued NCCL work: {last}, last completed NCCL work: "
    "{done}.\n",
    "2.7": "{head}[rank{rank}]:[E626 06:24:44.9 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn={size}, NumelOut={size}, Timeout(ms)=600000) ran for 600020 milliseconds "
    "before timing out.\n{head}[rank{rank}]:[E626 06:24:44.9 ProcessGroupNCCL.cpp:2271] [PG ID 0 PG GUID "
    "0(default_pg) Rank {rank}]  "
    "failure detected by watchdog at work sequence id: {seq} PG status: last enqueued work: {last}, last completed work: {done}\n",
}
HEADS = ("", "(WorkerDict pid=3490362) ", "node3: ", "2025-05-21T03:50:19.029644300Z ", "12: ")


def _line(form: str, rank: int, seq: int = 808, op: str = "ALLREDUCE", size: int = 4096, head: str = "", ahead: int = 3) -> str:
    return FORMS[form].format(rank=rank, seq=seq, op=op, size=size, head=head, last=seq + ahead, done=seq - 1)


def _read(folder: Path, text: str) -> Reading:
    path = folder / "job.log"
    path.write_text("some line before\n" + text + "and one after\n", encoding="utf-8")
    return read_files([path])


def _hang(reading: Reading) -> dict[str, Any]:
    assert reading.content is Content.EVIDENCE
    return dict(reading.facts["hang"])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("head", HEADS)
def test_ranks_that_all_wait_are_told_from_a_late_one(form: str, head: str, tmp_path: Path) -> None:
    everyone = _read(tmp_path, "".join(_line(form, rank, head=head) for rank in range(8)))
    assert everyone.format == "nccl-watchdog" and everyone.facts["ranks"] == 8
    assert not _hang(everyone)["culprits"] and "allreduce 808" in _hang(everyone)["text"]
    assert "none finishes" in _hang(everyone)["text"]
    silent = _read(tmp_path, "".join(_line(form, rank, head=head) for rank in range(8) if rank not in (2, 5)))
    assert list(_hang(silent)["culprits"]) == ["2", "5"]


@pytest.mark.parametrize("form", FORMS)
def test_a_rank_at_an_earlier_call_is_late(form: str, tmp_path: Path) -> None:
    lines = "".join(_line(form, rank, 808 if rank else 790) for rank in range(4))
    assert list(_hang(_read(tmp_path, lines))["culprits"]) == ["0"]


@pytest.mark.parametrize("form", FORMS)
def test_ranks_in_other_calls_of_one_number_never_meet(form: str, tmp_path: Path) -> None:
    lines = "".join(_line(form, rank, op="BROADCAST" if rank == 3 else "ALLREDUCE") for rank in range(4))
    assert "rank 3 runs broadcast" in _hang(_read(tmp_path, lines))["text"]
    if form not in ("1.10", "1.13"):  # which print no size, or a shape
        lines = "".join(_line(form, rank, size=512 if rank == 1 else 4096) for rank in range(4))
        assert "rank 1 runs allreduce of 512 elements, the others allreduce of 4,096" in _hang(_read(tmp_path, lines))["text"]


def test_a_line_without_its_group_belongs_where_the_others_are(tmp_path: Path) -> None:
    text = "".join(_line("2.7", rank) for rank in range(3)) + _line("2.7", 3).splitlines()[0] + "\n"
    reading = _read(tmp_path, text)
    assert [call["ranks"] for call in reading.facts["calls"]] == ["ranks 0-3"] or len(reading.facts["calls"]) == 1
    assert not _hang(reading)["culprits"]


def test_a_stuck_watchdog_is_a_silent_rank(tmp_path: Path) -> None:
    text = "".join(_line("2.4", rank) for rank in (0, 1, 3))
    text += (
        "[rank2]:[F626 ProcessGroupNCCL.cpp:1] [PG 0 (default_pg) Rank 2] ProcessGroupNCCL's watchdog got stuck for 480 seconds "
    )
    text += "without making progress in monitoring enqueued collectives.\n"
    assert "2" in _hang(_read(tmp_path, text))["culprits"]


def test_a_training_log_with_last_words_is_still_a_hang(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.log"
    path.write_text("".join(_line("2.7", rank) for rank in (0, 1, 2, 3, 5, 6, 7)), encoding="utf-8")
    assert main(["fleet", "hang", str(path)]) == 0
    assert "Rank 4: nothing is known of it" in capfd.readouterr().out
    assert main(["runs", "show", str(path)]) == 2
    assert "windtunnel fleet hang" in capfd.readouterr().err


RAS = """\
NCCL version 2.27.3 compiled with CUDA 12.8
CUDA runtime version 12080, driver version 12080

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      2          8            1         16       16

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         2         8        16        16   RUNNING  {status}

Errors
======

Warnings
========

"""
BLOCK = """\
#0-0 (fa93daea854b060b) MISMATCH
  Communicator ranks have different AllReduce operation counts
  15 ranks have launched up to operation {most}
  1 rank has launched up to operation {odd}
  Rank 5 -- GPU 5 managed by process 3230 on node 10.0.0.1
"""


@pytest.mark.parametrize(("odd", "said"), [(99, "they are late"), (101, "they make a call more than the others")])
def test_ras_names_the_rank_that_differs(odd: int, said: str, tmp_path: Path) -> None:
    reading = _read(tmp_path, RAS.format(status="MISMATCH") + BLOCK.format(most=100, odd=odd))
    assert reading.format == "nccl-ras"
    assert (reading.facts["nodes"], reading.facts["gpus"]) == (2, 16)
    hang = _hang(reading)
    assert hang["culprits"] == {"5": "on GPU 5 of node 10.0.0.1"} and said in hang["text"]
    assert f"AllReduce {odd}" in hang["text"]


def test_ras_of_a_job_that_runs_warns_of_nothing(tmp_path: Path) -> None:
    hang = _hang(_read(tmp_path, RAS.format(status="OK")))
    assert not hang["culprits"] and "warns of no communicator" in hang["text"]


def test_ras_says_which_ranks_are_missing(tmp_path: Path) -> None:
    block = "#0-0 (fa93) INCOMPLETE\n  Missing communicator data from 1 rank\n"
    block += "  Rank 3 -- GPU 3 managed by process 17 on node 10.0.0.9\n"
    hang = _hang(_read(tmp_path, RAS.format(status="INCOMPLETE") + block))
    assert "3" in hang["culprits"] and "incomplete" in hang["text"] and "10.0.0.9" in hang["text"]


MEMORY = [
    (
        "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.56 GiB. GPU 3 has a total "
        "capacity of 79.11 GiB of "
        "which 1.21 GiB is free. Including non-PyTorch memory, this process has 77.88 GiB memory in use. Of the allocated memory "
        "74.61 GiB is allocated by PyTorch, and 1.02 GiB is reserved by PyTorch but unallocated.",
        {"rank": 3, "gpu": 3, "asked": 3.56, "capacity": 79.11, "free": 1.21, "allocated": 74.61, "unallocated": 1.02},
    ),
    (
        "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 39.59 GiB total capacity; "
        "30.25 GiB already allocated; "
        "1.11 GiB free; 36.25 GiB reserved in total by PyTorch)",
        {"rank": None, "gpu": 0, "asked": 2.0, "capacity": 39.59, "free": 1.11, "allocated": 30.25, "unallocated": 6.0},
    ),
    (
        "5: torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. GPU 5 has a total "
        "capacty of 23.65 GiB of "
        "which 77.00 MiB is free. Process 11 has 23.57 GiB memory in use.",
        {"rank": 5, "gpu": 5, "asked": 0.5, "free": 77 / 1024},
    ),
]


@pytest.mark.parametrize(("line", "said"), MEMORY)
def test_a_line_of_the_allocator_gives_its_sizes(line: str, said: dict[str, Any], tmp_path: Path) -> None:
    found = parse_line(line)
    assert found is not None
    for name, value in said.items():
        wanted = value if name in ("rank", "gpu") else pytest.approx(value * GIB, abs=0.01 * GIB)
        assert found[name] == wanted, name
    reading = _read(tmp_path, line + "\n")
    assert reading.format == "out-of-memory" and "asked for" in _hang(reading)["text"]


def test_fragmentation_is_named_where_it_would_have_been_enough(tmp_path: Path) -> None:
    assert "expandable_segments" in _hang(_read(tmp_path, MEMORY[1][0] + "\n"))["text"]
    assert "too little to matter" in _hang(_read(tmp_path, MEMORY[0][0] + "\n"))["text"]


@examples(150)
@given(st.data())
def test_damaged_lines_never_crash(data: st.DataObject) -> None:
    """Lines are cut, joined and doubled, as several processes write them into one file."""
    whole = (
        "".join(_line(form, rank) for form in FORMS for rank in range(3)) + MEMORY[0][0] + "\n" + RAS + BLOCK.format(most=1, odd=2)
    )
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), min_size=2, max_size=6)))
    text = "".join(whole[a:b] for a, b in zip(cuts, cuts[1:], strict=False) if data.draw(st.booleans()))
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "job.log")
        path.write_text(text, encoding="utf-8")
        try:
            read_files([path])
        except WindtunnelError as error:
            assert str(error)


def _ras_table(counts: list[int], missing: int = 0) -> dict[str, Any]:
    status = {"init_state": 0, "async_error": 0, "finalize_called": False, "destroy_flag": False, "abort_flag": False}
    ranks = [
        {"rank": at, "host": f"node-{at // 4}", "pid": 100 + at, "cuda_dev": at % 4, "nvml_dev": at % 4, "status": status,
         "collective_counts": {"AllReduce": count, "Broadcast": 2}}
        for at, count in enumerate(counts)
    ]  # fmt: skip
    lost = [
        {"rank": len(counts) + at, "host": "node-9", "pid": 7, "cuda_dev": at, "nvml_dev": at,
         "status": {"unresponsive": True, "considered_dead": True}}
        for at in range(missing)
    ]  # fmt: skip
    entry = {"hash": "0x7e2c", "size": len(counts) + missing, "ranks": ranks, "missing_ranks": lost}
    return {"nccl_version": "2.28.9", "communicators_count": 1, "communicators": [entry], "ras": {"timeouts_count": 0}}


@pytest.mark.parametrize("late", range(8))
def test_ras_in_json_names_the_rank_that_differs(late: int, tmp_path: Path) -> None:
    table = _ras_table([811 if at == late else 812 for at in range(8)])
    path = tmp_path / "ras.json"
    path.write_text(json.dumps(table, indent=2), encoding="utf-8")
    reading = read_files([path])
    assert reading.format == "nccl-ras" and (reading.facts["nodes"], reading.facts["gpus"]) == (2, 8)
    hang = _hang(reading)
    assert list(hang["culprits"]) == [str(late)] and "they are late" in hang["text"] and "AllReduce 811" in hang["text"]


def test_ras_in_json_says_who_is_missing_and_refuses_what_is_broken(tmp_path: Path) -> None:
    path = tmp_path / "ras.json"
    path.write_text(json.dumps(_ras_table([5, 5], missing=2)), encoding="utf-8")
    hang = _hang(read_files([path]))
    assert set(hang["culprits"]) == {"2", "3"} and "node-9" in hang["text"] and "dead" in hang["text"]
    table = _ras_table([5, 5])
    table["communicators"][0]["ranks"] = "x"
    path.write_text(json.dumps(table), encoding="utf-8")
    with pytest.raises(FileError, match="without its ranks"):
        read_files([path])


def test_ras_headings_are_no_words_of_a_communicator(tmp_path: Path) -> None:
    block = "#0-0 (fa93) INCOMPLETE\n  Missing communicator data from 1 rank\n  Rank 13 -- [process information not found]\n\n"
    hang = _hang(_read(tmp_path, RAS.format(status="INCOMPLETE") + block + "Warnings\n========\n\n" + BLOCK.format(most=9, odd=8)))
    assert {"13", "5"} == set(hang["culprits"]) and "====" not in hang["text"] and "rank 13" in hang["text"]


def test_the_allocators_setting_is_named_as_the_line_names_it(tmp_path: Path) -> None:
    line = (
        "torch.OutOfMemoryError: {0} out of memory. Tried to allocate 3.91 GiB. GPU 2 has a total capacity of 191.98 GiB of which "
    )
    line += "1.20 GiB is free. Of the allocated memory 180.12 GiB is allocated by PyTorch, and 6.33 GiB is reserved by PyTorch but "
    line += "unallocated. If reserved but unallocated memory is large try setting {1}=expandable_segments:True\n"
    for kind, setting in (("HIP", "PYTORCH_HIP_ALLOC_CONF"), ("CUDA", "PYTORCH_CUDA_ALLOC_CONF"), ("CUDA", "PYTORCH_ALLOC_CONF")):
        assert f"try {setting}=" in _hang(_read(tmp_path, line.format(kind, setting)))["text"]


def test_an_old_line_of_the_allocator_says_what_else_is_in_use(tmp_path: Path) -> None:
    found = parse_line(MEMORY[2][0])
    assert found is not None
    assert found["capacity"] == pytest.approx(23.65 * GIB) and found["in_use"] == pytest.approx(23.57 * GIB)
    others = "Process 9 has 4.00 GiB memory in use. Including non-PyTorch memory, this process has 19.00 GiB memory in use. "
    both = parse_line(
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.65 GiB of which 1 GiB is free. " + others
    )
    assert both is not None and both["in_use"] == 19 * GIB
    with pytest.raises(FileError, match="breaks off"):
        _read(tmp_path, "torch.OutOfMemoryError: CUDA out of memory. Tried to alloc\n")


def test_a_rank_calls_behind_is_of_the_group_that_the_others_name(tmp_path: Path) -> None:
    late, other = _line("2.4", 1, seq=51), _line("2.4", 0, seq=52).splitlines()[0] + "\n"
    hang = _hang(_read(tmp_path, late + other))
    assert "rank 1: has not finished allreduce 51" in hang["text"] and "which rank 0 finished" in hang["text"]


def test_one_rank_alone_says_where_it_waits(tmp_path: Path) -> None:
    text = _hang(_read(tmp_path, _line("2.7", 6, seq=120).replace("default_pg", "EXPERT_GROUP")))["text"]
    assert "rank 6 waits in allreduce 120" in text and "all ranks together" in text


def test_a_watchdog_that_hangs_is_no_missing_heartbeat(tmp_path: Path) -> None:
    line = "[rank0]:[E626 ProcessGroupNCCL.cpp:1] [PG ID 0 PG GUID 0(default_pg) Rank 0] ProcessGroupNCCL's watchdog got stuck for "
    reading = _read(tmp_path, line + "480 seconds without making progress in monitoring enqueued collectives.\n")
    assert "watchdog got stuck for 480 s" in _hang(reading)["text"] and "heartbeat" not in str(reading.facts)
    assert reading.facts["waited_s"] == 480


STATUS = (
    "{head}[rank{rank}]:[E1115 16:42:37.784 ProcessGroupNCCL.cpp:2168] [PG ID {group} PG GUID {group} Rank {rank}]  failure "
    "detected by watchdog at work sequence id: 730 PG status: last enqueued work: {enqueued}, last completed work: {done}\n"
)


@pytest.mark.parametrize("seed", range(10))
def test_a_rank_whose_status_is_behind_is_who_the_others_wait_for(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    world, head, group = draw.randrange(2, 17), draw.choice(HEADS), draw.choice([0, 1, 7])
    late, call = draw.randrange(world), draw.randrange(2, 10**6)
    ahead = {rank: call - 1 if rank == late else call + draw.randrange(3) for rank in range(world)}
    rows = [STATUS.format(head=head, rank=rank, group=group, enqueued=last, done=call - 1) for rank, last in ahead.items()]
    draw.shuffle(rows)
    hang = _hang(_read(tmp_path, "".join(rows)))
    assert list(hang["culprits"]) == [str(late)] and f"has not begun call {call}" in hang["text"]
    assert "no rank waits" not in hang["text"].lower()


def test_all_ranks_inside_one_call_are_no_all_clear(tmp_path: Path) -> None:
    rows = "".join(STATUS.format(head="", rank=rank, group=1, enqueued=730, done=729) for rank in range(4))
    text = _hang(_read(tmp_path, rows))["text"]
    assert "call 730" in text and "none finishes" in text and "no rank waits" not in text.lower()
    ended = "".join(STATUS.format(head="", rank=rank, group=1, enqueued=730, done=730) for rank in range(4))
    assert "enqueued has ended" in _hang(_read(tmp_path, ended))["text"]


DESYNC = """\
[rank2]:[E1115 16:42:37.784 ProcessGroupNCCL.cpp:1936] Rank 2
\t - [2] Timeout at collective: ALLREDUCE, #{number}
\t - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:
\t   - [{joined}] joined but didn't finish collective #{number} (count from 1)
"""


@pytest.mark.parametrize("seed", range(10))
def test_a_report_of_ranks_not_in_step_names_those_that_did_not_join(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    world, number = draw.randrange(4, 17), draw.randrange(2, 9999)
    late = sorted(draw.sample([rank for rank in range(world) if rank != 2], draw.randrange(0, 3)))
    text = DESYNC.format(number=number, joined=", ".join(str(rank) for rank in range(world) if rank not in late))
    if late:
        text += f"\t     [{', '.join(map(str, late))}] finished collective #{number - 1}, but "
        text += f"didn't join collective #{number} (count from 1)\n"
    hang = _hang(_read(tmp_path, text))
    assert sorted(map(int, hang["culprits"])) == late and f"allreduce {number}" in hang["text"]
    assert late or "none finishes" in hang["text"]


TORCHRUN = """\
{head}train.py FAILED
{head}------------------------------------------------------------
{head}Failures:
{head}[1]:
{head}  time      : 2024-01-01_10:00:03
{head}  host      : node-2
{head}  rank      : 9 (local_rank: 1)
{head}  exitcode  : 1 (pid: 12346)
{head}  error_file: <N/A>
{head}  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
{head}------------------------------------------------------------
{head}Root Cause (first observed failure):
{head}[0]:
{head}  time      : 2024-01-01_10:00:01
{head}  host      : node-1
{head}  rank      : {rank} (local_rank: 3)
{head}  exitcode  : {code} (pid: 12345)
{head}  error_file: <N/A>
{head}  traceback : Signal {signal} received by PID 12345
"""


@pytest.mark.parametrize("head", ["", "0: ", "[node-1]: ", "2025-05-21T03:50:19.029644300Z "])
@pytest.mark.parametrize(
    ("code", "word"), [(-9, "SIGKILL"), (-11, "segmentation"), (-6, "SIGABRT"), (-7, "shm"), (1, "exception"), (17, "code 17")]
)
def test_torchruns_table_names_the_first_failure(code: int, word: str, head: str, tmp_path: Path) -> None:
    hang = _hang(_read(tmp_path, TORCHRUN.format(head=head, rank=3, code=code, signal=-code)))
    assert list(hang["culprits"]) == ["3"] and word in hang["text"] and "node-1" in hang["text"] and hang["crash"]
    assert "rank 9 failed after it" in hang["text"]


@pytest.mark.parametrize(
    ("lines", "culprits", "said"),
    [
        ("[Fri Apr  5 21:29:39 2024] NVRM: Xid (PCI:0000:a1:00): 79, pid=12345, GPU is lost.\n", [], "fallen off the bus"),
        ("kernel: NVRM: Xid (PCI:0000:19:00): 74, Channel 1\n" * 3, [], "check the link, bridge or switch, and drain the node (3"),
        ("NVRM: Xid (PCI:0000:19:00): 999, something new\n", [], "something new"),
        (
            "[2026-08-24 10:12:01] Collective sequence number: 288686 has errors\ngroup info: 0:default_pg\n"
            "collective: nccl:_all_gather_base\ncollective state: scheduled\nmissing ranks: {0, 3}\n",
            ["0", "3"], "not in all_gather_base 288686 of default_pg, which is scheduled",
        ),
        (
            "[default0]:=== Straggler Report at Step 10 ===\n[default0]:No stragglers detected.\n[default0]:  optimizer:\n"
            "[default0]:    Min: 9.17ms, Max: 10.12ms, Avg: 9.55ms, Slowdown: 1.10x\n", [],
            "no rank is named a straggler; ranks differ most in optimizer takes 9.17 to 10.12 ms, 1.10 times",
        ),
        ("=== Straggler Report at Step 20 ===\n\nDetected Stragglers: [3, 11]\n", ["3", "11"], "ranks 3 and 11: stragglers"),
        (
            "ERROR [core.py:1165] RuntimeError: Worker failed with error 'NCCL error: unhandled cuda error'\n"
            "WARNING [shm_broadcast.py:466] No available shared memory broadcast block found in 60 second.\n", [],
            "failed with NCCL error: unhandled cuda error; the others",
        ),
    ],
)  # fmt: skip
def test_other_last_words_are_read(lines: str, culprits: list[str], said: str, tmp_path: Path) -> None:
    hang = _hang(_read(tmp_path, lines))
    assert list(hang["culprits"]) == culprits and said in hang["text"]
