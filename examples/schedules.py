"""Which pipeline schedule for one job: how much of the step is bubble, and what does less bubble cost in memory?

    .venv/bin/python examples/schedules.py

GPT-3 175B on 64 A100 with eight pipeline stages, every schedule that there is, each with the virtual stages that it needs.
Transfers overlap where the schedule lets them. The bubble is the share of the step that stages wait for each other, mean over
stages; activations are the most that a stage holds between passes. Halved backward passes have less bubble, but their calls no
longer hide behind weight gradients; pairs hide them behind each other.
"""

from __future__ import annotations

import windtunnel as wt

SCHEDULES = (
    ("gpipe", 1),
    ("1f1b", 1),
    ("interleaved", 6),
    ("breadth-first", 6),
    ("zb-h1", 1),
    ("zb-h2", 1),
    ("interleaved-zb", 6),
    ("zbv", 2),
    ("dualpipev", 2),
    ("dualpipe", 1),
)


def rows() -> list[tuple[str, int, wt.Prediction]]:
    """(schedule, virtual stages, prediction)."""
    found = []
    for schedule, vpp in SCHEDULES:
        sets = [f"plan.schedule={schedule}", f"plan.vpp={vpp}", "runtime.overlap_p2p=true", "runtime.p2p_sync=false"]
        found.append((schedule, vpp, wt.predict(wt.load("gpt3-175b-64", sets))))
    return found


def bubble(prediction: wt.Prediction) -> float:
    """Share of the step that stages wait for each other."""
    waits = [parts["bubble"] + parts.get("other_stages", 0.0) for parts in prediction.by_stage]
    return sum(waits) / len(waits) / prediction.step_time_s


def held(prediction: wt.Prediction) -> float:
    """Bytes of activations on the stage that holds most of them."""
    return max(max(level for _, level in stage.curve) - stage.curve[0][1] for stage in prediction.memory)


def main() -> None:
    table = rows()
    job = table[0][2].job
    plan = job.plan
    print(f"{job.model.name} on {job.cluster.gpus} A100, tp {plan.tp}, pp {plan.pp}, {job.micro_batches} micro batches")
    print(f"{'schedule':<15} {'vpp':>3} {'step':>9} {'MFU':>7} {'bubble':>7} {'activations':>12} {'peak':>10}")
    for schedule, vpp, p in table:
        most = max(p.memory, key=lambda stage: stage.total)
        print(
            f"{schedule:<15} {vpp:>3} {p.step_time_s:>7.2f} s {p.mfu:>6.1%} {bubble(p):>6.1%} {held(p) / 2**30:>8.1f} GiB "
            f"{most.total / 2**30:>6.0f} GiB{'' if p.fits else '  does not fit'}"
        )


if __name__ == "__main__":
    main()
