"""What stands around a server's command: the image that it runs in, and variables of its environment."""

from __future__ import annotations

import pytest

from windtunnel.formats.jobs.servers.launch import read_launch

POD = """
apiVersion: v1
kind: Pod
spec:
  containers:
  - image: vllm/vllm-openai:v0.11.2
    command: [/bin/bash, -c]
    args: ["vllm serve Qwen/Qwen3-30B-A3B --tensor-parallel-size 4"]
"""
_EAGLE = "python3 -m sglang.launch_server --model-path deepseek-ai/DeepSeek-R1 --tp 8 --speculative-algorithm EAGLE"


@pytest.mark.parametrize(
    ("text", "ahead"),
    [
        ("vllm serve Qwen/Qwen3-8B --async-scheduling", True),
        (f"export SGLANG_ENABLE_SPEC_V2=1\n{_EAGLE}", True),
        (f"A=2 SGLANG_ENABLE_SPEC_V2=true \\\n{_EAGLE}", True),
        (f"docker run -e SGLANG_ENABLE_SPEC_V2=1 lmsysorg/sglang:v0.5.9 {_EAGLE}", True),
        (f"SGLANG_ENABLE_SPEC_V2=1\n{_EAGLE}", None),  # not exported
        (f"SGLANG_ENABLE_SPEC_V2=0 {_EAGLE}", None),
    ],
)
def test_lines_say_that_passes_are_scheduled_ahead(text: str, ahead: bool | None) -> None:
    found = read_launch(text)
    assert found is not None and found.fields.get("ahead") == ahead


def test_the_image_of_a_manifest_says_the_release() -> None:
    """Where the container has a command of its own, too; two images of different releases say nothing."""
    sglang = POD.replace("vllm/vllm-openai:v0.11.2", "lmsysorg/sglang:v0.5.9").replace(
        "vllm serve", "python3 -m sglang.launch_server --model"
    )
    for pod, release in ((POD, "0.11.2"), (sglang, "0.5.9"), (f"{POD}  - image: vllm/vllm-openai:v0.12.0\n", None)):
        found = read_launch(pod)
        assert found is not None and found.fields.get("release") == release
