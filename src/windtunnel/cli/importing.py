"""`windtunnel import`: other people's descriptions of a model or a job."""

from __future__ import annotations

from windtunnel.cli.verbs import Verbs

VERBS: Verbs = {
    "SOURCE": ("importing_file", "A config.json, Megatron-LM flags, a DeepSpeed or torchtitan configuration."),
    "torch": ("importing_torch", "Any PyTorch module, through torch.export."),
}
OTHERWISE = "SOURCE"
