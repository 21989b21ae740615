"""A page of every verb that writes one, from small jobs whose name is a script: for tests, and for `make pictures`."""

from __future__ import annotations

from pathlib import Path

import windtunnel as wt
from windtunnel.cli import main

JOB = "llama3-8b-8xh100"
SMALL = ("--set", "model.layers=2", "--set", "plan.global_batch=8")
COMMANDS: dict[str, tuple[str, ...]] = {
    "plan": ("plan", "--budget", "200000", "--days", "30", "--on", "h100-ib,b200-ib", "--gpus", "64", "-q"),
    "goodput": ("goodput", "NAMED", "--set", "reliability=llama3-2024", "--days", "10", "--replicas", "50", "-q"),
    "compare": ("compare", "NAMED", JOB, *SMALL, "--set-b", "plan.recompute=full"),
    "collective": ("collective", "-c", "h100-ib", "-n", "16", "-b", "1K:64M:8"),
    "links": ("collective", "-c", "h100-ib", "-n", "16", "-b", "4M", "--network", "flow"),
    "flows": ("flows", "-f", "fat_tree:k=4,link=400Gb/s", "--flows", "permutation:bytes=1MiB", "-q"),
    "whatif": ("whatif", "TRACE", "--change", "no-host-gaps", "--change", "scale:gemm=0.5", "--change", "scale:attention=1.4"),
    "design": ("design", "NAMED", "--set", "cluster.node.gpu.memory_bandwidth=2TB/s..4TB/s", "--trials", "6", "--fixed-plan",
               "--objective", "time,dollars", "-q"),
    "run": ("runs", "show", "LOG"),
    "run-comparison": ("compare", "TRACE", "NAMED", *SMALL),
    "log-comparison": ("compare", "LOG", "NAMED"),
    "memory": ("memory", "NAMED", "-q"),
    "sensitivity": ("sensitivity", "NAMED", "-q"),
    "predict": ("predict", "NAMED", *SMALL, "-q"),
    "search": ("search", "NAMED", *SMALL, "--jobs", "1", "--gap", "0.1", "--objective", "time,dollars", "-q"),
}  # fmt: skip
NAME = "<script>alert(1)</script>"
"""Of each job on these pages."""

LINE = (
    " [2025-01-01 00:00:00] iteration {0:8d}/     200 | consumed samples: {0:12d} | elapsed time per iteration (ms): {1:.1f} | "
    "learning rate: 1.0E-04 | global batch size:     8 | lm loss: 2.0E+00 | loss scale: 1.0 | grad norm: 1.0 | "
    "number of skipped iterations:   0 | number of nan iterations:   0 |\n"
)


def write_pages(folder: Path) -> dict[str, Path]:
    """Name -> the page in `folder`."""
    (folder / "job.toml").write_text(f'base = "{JOB}"\nname = "{NAME}"\n', encoding="utf-8")
    wt.export(wt.load(JOB, list(SMALL[1::2])), "kineto").save(folder / "trace.json")
    steps = "".join(LINE.format(step, 1100.0 + 3.0 * (step % 7) + (300.0 if step > 120 else 0.0)) for step in range(1, 201))
    (folder / "run.log").write_text(steps, encoding="utf-8")
    files = {"NAMED": folder / "job.toml", "TRACE": folder / "trace.json", "LOG": folder / "run.log"}
    made = {}
    for name, words in COMMANDS.items():
        made[name] = folder / f"{name}.html"
        option = "--picture" if name == "memory" else "--html"
        assert main([*(str(files.get(word, word)) for word in words), option, str(made[name])]) == 0, name
    return made
