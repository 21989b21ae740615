"""`windtunnel fit transfer [--data PATH]... [--leave GPU]`, also called `windtunnel profile transfer`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from windtunnel.calibrate.options import TransferFitCommandOptions
from windtunnel.cli.shared.common import names_of, show_spinner, write, write_json
from windtunnel.cli.shared.options import bare_command_of

if TYPE_CHECKING:
    from windtunnel.calibrate.transfer import Best, Result

TITLES = {"naive": "peak ratio", "two_formula": "two formulas", "ours": "ours", "ours_best": "ours, best matmul known"}


EXAMPLES = """\b
Examples:
  windtunnel fit transfer --data kernels.parquet         leave each measured GPU out, and predict it from the others
  windtunnel fit transfer --leave b200-sxm-180gb         one GPU, from the catalogue's stored curves
"""


@bare_command_of(TransferFitCommandOptions)
def command(asked: TransferFitCommandOptions) -> None:
    from windtunnel.calibrate.transfer.study import read_cases, study_transfer

    save, markdown, json = asked.save, asked.markdown, asked.json
    with show_spinner("reading measurements"):
        cases = read_cases(names_of(asked.data))
    with show_spinner("leaving GPUs out, one after the other"):
        study = study_transfer(cases, asked.leave)
    results, together, bests = study.results, study.together, study.bests
    if save is not None:
        write(study.curves(save), save, "--write")
    if markdown is not None:
        lines = [*_markdown(results, together), *(["", *_best_lines(bests)] if bests else [])]
        write("\n".join(lines) + "\n", markdown, "--markdown")
    if json is not None:
        write_json(study.as_dict(), json)
    if asked.quiet or "-" in (json, markdown):
        return
    _show(results, together, bests, bool(asked.data))


def _grid(results: Sequence[Result]) -> tuple[list[str], list[list[str]]]:
    """Head and rows: GPU, class, rows, and for each method median / 90 % / bias."""
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


def _best_grid(bests: Sequence[Best]) -> tuple[list[str], list[list[str]]]:
    head = ["GPU", "published TFLOP/s", "nearest's share of peak", "ours"]
    return head, [
        [b.gpu, f"{b.measured / 1e12:.0f}", *(f"{x / 1e12:.0f} ({100 * np.log(x / b.measured):+.0f} %)" for x in (b.naive, b.ours))]
        for b in bests
    ]


def _lines(head: Sequence[str], body: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *body)]


def _markdown(results: Sequence[Result], together: Sequence[Result]) -> list[str]:
    return _lines(*_grid([*results, *together]))


def _best_lines(bests: Sequence[Best]) -> list[str]:
    return _lines(*_best_grid(bests))


def _show(results: Sequence[Result], together: Sequence[Result], bests: Sequence[Best], given: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    from windtunnel.calibrate.transfer import BEST, METHODS, TOKENS

    console = Console(highlight=False)
    console.print(
        f"Each GPU predicted from the others and its data sheet, at {TOKENS} tokens and more.\n"
        "Error ln(predicted / measured) in %: median of the size, 90 % of the sizes, mean."
    )
    head = ["GPU left out", "kernels", "rows", "method", "median", "90 %", "mean"]
    body: list[list[str]] = []
    for one in (*results, *together):
        if one.method != BEST:
            first = not body or one.method == next(iter(METHODS))
            names = [one.gpu, one.kind, f"{one.n:,}" if one.gpu != "all" else ""] if first else ["", "", ""]
            body.append([*names, TITLES[one.method], *(f"{100 * x:.1f}" for x in (one.median, one.p90)), f"{100 * one.bias:+.1f}"])
    for (names, rows), left in (((head, body), (0, 1, 3)), *([(_best_grid(bests), (0,))] if bests else [])):
        table = Table(box=None, pad_edge=False)
        for place, name in enumerate(names):
            table.add_column(name, justify="left" if place in left else "right", no_wrap=True)
        for row in rows:
            table.add_row(*row)
        console.print()
        console.print(table)
    rests = {one.gpu: one.source for one in results if one.method == "ours" and one.kind == "gemm"}
    for gpu, source in rests.items():
        console.print(f"ours on {gpu} rests on {source}", style="dim")
    if not given:
        console.print(
            "\nOnly published attention rates are here. The rest needs datasets:\n"
            "windtunnel profile import PATH --gpu ID -o F.parquet, then --data F.parquet."
        )
