"""From a Hugging Face config.json to a prediction and a timeline, in Python.

    .venv/bin/python examples/from_hugging_face.py [TRACE.pftrace]

The importer says what it ignored and what it had to assume. The timeline opens at https://ui.perfetto.dev.
"""

from __future__ import annotations

import sys
from pathlib import Path

import windtunnel as wt

CONFIG = Path(__file__).parent / "inputs" / "llama-3.1-8b" / "config.json"


def main(trace: str | None = None) -> None:
    machine = wt.load("llama3-8b-8xh100")  # its cluster, plan and runtime are used; the model is the config's
    found = wt.import_job(CONFIG, on=machine)
    print(f"read {len(found.built)} fields, ignored {', '.join(found.ignored) or 'nothing'}")
    for assumption in found.assumed:
        print("assumed", assumption)
    if found.job is None:
        raise SystemExit("no machine")
    p = wt.predict(found.job)
    print(f"{found.model.name} on {found.job.cluster.gpus} x {found.job.cluster.gpu.name}")
    print(f"step {p.step_time_s * 1e3:.0f} ms, {p.tokens_per_s_per_gpu:,.0f} tokens/s/GPU, MFU {p.mfu:.1%}")
    print("fits" if p.fits else "does not fit")
    print("most of the step:")
    for name, seconds in sorted(p.breakdown.items(), key=lambda part: -part[1])[:4]:
        print(f"  {name:<28} {seconds * 1e3:>6.0f} ms")
    if trace is not None:
        print(f"{trace}: {p.write_trace(trace)} slices")


if __name__ == "__main__":
    main(*sys.argv[1:2])
