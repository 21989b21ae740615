"""The result of an import: model, plan and runtime, ignored keys, assumed values."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from windtunnel.spec import Job, Model, Plan, Runtime

HARMLESS = frozenset(
    {
        "_name_or_path",
        "architectures",
        "attn_implementation",
        "auto_map",
        "bos_token_id",
        "cache_implementation",
        "decoder_start_token_id",
        "dtype",
        "eos_token_id",
        "id2label",
        "image_token_id",
        "initializer_range",
        "label2id",
        "layer_norm_eps",
        "layer_norm_epsilon",
        "max_window_layers",
        "norm_epsilon",
        "norm_eps",
        "output_attentions",
        "output_hidden_states",
        "output_router_logits",
        "pad_token_id",
        "pretraining_tp",
        "quantization_config",
        "rms_norm_eps",
        "rope_parameters",
        "rope_scaling",
        "rope_theta",
        "sep_token_id",
        "tokenizer_class",
        "torch_dtype",
        "transformers_version",
        "unk_token_id",
        "use_cache",
        "video_token_id",
        "vision_end_token_id",
        "vision_start_token_id",
    }
)
"""Keys of a Hugging Face configuration that change neither the time nor the memory of a training step."""


@dataclass(frozen=True)
class Imported:
    """The outcome of an import.

    `format` is what the source was taken for. `job` is there where a machine was known (see `import_job`), `plan` and `runtime`
    where the source states them. `built` names the fields that were read from the source, `ignored` every key of the source that
    changes nothing here, `assumed` every field that the source left open, with the value taken.
    """

    format: str
    model: Model
    plan: Plan | None = None
    runtime: Runtime | None = None
    job: Job | None = None
    built: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()

    def with_notes(self, ignored: Collection[str], assumed: Iterable[str]) -> Imported:
        """The same, with further keys that change nothing, in alphabetical order then, and further values that were taken."""
        keys = tuple(sorted({*self.ignored, *ignored})) if ignored else self.ignored
        return replace(self, ignored=keys, assumed=(*self.assumed, *assumed))
