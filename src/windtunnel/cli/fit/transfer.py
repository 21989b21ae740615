"""`windtunnel fit transfer [--data PATH]... [--leave GPU]`, also called `windtunnel profile transfer`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from windtunnel.calibrate.options import TransferFitCommandOptions
from windtunnel.cli.shared.common import names_of, show_spinner, write
from windtunnel.cli.shared.options import command_of
from windtunnel.cli.shared.outputs import Outputs

if TYPE_CHECKING:
    from windtunnel.calibrate.transfer import Best, Result

EXAMPLES = """\b
Examples:
  windtunnel fit transfer --data kernels.parquet         leave each measured GPU out, and predict it from the others
  windtunnel fit transfer --leave b200-sxm-180gb         one GPU, from the catalogue's stored curves
"""


@command_of(TransferFitCommandOptions)
def command(asked: TransferFitCommandOptions, outputs: Outputs) -> None:
    from windtunnel.calibrate.transfer.sheet import transfer_sheet
    from windtunnel.calibrate.transfer.study import read_cases, study_transfer

    with show_spinner("reading measurements"):
        cases = read_cases(names_of(asked.data))
    with show_spinner("leaving GPUs out, one after the other"):
        study = study_transfer(cases, asked.leave)
    if asked.save is not None:
        write(study.curves(asked.save), asked.save, "--write")
    if asked.markdown is not None:
        lines = [*_markdown(study.results, study.together), *(["", *_best_lines(study.bests)] if study.bests else [])]
        write("\n".join(lines) + "\n", asked.markdown, "--markdown")
    outputs = replace(outputs, quiet=outputs.quiet or asked.markdown == "-")
    outputs.show(transfer_sheet(study, bool(asked.data)), study.as_dict())


def _grid(results: Sequence[Result]) -> tuple[list[str], list[list[str]]]:
    """Head and rows: GPU, class, rows, and for each method median / 90 % / bias."""
    from windtunnel.calibrate.transfer.sheet import TITLES

    methods = list(dict.fromkeys(one.method for one in results))
    rows: dict[tuple[str, str], dict[str, Result]] = {}
    for one in results:
        rows.setdefault((one.gpu, one.kind), {})[one.method] = one
    body = []
    for (gpu, kind), by in rows.items():
        n = "" if gpu == "all" else f"{next(iter(by.values())).n:,}"
        cells = [f"{100 * by[m].median:.1f}/{100 * by[m].p90:.1f}/{100 * by[m].bias:+.1f}" if m in by else "" for m in methods]
        body.append([gpu, kind, n, *cells])
    return ["GPU left out", "kernels", "rows", *(TITLES[m] for m in methods)], body


def _lines(head: Sequence[str], body: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *body)]


def _markdown(results: Sequence[Result], together: Sequence[Result]) -> list[str]:
    return _lines(*_grid([*results, *together]))


def _best_lines(bests: Sequence[Best]) -> list[str]:
    from windtunnel.calibrate.transfer.sheet import BESTS, best_cells

    return _lines(BESTS, [best_cells(best) for best in bests])
