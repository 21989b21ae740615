"""Starts of a job on a busy machine: `python -m tests.faults.starts --starts 40 --load 8`. No alarm may be raised, however long a
rank imports or builds its model; and a rank that never comes is named within 20 s, by `--missing N` starts. Needs torch.

As `python -m tests.faults.starts rank KIND` it is the script of the ranks.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.faults.watched import alarms_in, torchrun, watched_command

ROOT = Path(__file__).resolve().parents[2]
RANKS, LATE, STEPS = 3, 1, 8
LONGER = 10.0
"""Seconds of processor time that the late rank takes longer, but no more than `LONGEST` of wall time: at a load of 8 a core that is
a rank ten seconds behind and more."""
LONGEST = 25.0
KINDS = ("even", "import", "files", "model", "compiler", "data")
NAMED_WITHIN = 20.0


def _work(seconds: float = LONGER) -> None:
    until, processor = time.monotonic() + LONGEST, time.process_time() + seconds
    while time.process_time() < processor and time.monotonic() < until:
        sum(range(10_000))


def _read_slowly() -> None:
    """An import from a slow file system: small files, and more waiting than work."""
    files = sorted(Path(json.__file__).parents[1].rglob("*.py"))[:400]
    until = time.monotonic() + LONGER
    while time.monotonic() < until:
        for path in files:
            path.read_bytes()
            time.sleep(0.02)
            if time.monotonic() > until:
                break


def rank(kind: str) -> None:
    """Trains for a few steps after a start of `kind`, in which rank `LATE` takes longer."""
    late = os.environ["RANK"] == str(LATE)
    if late and kind == "import":
        _work()
    if late and kind == "files":
        _read_slowly()
    import torch
    import torch.distributed as dist

    if late and kind == "model":
        _work()
    if late and kind == "compiler":
        subprocess.run([sys.executable, "-S", "-c", f"import time\nwhile time.process_time() < {LONGER / 2}: pass"], check=True)
    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    if late and kind == "data":
        _work()
    if kind == "data":
        dist.barrier()
    for _ in range(STEPS):
        model(torch.randn(8, 64)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.05)
    dist.destroy_process_group()


@dataclass(frozen=True)
class Start:
    """What was said of one start."""

    kind: str
    seconds: float
    code: int
    alarms: tuple[str, ...]
    said: str

    @property
    def right(self) -> bool:
        """Whether the job ended well, without an alarm."""
        return not self.alarms and self.code == 0 and "Traceback" not in self.said


def start(kind: str) -> Start:
    """One start, its few steps, and its end."""
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    with tempfile.TemporaryDirectory(prefix="starts-") as folder:
        command = watched_command(folder, torchrun(RANKS, "-m", "tests.faults.starts", "rank", kind))
        began = time.monotonic()
        ran = subprocess.run(command, env=variables, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False)
        told = tuple(f"{alarm['verdict']}: {alarm['text']}" for alarm in alarms_in(folder))
    return Start(kind, time.monotonic() - began, ran.returncode, told, ran.stderr[-600:])


def missing() -> float:
    """Seconds from the moment at which the others are in their first call to the alarm that names a rank that was not started."""
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    script = f"import os; os.environ['WORLD_SIZE'] = '{RANKS}'; from tests.faults.starts import rank; rank('even')"
    with tempfile.TemporaryDirectory(prefix="starts-") as folder:
        command = torchrun(RANKS - 1, "--no-python", sys.executable, "-c", script)
        child = subprocess.Popen(
            watched_command(folder, command), env=variables, cwd=ROOT, stderr=subprocess.DEVNULL, start_new_session=True
        )
        try:
            begun, until = float("nan"), time.monotonic() + 300.0
            while time.monotonic() < until and not (told := alarms_in(folder)):
                rings = list(Path(folder, "job").glob("*.ring"))
                if begun != begun and len(rings) == RANKS - 1:
                    begun = time.time()
                time.sleep(0.1)
            named = bool(told) and told[0]["ranks"] == [RANKS - 1]
            return told[0]["seconds"] - begun if named else float("inf")
        finally:
            os.killpg(child.pid, signal.SIGTERM)
            child.wait(60)
            for path in Path("/proc").glob("[0-9]*/environ"):
                try:
                    if f"WINDTUNNEL_FLEET_DIR={folder}\0".encode() in path.read_bytes() + b"\0":
                        os.kill(int(path.parent.name), signal.SIGKILL)
                except OSError:
                    continue


def main() -> int:
    """0 where no start raised an alarm and each missing rank was named in time."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.starts", description=__doc__)
    parser.add_argument("--starts", type=int, default=40)
    parser.add_argument("--load", type=float, default=8.0, help="processes a core that want to run")
    parser.add_argument("--at-once", type=int, default=4, help="starts at the same time; their ranks are part of the load")
    parser.add_argument("--missing", type=int, default=0)
    options = parser.parse_args()
    count = max(0, round(options.load * (os.cpu_count() or 1)) - options.at_once * RANKS)
    burners = [subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) for _ in range(count)]
    wrong = 0
    try:
        with ThreadPoolExecutor(options.at_once) as pool:
            for number, found in enumerate(pool.map(start, [KINDS[n % len(KINDS)] for n in range(options.starts)]), 1):
                wrong += not found.right
                why = "" if found.right else f": {'; '.join(found.alarms) or found.said}"
                state = "no alarm" if found.right else f"WRONG, status {found.code}"
                print(f"{number}: {found.kind}: {state} in {found.seconds:.0f} s{why}", flush=True)
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()
    late = [missing() for _ in range(options.missing)]
    print(f"{options.starts - wrong} of {options.starts} starts without an alarm")
    if late:
        print(f"missing ranks were named after {', '.join(f'{seconds:.1f}' for seconds in late)} s")
    return int(wrong > 0 or max(late, default=0.0) > NAMED_WITHIN)


if __name__ == "__main__":
    if sys.argv[1:2] == ["rank"]:
        rank(sys.argv[2])
    else:
        sys.exit(main())
