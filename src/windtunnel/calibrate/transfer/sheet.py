"""What a study of transfer shows: each measured GPU predicted from the others, by three methods."""

from __future__ import annotations

import math
from collections.abc import Sequence

from windtunnel.calibrate.transfer.errors import Best
from windtunnel.calibrate.transfer.judge import BEST, Result
from windtunnel.calibrate.transfer.rows import TOKENS
from windtunnel.calibrate.transfer.study import TransferStudy
from windtunnel.sheet.blocks import Block, Cell, Column, Lines, Section, Sheet, Table
from windtunnel.sheet.sentence import Sentence, quote

TITLES = {"naive": "peak ratio", "two_formula": "two formulas", "ours": "ours", "ours_best": "ours, best matmul known"}
BESTS = ("GPU", "published TFLOP/s", "nearest's share of peak", "ours")


def transfer_sheet(study: TransferStudy, given: bool) -> Sheet:
    """What `fit transfer` shows. `given`: whether the study had datasets of the asker."""
    intro = (
        Sentence("Each GPU predicted from the others and its data sheet, at {tokens} tokens and more.", tokens=TOKENS),
        "Error ln(predicted / measured) in %: median of the size, 90 % of the sizes, mean.",
    )
    rests = {one.gpu: one.source for one in study.results if one.method == "ours" and one.kind == "gemm"}
    bests: tuple[Block, ...] = ()
    if study.bests:
        rows = tuple(
            tuple(
                Cell(text, rate) for text, rate in zip(best_cells(best), (None, best.measured, best.naive, best.ours), strict=True)
            )
            for best in study.bests
        )
        bests = (Table("best_matmul", (Column(BESTS[0]), *(Column(head, True) for head in BESTS[1:])), rows),)
    below: list[Block] = [Lines((Sentence("ours on {gpu} rests on {source}", gpu=gpu, source=quote(source)),), mood="soft")
                           for gpu, source in rests.items()]  # fmt: skip
    if not given:
        below.append(Lines((
            "Only published attention rates are here. The rest needs datasets:",
            quote("windtunnel profile import PATH --gpu ID -o F.parquet, then --data F.parquet."),
        )))  # fmt: skip
    return Sheet(
        "Curves that GPUs share", "", (),
        (
            Section("", (Lines(intro, brief=True),)),
            Section("Errors of GPUs left out", (Lines(intro, detail=True), _errors((*study.results, *study.together)))),
            Section("Best matrix products", bests),
            Section("What this rests on", tuple(below)),
        ),
        titled=True,
    )  # fmt: skip


def _errors(results: Sequence[Result]) -> Table:
    """A row for each GPU, kind of kernel and method."""
    columns = (Column("GPU left out"), Column("kernels"), Column("rows", True), Column("method"),
               *(Column(head, True) for head in ("median", "90 %", "mean")))  # fmt: skip
    rows = []
    for one in results:
        if one.method != BEST:
            count = Cell(f"{one.n:,}", one.n) if one.gpu != "all" else Cell("")
            shares = [(100 * one.median, ""), (100 * one.p90, ""), (100 * one.bias, "+")]
            errors = (Cell(f"{percent:{sign}.1f}", percent) for percent, sign in shares)
            rows.append((Cell(one.gpu), Cell(one.kind), count, Cell(Sentence(TITLES[one.method])), *errors))
    return Table("errors", columns, tuple(rows))


def best_cells(best: Best) -> tuple[str, ...]:
    """GPU, published TFLOP/s, and both predictions with their errors."""
    found = (f"{rate / 1e12:.0f} ({100 * math.log(rate / best.measured):+.0f} %)" for rate in (best.naive, best.ours))
    return (best.gpu, f"{best.measured / 1e12:.0f}", *found)
