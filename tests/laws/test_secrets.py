"""Secrets in texts that leave a process: whatever the form, the secret itself is gone, and what names it stays."""

from __future__ import annotations

import random
import string

import pytest

from windtunnel.base.text import REDACTED, redact
from windtunnel.fleet.agent.node_probes import last_exception
from windtunnel.records.ends import EndKind, end_line

_WORDS = string.ascii_letters + string.digits
FORMS = (
    "HF_TOKEN={}", "export AWS_SECRET_ACCESS_KEY={}", "--token {}", "--wandb-api-key={}", "--hub_token '{}'", "password: {}",
    '"api_key": "{}"', "{{'password': '{}'}}", "Authorization: Bearer {}", "Authorization: Basic {}", "'authorization': 'token {}'",
    "https://user:{}@store.example/x", "redis://:{}@10.0.0.1:6379/0", "s3://b/k?X-Amz-Security-Token={}", "Bearer {}",
    "401 for hf_{}", "ghp_{}", "client_secret = {}", "MY_PASSWD={}", "sk-{}", "AKIA{upper}", "https://x/?token={}&a=1",
    "eyJ{}.eyJ{}.sig",
)  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_a_secret_never_leaves(form: str) -> None:
    draw = random.Random(form)
    for _ in range(50):
        secret = "".join(draw.choices(_WORDS, k=draw.randrange(20, 60)))
        upper = "".join(draw.choices(string.ascii_uppercase + string.digits, k=16))
        filled = form.replace("eyJ{}.eyJ{}", "eyJ{0}.eyJ{0}").format(secret, upper=upper)
        said = f"step 3: RuntimeError: cannot open {filled} on node-3"
        for text in (redact(said), end_line(EndKind.RAISED, said), str(last_exception("RuntimeError: " + said))):
            assert secret not in text and upper not in text and REDACTED in text, text
        assert "RuntimeError: cannot open" in redact(said) and redact(redact(said)) == redact(said)


@pytest.mark.parametrize(
    "text",
    [
        "loss 2.31, tokens 4096, tokens_per_second: 11278",
        "KeyError: 'tokenizer.json'",
        "No module named 'secrets'",
        "http://127.0.0.1:8470/metrics",
        "tokens: 12",
        "--moe-token-dispatcher-type alltoall --max-tokens 4096",
        "rank 3 has not begun all_reduce 24 of world [0,1,2,3]",
        "ProcessGroupNCCL.cpp:632] [PG ID 0 PG GUID 0(default_pg) Rank 6]",
    ],
)
def test_other_texts_stay(text: str) -> None:
    assert redact(text) == text
