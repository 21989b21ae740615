"""Last words of kernels, schedulers, launchers and reports of stragglers, and all kinds of one log together."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_formats_failures import TORCHRUN, _hang, _line, _read

from tests.helpers.last_words import OF_A_RANK, OTHER_WORDS
from windtunnel.cli import main

Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize(("line", "said"), OTHER_WORDS)
@pytest.mark.parametrize("head", ["", "2025-05-21T03:50:19.029644300Z ", "12: "])
def test_lines_of_kernels_schedulers_and_launchers_are_read(line: str, said: str, head: str, tmp_path: Path) -> None:
    reading = _read(tmp_path, "".join(f"{head}{part}\n" for part in line.split("\n")))
    assert reading.format == "last-words" and said in _hang(reading)["text"] and not _hang(reading)["culprits"]


@pytest.mark.parametrize(
    ("line", "culprits", "said"),
    [
        ("RuntimeError: [Rank 0]: Ranks 3, 5 failed to pass monitoredBarrier in 60000 ms", ["3", "5"], "monitored barrier"),
        ("EI0002: The wait execution of the Notify register times out. Reason: The Notify register has not received the Notify "
         "record from remote rank [5].base information: [streamID:[8]]", ["5"], "call of HCCL (EI0002)"),
        ("DETECTED RELATIVE STRAGGLER GPU RANK=6 NODE=n-12", ["6"], "straggler by NVRx"),
        ("STRAGGLER DETECTION WARNING: Some GPUs have worse relative performance. Affected ranks: "
         "{StragglerId(rank=12, node='h100-3')}", ["12"], "NVRx warns"),
        ("INFO:megatron.core.utils:[2024-03-14 23:07:56] | MnRtt/Rnk: 3453.08ms/8 | MxRtt/Rnk: 3868.20ms/0 | "
         "MnEtpt/Rnk: 256.02TF/0 | MxEtpt/Rnk: 297.32TF/8", ["0"], "256.02 TFLOP/s at the slowest rank, 0, 297.32"),
        ("| MnEtpt/Rnk: 296.02TF/0 | MxEtpt/Rnk: 297.32TF/8", [], "at the slowest rank, 0"),
        ("Not all ranks joining collective, sequence number: 7\ninternal record id: 9\ngroup info: 0:default_pg\n"
         "collective: nccl:all_reduce\nmissing ranks: {2}\n", ["2"], "not in all_reduce 7 of default_pg"),
        ("Collective sequence number: 7 has errors\ngroup info: 0:default_pg\ncollective: nccl:all_reduce\n"
         "error msg: Culprit rank 1; Error type: COLLECTIVE_TYPE_MISMATCH, Expected collective type: 'a' does not match found 'b'",
         ["1"], "rank 1 differs in call 7: collective type mismatch: Expected"),
    ],
)  # fmt: skip
def test_lines_that_name_a_rank_blame_it(line: str, culprits: list[str], said: str, tmp_path: Path) -> None:
    hang = _hang(_read(tmp_path, line + "\n"))
    assert list(hang["culprits"]) == culprits and said in hang["text"]


def test_memory_of_an_npu_names_its_setting(tmp_path: Path) -> None:
    said = "NPU out of memory. Tried to allocate 2.00 GiB (NPU 3; 60.97 GiB total capacity; 55.10 GiB already allocated; "
    text = _hang(_read(tmp_path, said + "1.20 GiB free; 58.00 GiB reserved in total by PyTorch)\n"))["text"]
    assert text.startswith("GPU 3 asked for 2 GiB") and "PYTORCH_NPU_ALLOC_CONF=" in text


def test_all_kinds_of_one_log_are_told_together(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.log"
    cancelled = "slurmstepd: error: *** JOB 1234 ON gpu-03 CANCELLED AT 2026-03-01T10:00:00 DUE TO TIME LIMIT ***\n"
    waiting = "".join(_line("2.7", rank) for rank in (0, 1, 2, 3, 5, 6, 7))
    lost = "NET/IB : Got completion from peer 10.0.0.3<4231> with status=12 opcode=0\n"
    path.write_text(waiting + TORCHRUN.format(head="", rank=3, code=-6, signal=6) + lost + cancelled, encoding="utf-8")
    assert main(["fleet", "hang", str(path)]) == 0
    said = " ".join(capfd.readouterr().out.split())
    assert said.startswith("Rank 4: nothing is known of it") and "Rank 3 on node-1 failed first" in said
    assert "limit of time was over" in said and "from 10.0.0.3" in said


def test_a_training_log_that_a_scheduler_ended_says_so(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "train.log"
    step = " iteration {0:8d}/ 1000 | consumed samples: {0} | elapsed time per iteration (ms): 1234.5 | learning rate: 1.0E-4 | "
    steps = "".join(step.format(number) + "global batch size:     8 | lm loss: 2.1E+00 |\n" for number in range(1, 9))
    path.write_text(steps + "slurmstepd: error: *** JOB 1 ON n CANCELLED AT 2026-03-01T10:00:00 DUE TO TIME LIMIT ***\n", "utf-8")
    assert main(["fleet", "hang", str(path)]) == 0
    assert "limit of time was over" in capfd.readouterr().out


@pytest.mark.parametrize(("line", "said"), OF_A_RANK)
@pytest.mark.parametrize(("head", "culprits"), [("", []), ("12: ", ["12"]), ("[rank3]: ", ["3"]), ("[default3]:", [])])
def test_what_a_program_says_blames_the_rank_before_it(
    line: str, said: str, head: str, culprits: list[str], tmp_path: Path
) -> None:
    hang = _hang(_read(tmp_path, "".join(f"{head}{part}\n" for part in line.split("\n"))))
    assert said in hang["text"] and list(hang["culprits"]) == culprits


_TRACE = '{0}Traceback (most recent call last):\n{0}  File "/a/train.py", line {2}, in step\n{0}    go()\n{0}{1}\n{0}More.\n'


def _mixed(*traces: str) -> str:
    """Lines of several tracebacks, written between each other's."""
    parts = [trace.splitlines() for trace in traces]
    return "\n".join(lines[at] for at in range(max(map(len, parts))) for lines in parts if at < len(lines)) + "\n"


