"""The accuracy bars of the project, computed from a folder with training.csv and training_single_node.csv.

    python benchmarks/bars.py [FOLDER]

Without a folder: the measurements in the catalogue. Prints one line a bar: rows scored, mean and median absolute error, bias, and
whether the bar holds. Asserts nothing.
"""

from __future__ import annotations

import sys
from pathlib import Path

from windtunnel.base.errors import WindtunnelError
from windtunnel.calibrate.training import rows_of
from windtunnel.reality.score.bars import NO_BAR, measure
from windtunnel.reality.validate import score_training


def main(folder: Path | None) -> None:
    """Print the bars for the tables in `folder`."""
    tables = (
        []
        if folder is None
        else [path for name in ("training", "training_single_node") if (path := folder / f"{name}.csv").exists()]
    )
    for line in measure(rows_of(tables), score_training):
        found, total = line.found, line.found.n + line.found.skipped
        if found.mape_pct is None or found.median_abs_pct is None or found.bias_pct is None:
            print(f"{found.family:48s} {found.quantity:12s} none of {total} scored")
            continue
        verdict = "" if line.target_text == NO_BAR else f"{'holds' if line.holds else 'MISSED'}: {line.target_text}"
        print(
            f"{found.family:48s} {found.quantity:12s} {found.n:4d} of {total:4d}   mean {found.mape_pct:6.2f} %  median "
            f"{found.median_abs_pct:6.2f} %  bias {found.bias_pct:+7.2f} %  largest {found.max_abs_pct:6.1f} %   {verdict}"
        )


if __name__ == "__main__":
    if len(sys.argv) > 2:
        sys.exit("usage: python benchmarks/bars.py [FOLDER]")
    try:
        main(Path(sys.argv[1]) if len(sys.argv) == 2 else None)
    except WindtunnelError as error:
        sys.exit(str(error))
