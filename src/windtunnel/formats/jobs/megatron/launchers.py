"""Launchers over Megatron-LM, and what they take where its flags are silent: Megatron-SWIFT, slime, verl's Megatron workers."""

from __future__ import annotations

import math
import re

from windtunnel.base.errors import SpecError
from windtunnel.formats.jobs.launched import Launched
from windtunnel.formats.jobs.megatron.arguments import Arguments
from windtunnel.formats.jobs.megatron.flags import LORA_TARGETS, OF_SLIME
from windtunnel.formats.jobs.rl.trainer import LONGEST_PROMPT, LONGEST_SAMPLES, UPDATE_ALONE
from windtunnel.formats.jobs.trainer_keys import usual_tuner
from windtunnel.spec import Model
from windtunnel.spec.model import Lora

_SWIFT = re.compile(r"(?m)^[^#\n]*(?:\bmegatron\s+(?:sft|pt|rlhf)\b|\bswift[/.]cli[/.]_megatron[/.](?:sft|pt|rlhf)\b)")
_SWIFT_VERSION = re.compile(r"(?i)\bms-?swift(?:\[[\w,]*\])?\s*(?:[=~>]=|:|-)?\s*v?(\d+)\.(\d+)")
_LOSS_OFF = re.compile(r"(?i)--cross[-_]entropy[-_]loss[-_]fusion[ =]+false\b")
_TUNER = ("train-type", "tuner-type", "lora-rank", "lora-alpha", "lora-dropout", "target-modules")
_NO_COST = (
    "model", "dataset", "load-safetensors", "save-safetensors", "max-epochs", "packing", "padding-free", "num-train-epochs",
    "mcore-model", "split-dataset-ratio", "dataset-num-proc", "dataloader-num-workers", "model-author", "model-name", "system",
    "merge-lora", "finetune", "use-hf", "output-dir", "add-version", "train-iters",
)  # fmt: skip
"""Megatron-SWIFT's flags about data, files and names. Packed sequences are `max_length` long."""
SWIFT_FLAGS = frozenset({*_TUNER, *_NO_COST, "load"})
"""Megatron-SWIFT's own flags beside Megatron-LM's."""


def fill_in(args: Arguments, text: str) -> None:
    """What the launcher that `text` calls would add to the flags, and which of its own flags cost nothing."""
    if _SWIFT.search(text):
        _fill_swift(args, text)
    elif args.has("rollout-batch-size") and (args.has("hf-checkpoint") or args.has("actor-num-nodes")):
        _fill_slime(args)
    if args.has("rl-update"):
        _know(args, ("rl-update", "hf-checkpoint"))
        args.given.setdefault("moe-grouped-gemm", [])  # verl/models/mcore/config_converter.py
        args.given.setdefault("moe-token-dispatcher-type", ["alltoall"])
        args.used |= {"moe-grouped-gemm", "moe-token-dispatcher-type"}
        args.assumed.append(UPDATE_ALONE)


def add_adapters(args: Arguments, model: Model) -> Model:
    """The model with the adapters that Megatron-SWIFT's flags ask for; the same one where all weights are trained."""
    kind = next((args.given[flag][0] for flag in ("train-type", "tuner-type") if args.given.get(flag)), "full").lower()
    kind = usual_tuner(kind, args.assumed)
    if kind == "full" or "rl-update" in args.given:
        return model
    if kind != "lora":
        raise SpecError("--tuner-type", kind, "full or lora")
    rank = args.integer("lora-rank") or 8
    words = [word for one in args.given.get("target-modules", ["all-linear"]) for word in one.split(",")]
    everything = any(word in ("all-linear", "all") for word in words)
    targets = sorted(set(LORA_TARGETS.values()) if everything else {LORA_TARGETS[word] for word in words if word in LORA_TARGETS})
    if not targets:
        raise SpecError(
            "--target-modules", " ".join(words), f"all-linear, or some of {', '.join(sorted(set(LORA_TARGETS.values())))}"
        )
    dropout = args.number("lora-dropout")
    fields = {"rank": rank, "targets": targets, "dropout": dropout is None or dropout > 0}
    if model.experts:
        fields["experts"] = "linear"
    args.assumed.append(f"adapters of rank {rank} beside Megatron-Core's linear layers, one for each product")
    return model.model_copy(update={"lora": Lora.model_validate(fields)})


