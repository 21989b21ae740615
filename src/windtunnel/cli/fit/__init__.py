"""Fits of constants to measurements, each with a record of its rows and of the remaining errors."""

from __future__ import annotations

from windtunnel.cli.shared.verbs import Verbs

VERBS: Verbs = {
    "kernels": ("fit.kernels", "Kernel constants of one GPU, from datasets of `windtunnel profile`."),
    "published": ("fit.published", "The catalogue's kernel constants, from published kernel measurements."),
    "engines": ("fit.engines", "Kernels of vLLM, SGLang and TensorRT-LLM by GPU, from aiconfigurator's tables."),
    "forward": ("fit.forward", "Recurrences, and rates of low precision, of training from aiconfigurator's tables."),
    "transfer": ("fit.transfer", "Curves that GPUs share; each measured GPU predicted from the others by three methods."),
    "collectives": ("fit.collectives", "What collectives reach, by GPU generation and fabric, from nccl-tests tables."),
    "training": ("fit.training", "Time of kernels in training over their time in a loop, by GPU architecture."),
    "host": ("fit.host", "What a framework's process spends feeding its GPU."),
    "power": ("fit.power", "What a GPU draws by what it does, and what a power cap does to its clock."),
}
"""The verbs of `windtunnel fit`; see `cli/shared/verbs.py`."""
