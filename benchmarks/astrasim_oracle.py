"""Agreement with ASTRA-sim's printed cycles, by network and backend: `python benchmarks/astrasim_oracle.py FOLDER`.

FOLDER holds `oracle.csv` (case, backend, workload, system, network, memory, extra, rc, cycles_max, …) and what it names.
"""

from __future__ import annotations

import csv
import sys
import tarfile
import tempfile
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from windtunnel_oracles.astrasim.files import AstraSetting, read_workload, run_setting

from windtunnel.base.errors import WindtunnelError
from windtunnel.formats.simulators.astrasim.configuration import read_memory, read_network, read_system
from windtunnel.formats.traces.chakra.groups import read_groups

LIMIT = 0.02


def prefix_of(workload: str, folder: Path, unpacked: Path) -> Path:
    """The prefix of a case's traces: in an archive, in one of the unpacked ones, or beside the table."""
    archive, _, inside = workload.rpartition(":")
    if archive:
        return unpacked / archive.removesuffix(".tar.gz") / inside
    places = (folder, *unpacked.iterdir())
    return next(
        (place / workload for place in places if list((place / workload).parent.glob(f"{Path(workload).name}.0.et"))),
        folder / workload,
    )


def error_of(row: dict[str, str], folder: Path, unpacked: Path) -> tuple[float | None, str]:
    """Largest relative error of the slowest and fastest rank; None where one side gives no cycles, with the reason."""
    prefix = prefix_of(row["workload"], folder, unpacked)
    extra = dict(part.partition("=")[::2] for part in row["extra"].split() if part.startswith("--"))
    group = extra.get("--comm-group-configuration", "")
    groups = (
        read_groups(prefix.parent / ("comm_group.json" if "<" in group or "workload>" in row["extra"] else Path(group).name))
        if group
        else None
    )
    try:
        system = read_system(folder / row["system"])
        scale = float(extra.get("--injection-scale", 1))
        system = replace(system, endpoint_delay=int(system.endpoint_delay * scale))
        setting = AstraSetting(
            system, read_network(folder / row["network"]), read_memory(folder / row["memory"]), row["backend"] == "aware"
        )
        end = run_setting(read_workload(str(prefix), groups), setting).end
    except WindtunnelError as error:
        return (None, f"refused: {error}") if not row["cycles_max"] else (float("inf"), str(error))
    if not row["cycles_max"]:
        return None, f"ASTRA-sim gives no cycles (exit code {row['rc']}); here {end.max():.0f}"
    return max(abs(end.max() / float(row["cycles_max"]) - 1), abs(end.min() / float(row["cycles_min"]) - 1)), ""


def main(folder: Path) -> None:
    """Prints a line for each network and backend, then every case that is not exact."""
    found: dict[str, list[float]] = defaultdict(list)
    told = []
    with tempfile.TemporaryDirectory() as name:
        unpacked = Path(name)
        for archive in folder.glob("*.tar.gz"):
            with tarfile.open(archive) as packed:
                packed.extractall(unpacked / archive.name.removesuffix(".tar.gz"), filter="data")
        with open(folder / "oracle.csv", newline="") as table:
            for row in csv.DictReader(table):
                error, why = error_of(row, folder, unpacked)
                if error is not None:
                    found[f"{row['backend']}, {Path(row['network']).stem}"].append(error)
                if error is None or error > 0:
                    told.append(f"{row['case']} ({row['backend']}): {why or f'{error:.2%}'}; exit code there {row['rc']}")
    for key, errors in sorted(found.items()):
        exact, within = sum(error == 0 for error in errors), sum(error <= LIMIT for error in errors)
        print(f"{key}: {len(errors)} cases, {exact} exact, {within} within {LIMIT:.0%}, worst {max(errors):.3%}")
    every = [error for errors in found.values() for error in errors]
    print(f"all: {len(every)} cases, {sum(e == 0 for e in every)} exact, {sum(e <= LIMIT for e in every)} within {LIMIT:.0%}")
    print("\n".join(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