def _fill_swift(args: Arguments, text: str) -> None:
    """Megatron-SWIFT's defaults (swift/megatron/arguments/megatron_base_args.py of ms-swift 3.8; megatron_args.py since 4.0)."""
    moe = {"moe-grouped-gemm": list[str](), "moe-token-dispatcher-type": ["alltoall"]}
    for flag, words in ({"expert-tensor-parallel-size": ["1"], "use-distributed-optimizer": []} | moe).items():
        args.given.setdefault(flag, words)
    args.used |= moe.keys()
    if not args.has("fp16"):
        args.given.setdefault("bf16", [])
    args.assumed.append(
        "Megatron-SWIFT's defaults: bf16, a distributed optimizer, all-to-all to experts without tensor parallelism"
    )
    _know(args, (*_TUNER, *_NO_COST))
    _fill_loss_of_swift(args, text)


def _fill_loss_of_swift(args: Arguments, text: str) -> None:
    """The loss of ms-swift 4, which its `tuner_type` tells from 3: fused, by Transformer Engine in 4.0 to 4.3 and by
    Megatron-Core's own lines since 4.4 of June 2026 (swift/megatron/arguments/megatron_args.py at d7c7db3a, e6a54340, 7cb73c1f)."""
    stated = _SWIFT_VERSION.search(text)
    version = (int(stated[1]), int(stated[2])) if stated is not None else None
    if version is not None and version < (4, 0) or version is None and not args.has("tuner-type"):
        return
    said = f"ms-swift {version[0]}.{version[1]}" if version is not None else "ms-swift 4.0 to 4.3"
    if _LOSS_OFF.search(text):
        return
    if not args.has("cross-entropy-loss-fusion"):
        args.given["cross-entropy-loss-fusion"] = []
        args.assumed.append(f"--cross_entropy_loss_fusion true, the default of {said}")
    if not args.has("cross-entropy-fusion-impl"):
        kernel = "te" if version is None or version < (4, 4) else "native"
        args.given["cross-entropy-fusion-impl"] = [kernel]
        later = "; 4.4 and later take native, with five times its logits" if version is None else ""
        args.assumed.append(f"--cross_entropy_fusion_impl {kernel}, the default of {said}{later}")


def _fill_slime(args: Arguments) -> None:
    """slime's batches: samples of one rollout, packed into micro batches of at most --max-tokens-per-gpu tokens. How long samples
    become is known after the rollout alone: all are taken as long as --rollout-max-response-len allows. bf16 and the distributed
    optimizer are its defaults (slime/backends/megatron_utils/arguments.py)."""
    if args.launcher.total is None:
        nodes, gpus = args.integer("actor-num-nodes"), args.integer("actor-num-gpus-per-node")
        args.launcher = Launched((nodes or 1) * gpus if gpus else None, nodes)
    length = args.integer("rollout-max-response-len")
    most = args.integer("max-tokens-per-gpu")
    cp = args.integer("context-parallel-size") or 1
    packs = not args.has("seq-length") and bool(length or most)
    if packs:
        seq = length or (most or 1) * cp
        args.given["seq-length"] = [str(seq)]
        args.assumed.append(f"{LONGEST_SAMPLES}{seq} tokens, the longest response (--set plan.seq=N: their mean length)")
    if length and not args.has("max-position-embeddings"):  # rotary embeddings set no limit: a prompt and the longest response
        prompt = args.integer("rollout-max-prompt-len") or LONGEST_PROMPT
        args.given["max-position-embeddings"] = [str(args.integer("rollout-max-context-len") or prompt + length)]
    samples = (args.integer("rollout-batch-size") or 1) * (args.integer("n-samples-per-prompt") or 1)
    if not args.has("global-batch-size"):
        args.given["global-batch-size"] = [str(max(1, samples // (args.integer("num-steps-per-rollout") or 1)))]
    if most and packs and not args.has("micro-batch-size"):
        args.given["micro-batch-size"] = [str(_packed_samples(args, most * cp // (length or most * cp)))]
    args.given.setdefault("use-distributed-optimizer", [])
    if not args.has("fp16"):
        args.given.setdefault("bf16", [])
    args.assumed.append("slime's defaults: bf16 and a distributed optimizer")
    args.assumed.append(UPDATE_ALONE)
    _know(args, OF_SLIME)


def _packed_samples(args: Arguments, most: int) -> int:
    """Samples of a micro batch: `most`, or the next fewer that divide a replica's share of the batch."""
    axes = ("tensor-model-parallel-size", "pipeline-model-parallel-size", "context-parallel-size")
    replicas = (args.launcher.total or 1) // math.prod(args.integer(axis) or 1 for axis in axes)
    share = (args.integer("global-batch-size") or 1) // max(1, replicas)
    return next((count for count in range(most, 1, -1) if share % count == 0), 1)


def _know(args: Arguments, flags: tuple[str, ...]) -> None:
    """Takes flags of a launcher off the list of those that are not understood."""
    args.used |= set(flags) & args.given.keys()
    args.unknown = [told for told in args.unknown if told.partition(" ")[0].removeprefix("--") not in flags]
