"""Places of the inputs of attention operators, as the installed PyTorch has them."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from windtunnel.formats.traces.pytorch_et.nodes import ATTENTIONS  # noqa: E402

pytestmark = pytest.mark.torch


def test_places_of_inputs_are_those_of_pytorch() -> None:
    seen = 0
    for name, at in ATTENTIONS.items():
        operator = getattr(torch.ops.aten, name.removeprefix("aten::"), None) if name.startswith("aten::") else None
        if operator is None:
            continue
        seen += 1
        names = [argument.name for argument in operator.default._schema.arguments]
        assert names[at.query : at.query + 3] == ["query", "key", "value"]
        assert names[at.causal] == ("custom_mask_type" if at.typed else "is_causal")
        if at.lengths >= 0:
            assert names[at.lengths] in ("cum_seq_q", "cu_seqlens_q")
            assert names[at.longest : at.longest + 2] in (["max_q", "max_k"], ["max_seqlen_q", "max_seqlen_k"])
        if at.window >= 0:
            assert names[at.window : at.window + 2] == ["window_size_left", "window_size_right"]
    assert seen >= 6
