"""The catalogue's model behind names that others use: `meta-llama/Llama-3.1-8B`, `llama3_8b_pretrain_config`."""

from __future__ import annotations

import re

from windtunnel.spec import Model, load_model, names

_TUNED = r"([-_](instruct|base|chat|it|hf|pt|bf16|fp8|thinking|v0\.\d|\d{4}))+$"
_AFTER = r"_(pretrain|finetune|sft|peft|lora|dora|qlora|low|proxy|\d+gpus?|\d+k|config|seq).*$"


_OTHERWISE = {
    **dict.fromkeys(("glm5", "glm51", "glm52"), "glm5744ba40b"),
    **dict.fromkeys(("llama4e16", "llama4experts16"), "llama4scout"),
    **dict.fromkeys(("llama4e128", "llama4experts128"), "llama4maverick"),
    "llama31nemotron70b": "llama3170b",
    "llama31nemotronnano8b": "llama318b",
}
"""Names without sizes and names of models that have another's architecture, by the squashed name of the catalogue."""


def catalogue_model(name: str) -> Model | None:
    """The model that a hub's repository, a provider class or a recipe's function names; None where the catalogue has none."""
    short = name.rpartition("/")[2].lower()
    short = re.sub(_AFTER, "", re.sub(_TUNED, "", short))
    short = re.sub(r"(?<=\d)p(?=\d)", ".", re.sub(r"provider|config|model", "", short))
    short = re.sub(r"(\d)00m$", r"0.\1b", short)
    wanted = _squash_name(short)
    if len(wanted) < 4:
        return None
    known = {_squash_name(entry): entry for entry in names("models")}
    bare = re.sub(r"^(meta|nvidia)", "", wanted)
    for spelled in (wanted, bare, bare.replace("vl", "", 1), _OTHERWISE.get(bare, "")):
        if spelled in known:
            return load_model(known[spelled])
    longer = [entry for squashed, entry in known.items() if squashed.startswith(wanted)]
    return load_model(longer[0]) if len(longer) == 1 else None


def _squash_name(name: str) -> str:
    """A name without what separates its words: qwen3.5-35b-a3b and Qwen3_5_35B_A3B are one."""
    return re.sub(r"[-_. ]", "", name)
