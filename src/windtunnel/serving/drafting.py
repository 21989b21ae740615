"""Seconds of passes with drafts: after a pass has verified the last drafts, something cheap computes the next ones.

What drafts sees every token of the pass first, prompts and rejected drafts too, since it has a cache of its own; then one token of
each request for each further draft. It takes the best token of each draft. Drafts from the text so far take no time on a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from windtunnel.base.arrays import Floats
from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.serving.block_table import blocks_over
from windtunnel.serving.graph import PassGraph
from windtunnel.serving.lengths import Mixing, Passing, draft_kind, mixing_of
from windtunnel.serving.server import Server
from windtunnel.serving.step_times import StepTimes
from windtunnel.spec.model import LayerKind

HEAD_WORDS = 32_000
"""Tokens that the head of an EAGLE-3 drafter knows (`draft_vocab_size` of SpecForge's configurations for Llama 3, Qwen3, gpt-oss,
DeepSeek-V3 and Gemma 3); the model's own further layer has its head over the whole vocabulary."""
HIDDEN = {"mtp": 2, "eagle": 4}
"""Vectors that the drafting layer joins: the token's embedding, and the hidden state of the last layer (DeepSeek-V3) or of three
layers (EAGLE-3, arXiv 2503.01840)."""


def times_of(server: Server) -> StepTimes:
    """Seconds of passes of `server`, with those of what drafts, if a layer or a model does."""
    drafts = server.drafter is not None or draft_kind(server) is not None
    return DraftedTimes(server) if drafts else StepTimes(server)


@dataclass
class DraftedTimes(StepTimes):
    """Seconds of forward passes that verify drafts, each with the drafting of the next ones."""

    def seconds(self, one: Passing, sampled: int) -> float:
        """Seconds of the pass `one` that samples `sampled` tokens, verified ones among them, and of the drafting after it."""
        return super().seconds(one, sampled) + self.drafting(one, sampled - one.verified)

    def meeting_seconds(self, ones: Sequence[tuple[Passing, int, int]], idle: int) -> float:
        """Seconds of a pass of ranks that share experts, and of the drafting of the slowest rank."""
        drafted = max(self.drafting(one, sampled - one.verified) for one, sampled, _ in ones)
        return super().meeting_seconds(ones, idle) + drafted

    def drafting(self, one: Passing, requests: int) -> float:
        """Seconds in which `requests` get new drafts after the pass `one`."""
        total = self._draft(one, requests)
        if requests and self.server.drafts > 1:
            length = one.cached / one.decodes if one.decodes else one.prompt / one.chunks
            total += (self.server.drafts - 1) * self._draft(Passing(0, 0, 0.0, requests, requests * length), requests)
        return total

    def pass_parts(self, one: Passing, sampled: int) -> dict[str, float]:
        """Parts of a pass with the drafting after it."""
        return super().pass_parts(one, sampled) | {"drafting": self.drafting(one, sampled - one.verified)}

    def weights(self) -> float:
        """Bytes of weights on the fullest GPU, with those of what drafts."""
        return sum(self._draft_weights, super().weights())

    @cached_property
    def _draft_weights(self) -> tuple[float, ...]:
        if self.small_model is not None:
            return (self.small_model.weights(),)
        kind, _ = self.draft_layer
        head = self.small_head.head(1).weights if self.small_head is not None else 0.0
        return self.graph.layer(kind, 1).weights, self.graph.joining(1, self._parts).weights, head

    @cached_property
    def small_model(self) -> StepTimes | None:
        """Passes of the small model that drafts."""
        return None if self.server.drafter is None else StepTimes(self.server.drafter)

    @cached_property
    def small_head(self) -> PassGraph | None:
        """The head of an EAGLE-3 drafter, of its own over the commonest tokens; None where the model's own serves."""
        server = self.server
        if server.speculation is None or server.speculation.method != "eagle" or server.model.vocab <= HEAD_WORDS:
            return None
        words = HEAD_WORDS // server.plan.tp * server.plan.tp
        model = server.model.model_copy(update={"vocab": words, "tied_embeddings": False})
        return PassGraph(replace(server, job=server.job.model_copy(update={"model": model}), speculation=None))

    @cached_property
    def draft_heads(self) -> tuple[Floats, Floats]:
        """Numbers of drafts that are computed at once, and seconds of the drafter's head."""
        if self.small_head is None:
            return self.heads
        sizes = self.heads[0]
        return sizes, np.maximum.accumulate(self.price_table(blocks_over(self.small_head.head, [int(size) for size in sizes])))

    @property
    def _parts(self) -> int:
        assert self.server.speculation is not None
        return HIDDEN[self.server.speculation.method]

    @cached_property
    def draft_layer(self) -> tuple[LayerKind, Mixing]:
        """The layer that drafts, and what mixes its tokens."""
        kind = draft_kind(self.server)
        assert kind is not None
        return kind, mixing_of(self.server, kind)

    @cached_property
    def draft_rows(self) -> Floats:
        """[sizes] seconds of the drafting layer's rows that depend on the number of tokens alone."""
        kind, _ = self.draft_layer
        tokens = [int(size) for size in self.sizes]
        layers = self.price_table(self.layers_over(kind))
        joining = self.price_table(blocks_over(lambda size: self.graph.joining(size, self._parts), tokens))
        return np.maximum.accumulate(layers + joining)

    def _draft(self, one: Passing, requests: int) -> float:
        """Seconds of one pass of what drafts over the tokens of `one`, which yields a draft for each of `requests`."""
        if self.small_model is not None:
            return self.small_model.seconds(one, requests)
        kind, mixing = self.draft_layer
        total = float(np.interp(self.pad_tokens(one.tokens), self.sizes, self.draft_rows))
        total += float(np.interp(requests, *self.draft_heads)) if requests else 0.0
        total += self.prompt_seconds(kind, mixing, one) if one.prompt else 0.0
        return total + (self.cached_seconds(mixing, one) if one.decodes else 0.0)
