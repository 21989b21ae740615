"""The accuracy bars of the project, computed from a folder with training.csv and training_single_node.csv.

    python benchmarks/bars.py FOLDER

Prints one line a bar: rows scored, mean and median absolute error, bias. Asserts nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from windtunnel.base.errors import WindtunnelError
from windtunnel.reality.report import Score, summary
from windtunnel.reality.rows import TrainingRow, read
from windtunnel.reality.validate import score_training

Pick = Callable[[TrainingRow], bool]


def _between(first: str, last: str) -> Pick:
    return lambda row: first <= row.id <= last


def _dense_half(row: TrainingRow) -> bool:
    dense = row.arch in ("gpt", "mpt", "llama", "nemotron")
    return row.id.startswith("T") and row.complete == "y" and dense and row.precision in ("bf16", "fp16")


_MEGASCALE: Pick = lambda row: row.family == "A100-ByteDance" and row.framework == "megatron" and bool(row.iter_time_s)  # noqa: E731
_SC21 = _between("T0001", "T0020")
_EOS: Pick = lambda row: row.family == "H100-Megatron-Eos"  # noqa: E731

BARS: tuple[tuple[str, str, Pick], ...] = (
    ("1  A100-vTrain", "step_time_s", lambda row: row.family == "A100-vTrain"),
    ("1  A100-vTrain 175B", "step_time_s", lambda row: row.family == "A100-vTrain" and row.params_b == 175),
    ("1  A100-vTrain 39.1B", "step_time_s", lambda row: row.family == "A100-vTrain" and row.params_b == 39.1),
    ("1  A100-vTrain 18.4B", "step_time_s", lambda row: row.family == "A100-vTrain" and row.params_b == 18.4),
    ("1  A100-vTrain 3.6B", "step_time_s", lambda row: row.family == "A100-vTrain" and row.params_b == 3.6),
    ("2  Korthikanti 2022 T0054-T0061", "step_time_s", _between("T0054", "T0061")),
    ("3  MegaScale's Megatron-LM rows", "step_time_s", _MEGASCALE),
    ("3  SC'21 T0001-T0010, April 2021", "step_time_s", _between("T0001", "T0010")),
    ("3  README T0011-T0020, January 2021", "step_time_s", _between("T0011", "T0020")),
    ("3  SC'21 T0001-T0020", "step_time_s", _SC21),
    ("3  H100-Megatron-Eos", "step_time_s", _EOS),
    ("3  the three pooled", "step_time_s", lambda row: _MEGASCALE(row) or _SC21(row) or _EOS(row)),
    ("4  single node", "step_time_s", lambda row: row.family == "A100-vTrain-node"),
    ("5  dense bf16/fp16, complete", "step_time_s", _dense_half),
    ("6  memory", "memory_gib", lambda row: row.mem_gib is not None),
    ("6  memory, BLOOM sweep", "memory_gib", lambda row: row.mem_kind == "device"),
    ("6  memory, torchtitan", "memory_gib", lambda row: row.mem_kind == "reserved"),
)


def main(folder: Path) -> None:
    """Print the bars for the tables in `folder`."""
    rows = [row for name in ("training.csv", "training_single_node.csv") for row in read(folder / name).training]
    cache: dict[str, list[Score]] = {}
    for name, quantity, pick in BARS:
        picked = [row for row in rows if pick(row)]
        scores: list[Score] = []
        for row in picked:
            if row.id not in cache:
                cache[row.id] = score_training(row)
            scores += [score for score in cache[row.id] if score.quantity == quantity]
        line = summary(name, quantity, scores)
        if not line.n or line.mape_pct is None or line.median_abs_pct is None or line.bias_pct is None:
            print(f"{name:40s} {quantity:12s} none of {len(scores)} scored")
            continue
        share = f"{line.n:4d} of {len(scores):4d} = {100 * line.n / len(scores):5.1f} %"
        print(f"{name:40s} {quantity:12s} {share}   mean {line.mape_pct:6.2f} %  "
              f"median {line.median_abs_pct:6.2f} %  bias {line.bias_pct:+7.2f} %  largest {line.max_abs_pct:6.1f} %")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python benchmarks/bars.py FOLDER")
    try:
        main(Path(sys.argv[1]))
    except WindtunnelError as error:
        sys.exit(str(error))
