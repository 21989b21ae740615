"""docs/matrix.md says of each GPU, engine and format what its seconds rest on."""

from __future__ import annotations

import pytest
from support_matrix import DOCUMENT, document

from windtunnel.compute.engines.file import basis_of
from windtunnel.spec import load_gpu


def test_the_matrix_is_in_step() -> None:
    assert document() == DOCUMENT.read_text(encoding="utf-8"), "run: python tests/house/support_matrix.py"


@pytest.mark.parametrize(
    ("gpu", "engine", "kind", "form", "basis"),
    [
        ("h100-sxm-80gb", "sglang", "dense", "fp8", "measured"),
        ("h100-sxm-80gb", "vllm", "dense", "fp8", "near"),
        ("h100-sxm-80gb", "vllm", "mixture with latent attention", "fp8_block", "near"),
        ("h200-sxm-141gb", "sglang", "mixture", "bf16", "measured"),
        ("h800-sxm-80gb", "sglang", "mixture", "bf16", "near"),
        ("mi355x", "vllm", "dense", "fp8_block", "carried"),
        ("mi300x", "vllm", "dense", "bf16", "carried"),
        ("h100-sxm-80gb", "vllm", "dense", "nvfp4", "carried"),
        ("b200-sxm-180gb", "vllm", "dense", "int4", "carried"),
        ("b200-sxm-180gb", "vllm", "dense", "mxfp4", "assumed"),
        ("h100-sxm-80gb", "vllm", "mixture", "int4", "carried"),
        ("a100-sxm-80gb", "trtllm", "dense", "int4", "measured"),
    ],
)
def test_what_a_pass_rests_on(gpu: str, engine: str, kind: str, form: str, basis: str) -> None:
    """Against the files of the catalogue: which GPUs, engines and formats have tables of which classes."""
    assert basis_of(load_gpu(gpu), engine, kind, form) == basis
