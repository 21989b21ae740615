"""`windtunnel fit transfer [--data PATH]... [--leave GPU]`, also called `windtunnel profile transfer`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from windtunnel.base.errors import FileError, UnknownName
from windtunnel.cli.shared.common import Json, Quiet, show_spinner, writable, write, write_json

if TYPE_CHECKING:
    from windtunnel.calibrate.transfer import Best, JointCurves, MeasuredGpu, Result

TITLES = {"naive": "peak ratio", "two_formula": "two formulas", "ours": "ours", "ours_best": "ours, best matmul known"}


EXAMPLES = """\b
Examples:
  windtunnel fit transfer --data kernels.parquet         leave each measured GPU out, and predict it from the others
  windtunnel fit transfer --leave b200-sxm-180gb         one GPU, from the catalogue's stored curves
"""


def command(
    data: Annotated[
        list[str] | None,
        typer.Option("--data", metavar="PATH", help="A dataset, a folder of them, or one GPU's files (see profile import)."),
    ] = None,
    leave: Annotated[
        list[str] | None, typer.Option("--leave", metavar="GPU", help="Leave only this one out; several are left out together.")
    ] = None,
    markdown: Annotated[str | None, typer.Option("--markdown", metavar="FILE|-", help="Write the tables as Markdown.")] = None,
    save: Annotated[
        str | None, typer.Option("--write", metavar="FILE", help="Write the shared curves (catalog/kernels/transfer/joint.json).")
    ] = None,
    json: Json = None,
    quiet: Quiet = False,
) -> None:
    from windtunnel.calibrate.transfer import background, best_matmuls, leave_out, merge_cases, pool_results, published_cases

    writable(("--markdown", markdown), ("--write", save), ("--json", json))
    with show_spinner("reading measurements"):
        cases = merge_cases([*published_cases(), *_cases(data or ())])
    measured = [case.gpu.id for case in cases]
    for name in leave or ():
        if name not in measured:
            raise UnknownName("--leave", name, measured)
    with show_spinner("leaving GPUs out, one after the other"):
        behind = background(cases)
        without: Callable[[frozenset[str]], JointCurves] = lru_cache(maxsize=None)(behind.without)
        results = leave_out(cases, behind, without, frozenset(leave or ()))
        together = pool_results(results)
        bests = [] if leave else best_matmuls(lambda left: without(left & frozenset(behind.relatives)))
    if save is not None:
        _save(save, without, results, bests)
    if markdown is not None:
        lines = [*_markdown(results, together), *(["", *_best_lines(bests)] if bests else [])]
        write("\n".join(lines) + "\n", markdown, "--markdown")
    if json is not None:
        write_json(_answer(results, together, bests), json)
    if quiet or "-" in (json, markdown):
        return
    _show(results, together, bests, bool(data))


def _cases(paths: Sequence[str]) -> list[MeasuredGpu]:
    """Every dataset of the paths; a folder without one is read as one GPU's files."""
    from windtunnel.calibrate.transfer import case
    from windtunnel.formats.machines.kernels.measurements import import_all
    from windtunnel.reality.score.kernel_rows import gpu_of

    cases = []
    for path in map(Path, paths):
        if not path.exists():
            raise FileError(str(path), "no such file or folder", "a dataset, or a folder of datasets")
        files = sorted(path.rglob("*.parquet")) if path.is_dir() else []
        for one in files or [path]:
            cases += [case(gpu_of(imported.data.about), imported.data) for imported in import_all(one)]
    return cases


def _save(path: str, without: Callable[[frozenset[str]], JointCurves], results: Sequence[Result], bests: Sequence[Best]) -> None:
    from windtunnel.base.errors import SpecError
    from windtunnel.calibrate.transfer import Stored, errors
    from windtunnel.compute.transfer.joint import text

    if not bests or len({result.gpu for result in results if result.kind == "gemm"}) < 2:
        raise SpecError(
            "--write", path, "curves of at least two GPUs with matrix products, each left out once", "Add --data, and no --leave."
        )
    every = without(frozenset())
    each = {name: without(frozenset((name,))) for name in every.fitted_on}
    write(text(Stored(every, each, errors(results, bests))), path, "--write")


def _answer(results: Sequence[Result], together: Sequence[Result], bests: Sequence[Best]) -> dict[str, Any]:
    def row(one: Result) -> dict[str, Any]:
        return {
            "gpu": one.gpu,
            "kind": one.kind,
            "method": one.method,
            "rests_on": one.source,
            "n": one.n,
            "median_pct": 100.0 * one.median,
            "p90_pct": 100.0 * one.p90,
            "bias_pct": 100.0 * one.bias,
        }

    return {
        "results": [row(one) for one in results],
        "together": [row(one) for one in together],
        "best_matmul": [{"gpu": b.gpu, "measured": b.measured, "naive": b.naive, "ours": b.ours} for b in bests],
    }


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