@pytest.mark.parametrize("head", ["[rank{0}]: ", "{0}: ", "2025-05-21T03:50:1{0}.02Z [rank{0}]: "])
def test_ranks_that_raise_an_exception_of_their_own_are_told_from_those_that_follow(head: str, tmp_path: Path) -> None:
    own = "RuntimeError: CUDA error: device-side assert triggered"
    lost = "torch.distributed.DistBackendError: NCCL error in: a.cpp:1, remote process exited or there was a network error"
    traces = [_TRACE.format(head.format(rank), own if rank == 2 else lost, 30 + rank) for rank in range(4)]
    hang = _hang(_read(tmp_path, _mixed(*traces)))
    assert list(hang["culprits"]) == ["2"] and "rank 2: a kernel's check failed" in hang["text"]


def test_an_exception_that_no_table_knows_is_told_with_its_place_and_its_ranks(tmp_path: Path) -> None:
    hang = _hang(_read(tmp_path, _mixed(*(_TRACE.format(f"[rank{rank}]: ", "pkg.Broken: bad shape", 7) for rank in (1, 3)))))
    assert hang["text"] == "ranks 1 and 3 raised Broken: bad shape (train.py, line 7)" and list(hang["culprits"]) == ["1", "3"]


@pytest.mark.parametrize("head", ["", "[rank4]: "])
def test_an_exception_that_follows_another_names_both(head: str, tmp_path: Path) -> None:
    first, second = _TRACE.format(head, "KeyError: 'x'", 3), _TRACE.format(head, "RuntimeError: bad shapes", 9)
    between = f"{head}\n{head}During handling of the above exception, another exception occurred:\n{head}\n"
    hang = _hang(_read(tmp_path, first + between + second))
    who = "rank 4" if head else "a process"
    assert hang["text"] == f"{who} raised RuntimeError: bad shapes (train.py, line 9), after KeyError: 'x' (train.py, line 3)"
    assert list(hang["culprits"]) == (["4"] if head else [])


def test_lines_of_a_journal_name_their_machine(tmp_path: Path) -> None:
    lines = "".join(f"Oct 16 20:47:19 {host} kernel: NVRM: Xid (PCI:0000:19:00): 48, pid=7\n" for host in ("n-3", "0-gpu-1"))
    text = _hang(_read(tmp_path, lines))["text"]
    assert "n-3: the GPU at PCI 0000:19:00 reports Xid 48" in text and "0-gpu-1: the GPU" in text


@pytest.mark.parametrize(
    ("status", "said"),
    [(12, "did not answer within the retries"), (5, "follows from an earlier error"), (4, "GPUDirect RDMA"), (2, "status 2 of")],
)
@pytest.mark.parametrize(
    "form", ["from peer 10.0.0.3<42> with status={0}", "with error {0}", "from peer a<1> with status=IBV_X({0})"]
)
def test_a_failed_message_is_told_by_its_status(status: int, said: str, form: str, tmp_path: Path, capfd: Capture) -> None:
    path = tmp_path / "job.log"
    path.write_text(f"NCCL WARN NET/IB : Got completion {form.format(status)}, opcode 0, len 0, vendor err 129\n", encoding="utf-8")
    assert main(["fleet", "hang", str(path)]) == 0
    assert said in " ".join(capfd.readouterr().out.split())


def test_a_log_of_steps_with_an_exception_that_was_caught_stays_a_run(tmp_path: Path) -> None:
    steps = "".join(f"step {number} | loss 2.1 | 530k tok/s | 1.2 s/step\n" for number in range(5))
    reading = _read(tmp_path, steps + _TRACE.format("", "OSError: [Errno 28] No space left on device", 3))
    assert reading.format == "unknown-log"
