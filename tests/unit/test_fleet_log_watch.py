"""Loss, gradient norm and rules in the lines of a watched job; the copy of what a rank prints leaves its streams as they are."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from windtunnel.base.errors import WindtunnelError
from windtunnel.fleet.api import monitor_run
from windtunnel.fleet.fence import Fence
from windtunnel.fleet.findings.finding import Verdict
from windtunnel.fleet.findings.losses import LossSeries, values_in
from windtunnel.fleet.launch.sidecars import ALARMS
from windtunnel.fleet.log_watch import LogWatch, read_log_rules
from windtunnel.fleet.ring import RingWriter
from windtunnel.fleet.rings import ring_path
from windtunnel.fleet.starting import PRINTED_SUFFIX
from windtunnel.fleet.watch import printed
from windtunnel.fleet.watch.patches import Patches
from windtunnel.fleet.watch.settings import settings_of


@pytest.mark.parametrize(
    "line, told",
    [
        ("step: 12  loss:  2.4512  grad_norm:  1.3021  memory: 4.2GiB", {"loss": 2.4512, "gradient norm": 1.3021}),
        ("{'loss': 1.25, 'grad_norm': nan, 'learning_rate': 5e-05, 'epoch': 0.1}", {"loss": 1.25, "gradient norm": float("nan")}),
        (
            " [2026-01-01 10:00:00] iteration 20/ 100 | consumed samples: 640 | lm loss: 9.103840E+00 | loss scale: 1.0 | "
            "grad norm: 4.512 | number of skipped iterations:   0 |",
            {"loss": 9.10384, "gradient norm": 4.512},
        ),
        ("epoch 3 step 100 train_loss=0.693 lr=1e-4", {"loss": 0.693}),
        ("Step 5: training loss 3.5", {"loss": 3.5}),
        ("loss tensor(inf, device='cuda:0')", {"loss": float("inf")}),
        ("eval_loss: 2.0", {}),
        ("validation loss at iteration 10 | lm loss value: 3.0", {}),
        ("loss scale: 65536.0", {}),
        ("the packet loss is 3 percent of 100", {}),
        ("no number of loss here", {}),
    ],
)
def test_values_of_training_lines(line: str, told: dict[str, float]) -> None:
    assert dict(values_in(line)) == pytest.approx(told, nan_ok=True)


def losses(count: int, seed: int = 0) -> list[float]:
    """A loss that falls from 11 to 3, with noise."""
    random = np.random.default_rng(seed)
    steps = np.arange(count)
    return list(3.0 + 8.0 * np.exp(-steps / 60) + random.normal(0.0, 0.12, count))


@pytest.mark.parametrize("seed", range(20))
def test_a_loss_that_falls_raises_no_alarm(seed: int) -> None:
    series, norms = LossSeries("loss"), LossSeries("gradient norm")
    assert [fault for value in losses(1000, seed) if (fault := series.add(value))] == []
    random = np.random.default_rng(seed)
    assert [fault for value in random.lognormal(0.0, 0.3, 1000) if (fault := norms.add(float(value)))] == []


def test_nan_and_a_spike_are_told_once_an_episode() -> None:
    series = LossSeries("loss")
    values = [*losses(200), 9.5, 9.0, 8.0, *losses(60, 1)[-50:], *[float("nan")] * 30]
    told = [(fault.text, fault.over) for value in values if (fault := series.add(value))]
    assert len(told) == 3 and told[0][0].startswith("the loss has a spike: 9.5, where 3.") and told[1] == (told[0][0], True)
    assert told[2] == ("the loss is NaN", False)


def test_ranks_that_say_the_same_are_one_alarm(tmp_path: Path) -> None:
    watch = LogWatch(tmp_path)
    for rank in range(4):
        (tmp_path / f"rank-{rank:06d}.printed").write_text("step 1 loss: 2.5\n" * 30)
    assert watch.look(0.0) == []
    for rank in range(4):
        with (tmp_path / f"rank-{rank:06d}.printed").open("a") as file:
            file.write("step 2 loss: nan\n")
    (alarm,) = watch.look(1.0)
    assert (str(alarm.verdict), alarm.ranks, alarm.text) == ("loss", (0, 1, 2, 3), "the loss is NaN")
    for rank in range(4):
        (tmp_path / f"rank-{rank:06d}.printed").write_text("step 3 loss: 2.5\n" * 6)  # begun anew
    (over,) = watch.look(2.0)
    assert over.cleared and over.text == alarm.text


def test_a_machine_without_the_collector_tells_what_its_own_lines_say(tmp_path: Path) -> None:
    """Ranks whose records another machine judges: a rank that is gone is no alarm here, a loss that is NaN is."""
    folder = tmp_path / "job"
    folder.mkdir()
    rank = (
        "from windtunnel.fleet.ring import RingWriter\nfrom windtunnel.fleet.rings import ring_path\nfrom pathlib import Path\n"
        f"ring = RingWriter(ring_path(Path({str(folder)!r}), 3), 'job', 3, 4, 0, rows=64)\nring.write(0, 0, ring.clock(), 0, 0)\n"
    )
    subprocess.run([sys.executable, "-c", rank], check=True)
    (folder / f"rank-000003{PRINTED_SUFFIX}").write_text("step 7 loss: nan\n")
    living = RingWriter(ring_path(folder, 2), "job", 2, 4, 0, rows=64)
    looks = [
        [alarm.verdict for alarms in islice(monitor_run(folder, 0.2, judge=judge), 20) for alarm in alarms]
        for judge in (True, False)
    ]
    living.close()
    assert looks[0][:2] == [Verdict.LOSS, Verdict.CRASH] and looks[1] == [Verdict.LOSS]


KEPT_RANK = """
import os, sys, time
from pathlib import Path
told = Path(sys.argv[1])
while not told.exists() or "low" not in told.read_text():
    os.write(1, b"tokens/s: 12\\n")  # as native code prints
    time.sleep(0.1)
