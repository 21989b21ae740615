"""A real job of 8 ranks on this machine's processor beside its prediction from what `windtunnel profile` measured of the machine.

python benchmarks/fleet_twin.py [--folder out/twin] [--steps 24] [--runs 3] [--keep]

1. Kernels: `windtunnel profile run` (layers, embedding, head) and `windtunnel profile sweep` (single kernels, for curves of what is
   left) of the job's shapes on one thread, by the thread's own time, while 7 more processes do the job's computation: caches and
   cores are shared as in the job.
2. Calls: gloo's all-reduces of 8 ranks on loopback as nccl-tests prints them; the importer reads them, and
   `calibrate.achieved` fits the cluster to them (`windtunnel import LOG --cluster` does the same).
3. The job: 8 "GPUs", each a share of the machine. With C cores and R ranks that all compute, a kernel takes R/C times its own time.
   What other programs took of the cores while the steps ran is read from /proc: the share is (C - others)/R. A section's own time
   is that with a core; what the share makes longer is waiting for one, which the monitor times apart.
4. Runs of `examples/training/fleet_llama.py` under `windtunnel fleet run`: as it is, and with one section 20 % longer.

Prints, for each run, what `windtunnel fleet compare` says, the time between sections, which the prediction has no expectation
for, and all that is named against the clean run of the same round (what is usual): an error that the prediction has in both is
not in that. No GPU, no NCCL: gloo on loopback.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.calibrate.achieved import fit_achieved
from windtunnel.compute.bench import bench, gpu_under, on_host
from windtunnel.fleet.recorded import Recorded, recorded_of_rings
from windtunnel.formats.door import read_files
from windtunnel.records import read_any
from windtunnel.records.sections import Section
from windtunnel.runs.fleet.comparison import FleetComparison, compare_sections
from windtunnel.runs.fleet.expected import ExpectedSections
from windtunnel.runs.fleet.usual import usual_sections
from windtunnel.spec import Job, check, dump_job, load_job

JOB = "examples/jobs/tiny-llama.toml"
SCRIPT = "examples/training/fleet_llama.py"
RANKS = 8
CASES: tuple[dict[str, float], ...] = ({}, {"backward": 0.2}, {"forward": 0.2}, {"optimizer": 0.2}, {"between": 0.2})
_ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


class Load:
    """Cores that other programs than a command and its children took, by the second. /proc, every 0.25 s."""

    def __init__(self, root: int) -> None:
        self.root, self.rows, self._stop = root, [], threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()

    def _watch(self) -> None:
        ticks, own = os.sysconf("SC_CLK_TCK"), dict[int, float]()
        while not self._stop.wait(0.25):
            own.update(_times(self.root))
            numbers = [int(one) for one in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
            busy = (sum(numbers) - numbers[3] - numbers[4]) / ticks
            self.rows.append((time.time(), busy, sum(own.values()) / ticks))

    def end(self) -> None:
        """Stops looking."""
        self._stop.set()
        self.thread.join()

    def others(self, begin: float, end: float) -> float:
        """Mean cores that others (and the hypervisor) took between two unix times."""
        inside = [row for row in self.rows if begin <= row[0] <= end]
        if len(inside) < 2:
            return 0.0
        first, last = inside[0], inside[-1]
        return max((last[1] - first[1] - (last[2] - first[2])) / (last[0] - first[0]), 0.0)


def _times(root: int) -> dict[int, float]:
    """Processor ticks of a process and its descendants."""
    parents, ticks = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            parents[int(entry.name)], ticks[int(entry.name)] = int(fields[1]), float(fields[11]) + float(fields[12])
    found = {}
    for pid in ticks:
        at = pid
        while at in parents and at != root:
            at = parents[at]
        if at == root:
            found[pid] = ticks[pid]
    return found


def _windtunnel(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "windtunnel", *words], check=True, env=_ENVIRONMENT, stdout=subprocess.DEVNULL)


def _torchrun(script: str, *words: str) -> list[str]:
    return [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(RANKS), script, *words]


def measure(folder: Path) -> None:
    """Kernels and calls of this machine into the folder."""
    alone = {**_ENVIRONMENT, "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1"}
    beside = [
        subprocess.Popen(
            [sys.executable, SCRIPT, "--steps", "1000000"], env={**alone, "MASTER_PORT": str(29600 + n)}, stdout=subprocess.DEVNULL
        )
        for n in range(RANKS - 1)
    ]
    try:
        _windtunnel(
            "profile", "run", JOB, "--device", "cpu", "--threads", "1", "--level", "layer", "--layers", "1,2", "--libraries",
            "windtunnel", "--tolerance", "0.4", "-o", f"{folder}/layers.parquet",
        )  # fmt: skip
        _windtunnel(
            "profile", "sweep", JOB, "--device", "cpu", "--threads", "1", "--budget", "60s", "-o", f"{folder}/kernels.parquet"
        )
    finally:
        for one in beside:
            one.terminate()
            one.wait()
    log = subprocess.run(_torchrun("benchmarks/fleet_gloo.py"), check=True, env=_ENVIRONMENT, capture_output=True, text=True).stdout
    (folder / "gloo.log").write_text(log)


def twin(folder: Path) -> tuple[Job, str]:
    """The job on this machine, every rank with a whole core, and a word on the fit of its calls."""
    curves, dataset = folder / "cpu.json", folder / "kernels.parquet"
    _windtunnel("fit", "kernels", str(dataset), "-o", str(curves))
    gpu = gpu_under(read_any(dataset).about, str(curves.resolve()))
    plain = bench(gpu, RANKS)
    links = plain.node.scale_up.model_copy(update={"kind": "ethernet", "bandwidth": 2e9})
    plain = plain.model_copy(update={"node": plain.node.model_copy(update={"scale_up": links})})
    fitted = fit_achieved(plain, read_files([str(folder / "gloo.log")]).value.tables, "gloo on loopback")
    changes = [
        "cluster.gpus=8",
        f"plan.global_batch={2 * RANKS}",
        "runtime.overlap_grad_reduce=false",
        "runtime.reduce_with=all_reduce",
    ]
    job = load_job(JOB, changes)
    job = job.model_copy(update={"cluster": fitted.cluster, "runtime": on_host(job.runtime), "name": "tiny-llama-8-ranks"})
    return check(job), f"{fitted.after.mean_abs_pct:.0f} % on its calls, {fitted.left_out.mean_abs_pct:.0f} % on sizes left out"


def train(folder: Path, name: str, steps: int, case: dict[str, float]) -> tuple[Recorded, float]:
    """A watched run, and the cores that others took during its settled steps."""
    extra = [word for section, share in case.items() for word in (f"--{section}", str(share))]
    command = [
        "fleet",
        "run",
        "--dir",
        str(folder / "runs"),
        "--run",
        name,
        "--",
        *_torchrun(SCRIPT, "--steps", str(steps), *extra),
    ]
    process = subprocess.Popen([sys.executable, "-m", "windtunnel", *command], env=_ENVIRONMENT, stdout=subprocess.DEVNULL)
    load = Load(process.pid)
    try:
        if process.wait(timeout=900):
            raise SystemExit(f"the training of {name} failed")
    finally:
        load.end()
        if process.poll() is None:
            process.terminate()
            process.wait()
    recorded = recorded_of_rings(folder / "runs" / name)
    done = recorded.sections.where((recorded.sections.section == Section.STEP) & (recorded.sections.step >= 2))
    done = done.where(np.isfinite(done.seconds))
    begin = recorded.sections.zero + float(done.begin.min())
    return recorded, load.others(begin, recorded.sections.zero + float((done.begin + done.seconds).max()))


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _row(name: str, compared: FleetComparison, others: float, usual: str) -> str:
    parts: dict[str, Any] = {part.name: part for part in compared.sections}
    ratios = "  ".join(f"{parts[one].median / parts[one].expected:6.3f}" for one in ("forward", "backward", "optimizer"))
    calls = [call for call in compared.calls if call.bytes > 1e6]
    call = f"{calls[0].median / calls[0].expected_each:6.2f}" if calls else "     -"
    step = compared.step
    first = _words(compared, 1)
    return (
        f"{name:<16} {step.expected * 1e3:8.0f} {step.median * 1e3:8.0f} {step.median / step.expected:7.3f}  {ratios} {call}  "
        f"{others:6.2f} {parts['between'].median * 1e3:8.0f}  {first:<26} {usual}"
    )


def _words(compared: FleetComparison, most: int | None = None) -> str:
    """The causes of a comparison, the dearest first."""
    causes = compared.causes[:most]
    return ", ".join(f"{one.key} {one.factor:.2f} {one.seconds * 1e3:+.0f} ms" for one in causes) or "nothing"


def main() -> None:
    """Measures, predicts, trains and prints."""
    options = argparse.ArgumentParser()
    options.add_argument("--folder", type=Path, default=Path("out/twin"))
    options.add_argument("--steps", type=int, default=24)
    options.add_argument("--runs", type=int, default=3)
    options.add_argument("--keep", action="store_true", help="take the measurements that the folder has")
    given = options.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    if not (given.keep and (given.folder / "gloo.log").is_file()):
        measure(given.folder)
    job, fit = twin(given.folder)
    profile = given.folder / "layers.parquet"
    (given.folder / "job.toml").write_text(dump_job(job))
    print(f"{RANKS} ranks on {_cores()} cores; gloo on loopback: fitted to {fit}")
    print(f"{'':<16} {'step, ms':^25}  {'observed / expected':^29} {'others':>7} {'between':>8}")
    heads = (
        "run",
        "expected",
        "observed",
        "ratio",
        "forward",
        "backw.",
        "optim.",
        "call",
        "cores",
        "ms",
        "named first",
        "against the clean run",
    )
    print("{:<16} {:>8} {:>8} {:>7}  {:>7} {:>6} {:>7} {:>6}  {:>6} {:>8}  {:<26} {}".format(*heads))
    for number in range(given.runs):
        usual: ExpectedSections | None = None
        for case in CASES:
            name = "-".join([*(f"{section}+{share:.0%}" for section, share in case.items())] or ["clean"])
            stamp = f"{name.replace('%', '')}-{number}-{os.getpid()}"
            recorded, others = train(given.folder, stamp, given.steps, case)
            cores = max(_cores() - others, 0.2) / RANKS
            compared = compare_sections(recorded.sections, job, blocking=True, profile=profile, cores=cores)
            named = "-"
            if usual is None:
                usual = usual_sections(recorded.sections, job, True)
            else:
                named = _words(compare_sections(recorded.sections, job, blocking=True, expected=usual, cores=cores))
            print(_row(name, compared, others, named), flush=True)


if __name__ == "__main__":
    main()
