"""The rooms of formulas, and which tests are theirs."""

from __future__ import annotations

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
    "network/closed": ("network_*", "collective_algorithms", "moe"),
    "network/nccl": ("network_nccl", "nccl_settings", "network_*"),
    "network/groups": ("network_group", "network_members", "network_*"),
    "memory": ("memory*", "allocator", "offload", "sharding", "ddp_buckets", "moe"),
    "predict/price": ("predict_by_hand", "prediction_data", "network_calibrate", "graph_model", "moe", "context", "slow_calls"),
    "predict/answer": ("money", "power", "predict_by_hand", "predict_spans", "prediction_data", "startup", "moe_runs"),
    "goodput": ("goodput_*", "reality_goodput", "cli_goodput"),
    "fleet/findings": ("fleet_findings", "fleet_clocks", "fleet_hang", "fleet_detect", "fleet_compare", "fleet_batch"),
    "workload/optimizers": ("optimizers", "offload", "workload*", "sharding"),
    "workload/passes": ("workload*", "graph_model", "predict_by_hand", "lower_*", "offload"),
}
"""Room -> tests/unit/test_<pattern>.py that are near to it: they run first."""

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
"""Tests of whole predictions, for every room: they run after a room's own ones."""


def files_of(room: str) -> list[Path]:
    """Source files of a room: those of its folder, and of folders within."""
    return sorted(path for path in (SRC / room).rglob("*.py") if path.name != "__init__.py")


def near(room: str) -> list[Path]:
    """The tests of a room, nearest first."""
    found = [path for pattern in ROOMS[room] for path in sorted((ROOT / "tests" / "unit").glob(f"test_{pattern}.py"))]
    return list(dict.fromkeys(found))


def wide() -> list[Path]:
    """The tests of whole predictions."""
    return [path for pattern in WIDE for path in sorted((ROOT / "tests").glob(pattern))]