"""


def test_a_kept_job_follows_rules_in_all_that_its_ranks_print(tmp_path: Path) -> None:
    (tmp_path / "rank.py").write_text(KEPT_RANK)
    (tmp_path / "rules.toml").write_text('[[rule]]\nname = "low"\nmatch = "tokens/s: ([0-9]+)"\nbelow = 100\n')
    alarms = tmp_path / "job" / ALARMS
    words = ["--dir", str(tmp_path), "--run", "job", "--nodes", "2", "--log-rules", str(tmp_path / "rules.toml")]
    rank = ["--", "python", str(tmp_path / "rank.py"), str(alarms)]
    ended = subprocess.run([sys.executable, "-m", "windtunnel", "fleet", "run", *words, *rank], timeout=300)
    assert ended.returncode == 0
    told = [json.loads(line) for line in alarms.read_text().splitlines()]
    assert {(each["verdict"], each["text"]) for each in told} == {("log rule", "low: tokens/s: 12")}
    assert told[0]["ranks"] in ([0], [1])


def test_rules_of_a_file(tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text(
        '[[rule]]\nname = "storage"\nmatch = "NFS server .* not responding"\ncount = 2\nseconds = 10\n'
        '[[rule]]\nname = "slow"\nmatch = "tokens/s: ([0-9.,]+)"\nbelow = 1000\n'
    )
    log = tmp_path / "logs" / "a.log"
    log.parent.mkdir()
    log.write_text("NFS server a not responding\ntokens/s: 1,200\n")
    watch = LogWatch(tmp_path, [str(tmp_path / "logs" / "*.log")], read_log_rules(rules))
    assert watch.look(0.0) == []
    with log.open("a") as file:
        file.write("NFS server b not responding, token=abcdefgh123\ntokens/s: 900\ntokens/s: 800\n")
    assert [alarm.text.partition(", says")[0] for alarm in watch.look(5.0)] == [
        "storage: NFS server b not responding, token=[redacted]", "slow: tokens/s: 900",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text, words",
    [
        ("", "tables [[rule]]"),
        ("rule = 3", "tables [[rule]]"),
        ('[[rule]]\nname = "a"', "name and match"),
        ('[[rule]]\nname = "a"\nmatch = "("', "a regular expression"),
        ('[[rule]]\nname = "a"\nmatch = "b"\nabove = 1', "a group"),
        ('[[rule]]\nname = "a"\nmatch = "b"\ncount = "x"', "a number"),
        ('[[rule]]\nname = "a"\nmatch = "b"\nseconds = 0', "above 0"),
        ("[[rule", "TOML"),
    ],
)
def test_rules_that_are_none_are_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(text)
    with pytest.raises(WindtunnelError, match=words.replace("[", r"\[")):
        read_log_rules(path)


SCRIPT = """
import os, sys
from pathlib import Path
from windtunnel.fleet.api import monitor_run
from windtunnel.fleet.fence import Fence
from windtunnel.fleet.findings.finding import Verdict
from windtunnel.fleet.watch.patches import Patches
from windtunnel.fleet.watch.printed import PrintedLines
patches = Patches(Fence("lost"))
PrintedLines(Path(sys.argv[1]), patches, everything=sys.argv[2] == "all")
print("step 1", "loss:", 2.5)
print("a word", end="\\r")
sys.stderr.write("grad_norm: ")
sys.stderr.write("nan\\n")
print("\\x00\\udce4 loss", file=sys.stderr)
if not os.fork():
    print("loss of a child")
    sys.stdout.flush()
    os._exit(0)
