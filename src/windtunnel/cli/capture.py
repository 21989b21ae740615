"""`windtunnel capture --on CLUSTER -- COMMAND…`."""

from __future__ import annotations

from windtunnel.capture.options import CaptureCommandOptions
from windtunnel.cli.shared.common import notes
from windtunnel.cli.shared.outputs import Outputs


def command(asked: CaptureCommandOptions, outputs: Outputs) -> None:
    from windtunnel.api.capture import capture
    from windtunnel.api.capture_sheet import capture_sheet
    from windtunnel.base.errors import SpecError
    from windtunnel.spec.loading.load import load_cluster

    if not asked.command:
        raise SpecError(
            "COMMAND", "nothing", "a training command after --", "Type: windtunnel capture --on h100-ib -- torchrun train.py"
        )
    sets = [*asked.sets, *([] if asked.gpus is None else [f"gpus={asked.gpus}"])]
    cluster = load_cluster(str(asked.cluster), sets)
    if asked.against is not None:
        from windtunnel.cli.shared.job import job_of, tell_assumed

        loaded = job_of(asked.against)
        tell_assumed(loaded)
    tell = (lambda text: None) if outputs.quiet else lambda text: notes().print(text, markup=False)
    captured = capture(
        asked.command, cluster, steps=asked.steps, ranks=asked.ranks, network=asked.network, out=asked.out, progress=tell
    )  # fmt: skip
    if asked.against is None:
        outputs.show(capture_sheet(captured), captured.as_dict)
        return
    from windtunnel.api.against import against, against_sheet

    found = against(captured, loaded.job)
    outputs.show(against_sheet(found), found.as_dict)
