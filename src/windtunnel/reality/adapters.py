"""Rows that train adapters alone: which, as the published benchmark defines them."""

from __future__ import annotations

from windtunnel.reality.rows import TrainingRow
from windtunnel.spec.model import Lora


def is_lora(row: TrainingRow) -> bool:
    """Whether the row trains low-rank adapters: its model or its source says so."""
    return "lora" in f"{row.model} {row.source}".lower()


def adapters_of(row: TrainingRow, assumed: list[str]) -> Lora | None:
    """The adapters of the published benchmark: MLPerf Training's rules fix them, NVIDIA's recipes print them; None without LoRA.

    Sources: mlcommons/training_results_v4.0, NVIDIA's llama2_70b_lora conf/megatron_gpt_peft_tuning_config.yaml; Megatron-Bridge's
    scripts/performance, llama3_70b_lora.
    """
    if not is_lora(row):
        return None
    if row.family.startswith("MLPerf"):
        assumed.append("LoRA of rank 16 on linear_qkv and linear_proj, with dropout (MLPerf Training's reference, not in the row)")
        return Lora(rank=16, targets=("linear_qkv", "linear_proj"), dropout=True, all_to_all=row.framework == "nemo")
    assumed.append("LoRA of rank 16 on linear_qkv (Megatron-Bridge's performance recipes, not in the row)")
    return Lora(rank=16, targets=("linear_qkv",))