os.wait()
patches.restore()
print("loss after")
sys.exit(3)
"""


def test_a_copy_of_what_is_printed_changes_nothing(tmp_path: Path) -> None:
    ring = tmp_path / "rank-000000.ring"
    plain = SCRIPT.replace("PrintedLines(Path", "(lambda *a, **b: None)(Path")
    runs = [
        subprocess.run([sys.executable, "-c", text, str(ring), "all"], capture_output=True, check=False) for text in (plain, SCRIPT)
    ]
    assert (runs[0].returncode, runs[0].stdout, runs[0].stderr) == (runs[1].returncode, runs[1].stdout, runs[1].stderr)
    assert runs[0].returncode == 3
    copied = (tmp_path / "rank-000000.printed").read_text(encoding="utf-8", errors="replace").splitlines()
    assert copied == ["step 1 loss: 2.5", "a word", "grad_norm: nan", "\x00? loss"]


def test_a_copy_that_fails_ends_itself_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream, told = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "stderr", told)
    patches = Patches(Fence("what this rank prints is not examined"))
    printed.PrintedLines(tmp_path / "nowhere" / "rank-000000.ring", patches)
    for _ in range(3):
        print("loss: 1.0")
    stream.flush()
    assert stream.buffer.getvalue() == b"loss: 1.0\n" * 3  # type: ignore[attr-defined]
    assert told.getvalue().count("what this rank prints is not examined") == 1
    patches.restore()


def test_the_copy_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(printed, "LARGEST", 1000)
    patches = Patches(Fence("lost"))
    printed.PrintedLines(tmp_path / "rank-000000.ring", patches)
    for step in range(500):
        print("x" * 10_000 if step % 50 else "", f"step {step} loss: 1.0\n")
        assert (tmp_path / "rank-000000.printed").stat().st_size <= 1000 + 2049
    patches.restore()
    assert not vars(stream).keys() & {"write"}


def test_a_kept_job_has_no_copy() -> None:
    assert settings_of({}).printed == "losses"
    assert settings_of({"WINDTUNNEL_FLEET_NODE": "a"}).printed == "none"
    assert settings_of({"WINDTUNNEL_FLEET_PRINTED": "all"}).printed == "all"
