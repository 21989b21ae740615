"""`windtunnel design JOB`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from windtunnel.base.errors import SpecError
from windtunnel.cli.shared.job import tell_source
from windtunnel.cli.shared.options import command_of
from windtunnel.cli.shared.outputs import Outputs
from windtunnel.cli.shared.progress import stoppable
from windtunnel.search.options import DesignCommandOptions

if TYPE_CHECKING:
    from windtunnel.search.design import DesignField, Premium

ORDER = ("sets", "on", "objective", "premiums")


@command_of(DesignCommandOptions, of_a_run=True, loads=False, order=ORDER)
def command(asked: DesignCommandOptions, outputs: Outputs) -> None:
    from windtunnel.jobs.search_space import DesignFields
    from windtunnel.search.design import design
    from windtunnel.search.design_sheet import design_sheet

    source, outputs = outputs.source, replace(outputs, source=None)
    assert source is not None
    fields = DesignFields.of([(name, str(values)) for name, values in dict(asked.fields).items()])
    source.sets = fields.fixed
    loaded = source.load()
    axes = fields.axes(loaded.job)
    tell_source(loaded)
    with stoppable(f"designing for {loaded.job.name}") as progress:
        result = design(
            fields.space_of(loaded.job),
            axes,
            str(asked.objective),
            trials=asked.trials,
            seed=asked.seed,
            study=asked.study,
            premiums=[_premium(key, dollars, axes) for key, dollars in dict(asked.premiums).items()],
            fixed_plan=asked.fixed_plan,
            predictions=asked.predictions,
            stop=progress,
        )
    outputs.show(design_sheet(result, asked.top), result.as_dict)


def _premium(key: str, dollars: str | float, axes: Sequence[DesignField]) -> Premium:
    from windtunnel.jobs.search_space import premium_of

    try:
        return premium_of(key, float(dollars), axes)
    except (ValueError, SpecError):
        ranges = ", ".join(axis.path for axis in axes if not axis.values)
        raise SpecError("--premium", f"{key}={dollars}", f"dollars of a range: {ranges or 'there is none'}") from None
