"""The rooms of formulas, and which tests are theirs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src" / "windtunnel"

ROOMS: dict[str, tuple[str, ...]] = {
    "compute": (
        "compute_*",
        "predict_profile",
        "transfer_*",
        "quantise*",
        "offload",
        "slow_calls",
        "attention_core_fusion",
        "graph_model",
    ),
    "compute/engines": ("compute_engines", "serving_predict", "serving_host", "fit_engines"),
    "network/closed": ("network_*", "collective_algorithms", "moe", "laws/grids"),
    "network/algorithms": (
        "network_*",
        "collective_*",
        "nccl_settings",
        "laws/collective_laws",
        "laws/channel_laws",
        "engines/lanes_closed",
    ),
    "network/nccl": ("network_nccl", "nccl_settings", "network_*"),
    "network/groups": ("network_group", "network_members", "network_*"),
    "network/simulate": (
        "fabric_*",
        "traffic",
        "predict_flow",
        "predict_packet",
        "laws/fabric_laws",
        "laws/nccl_variables",
        "laws/grids",
        "network_nccl",
        "engines/fabric_faults",
        "engines/collectives_by_engine",
        "engines/lanes_closed",
    ),
    "network/lanes": (
        "collective_*",
        "nccl_settings",
        "msccl",
        "laws/collective_laws",
        "laws/channel_laws",
        "laws/grids",
        "engines/lanes_closed",
    ),
    "network/grids": ("network_dimensions", "grid_*", "laws/grids"),
    "network/fabrics": (
        "fabric_*",
        "machine_fabric",
        "network_bad_files",
        "laws/fabric_laws",
        "laws/grids",
        "engines/drawn_fabrics",
        "engines/imported_topologies",
    ),
    "memory": ("memory*", "allocator", "offload", "sharding", "ddp_buckets", "moe"),
    "predict/price": ("predict_by_hand", "prediction_data", "network_calibrate", "graph_model", "moe", "context", "slow_calls"),
    "predict/answer": ("money", "power", "silicon", "predict_by_hand", "predict_spans", "prediction_data", "startup", "moe_runs"),
    "predict/runs": (
        "predict_*",
        "unequal",
        "data_loading",
        "startup",
        "fabric_flows",
        "laws/unequal_laws",
        "laws/predict_folded",
        "laws/recorded_passes",
        "laws/live_traffic",
        "engines/storage_traffic",
    ),
    "predict/program": (
        "lower_*",
        "zero_bubble_by_hand",
        "schedules",
        "sharding",
        "offload",
        "unequal",
        "compute_tax",
        "megascale_overlap",
        "predict_by_hand",
        "reality_modules",
        "laws/predict_conservation",
        "laws/search_demands",
        "engines/shared_fabric",
    ),
    "search": ("search*", "memory_together", "memory_no_room", "planner", "scaling", "sensitivity", "loss", "laws/search_*"),
    "goodput": ("goodput_*", "reality_goodput", "cli_goodput"),
    "serving": ("serving_*", "served_accuracy", "laws/serving_*", "laws/speculation_laws", "laws/meeting_laws"),
    "rl": ("rl_*", "served_accuracy"),
    "service": (
        "service_*",
        "page_state",
        "service/store",
        "service/abuse",
        "service/sign_in",
        "service/confined",
        "service/operated",
    ),
    "fleet/findings": ("fleet_findings", "fleet_clocks", "fleet_hang", "fleet_detect", "fleet_compare", "fleet_batch"),
    "workload/mixers": ("hybrids", "workload*", "models", "catalog", "serving_predict", "context", "fit_forward"),
    "workload/optimizers": ("optimizers", "offload", "workload*", "sharding"),
    "workload/passes": ("workload*", "graph_model", "predict_by_hand", "lower_*", "offload"),
    "replay": ("replay*", "goal", "astrasim_*", "grid_against_astrasim", "simai_*", "msccl"),
    "runs": ("runs_*", "fleet_compare", "fleet_kept", "laws/step_changes"),
    "calibrate": ("calibrate_*", "compute_fit", "fit_*", "network_calibrate", "reality_fit", "reality_energy", "transfer_*"),
    "traces": ("linked_traces", "other_traces", "formats_analyses", "runs_alone", "runs_waits", "laws/scanned_traces"),
    "spec": ("spec_*", "schedules", "hybrids", "loss", "families", "moe", "vision", "unequal", "offload", "goodput_job"),
}
"""Room -> tests/unit/test_<pattern>.py that are near to it, or tests/<folder>/test_<pattern>.py: they run first, with the watched
answers of tests/golden and those tests that name its modules."""

FILES: dict[str, tuple[str, ...]] = {
    "service": ("store/queue.py", "store/shelf.py", "store/backup.py", "web/guard.py", "web/tokens.py", "work/outcome.py"),
    "spec": ("calibration.py", "model.py", "offload.py", "plan.py", "reliability.py", "shapes.py", "unequal.py"),
}
"""Room -> those of its files that compute or decide by rules, where most do neither."""

LIGHT = frozenset(
    ("compute/engines", "serving", "rl", "service", "network/simulate", "network/lanes", "network/grids", "network/fabrics")
    + ("predict/runs", "predict/program", "search", "replay", "runs", "calibrate", "traces")
)
"""Rooms that have laws of their own among their tests, or that predictions of training do not call: no wide tests."""

WIDE = (
    "golden/test_golden.py",
    "laws/test_compute_laws.py",
    "laws/test_goodput_laws.py",
    "laws/test_memory_laws.py",
    "laws/test_moe_laws.py",
    "laws/test_network_laws.py",
    "laws/test_power_laws.py",
    "laws/test_predict_*.py",
    "laws/test_transfer_laws.py",
    "laws/test_unequal_laws.py",
    "unit/test_unequal.py",
)
"""Tests of whole predictions: they run after a room's own ones, but for rooms that are LIGHT."""


def files_of(room: str) -> list[Path]:
    """Source files of a room: those of its folder and of folders within that are no rooms of their own, without what it shows of
    its answers; or those that it names."""
    if room in FILES:
        return [SRC / room / name for name in FILES[room]]
    inner = [SRC / other for other in ROOMS if other.startswith(f"{room}/")]
    paths = (path for path in (SRC / room).rglob("*.py") if path.name != "__init__.py" and not path.stem.endswith("sheet"))
    return sorted(path for path in paths if not any(folder in path.parents for folder in inner))


def near(room: str) -> list[Path]:
    """The tests of a room, nearest first: those of its patterns, the watched answers, and others that name its modules."""
    paths: list[Path] = []
    for pattern in (*ROOMS[room], "golden/answers", *(("golden/golden",) if room.startswith("predict/") else ())):
        folder, _, name = pattern.rpartition("/")
        paths += sorted((ROOT / "tests" / (folder or "unit")).glob(f"test_{name}.py"))
    modules = [f"{room}/{name.removesuffix('.py')}" for name in FILES.get(room, ())] or [room]
    named = re.compile(rf"\bwindtunnel\.({'|'.join(modules)})\b".replace("/", r"\."))
    others = [path for folder in ("unit", "laws", "engines") for path in sorted((ROOT / "tests" / folder).glob("test_*.py"))]
    paths += [path for path in others if named.search(path.read_text(encoding="utf-8"))]
    return list(dict.fromkeys(paths))


def wide(rooms: Iterable[str]) -> list[Path]:
    """The tests of whole predictions, if one of the rooms needs them."""
    if LIGHT.issuperset(rooms):
        return []
    return [path for pattern in WIDE for path in sorted((ROOT / "tests").glob(pattern))]
