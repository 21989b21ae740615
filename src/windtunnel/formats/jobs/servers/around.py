"""What stands around a server's command and says something of it: the image that it runs in, and variables of its environment."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

OTHERS = r"runtime|dynamo|llm-d"
"""In names of images that hold an engine and have numbers of their own."""


def release_of(image: str, words: Sequence[str], text: str) -> dict[str, str | bool]:
    """The engine's release, where an image, as the expression `image` knows them, stands before the flags, or all such images of a
    manifest are of the same."""
    named = [name for name in re.findall(r"\bimage[\"']?:\s*[\"']?([^\s\"',]+)", text) if not re.search(OTHERS, name)]
    for names in (words, named):
        found = {tag[1] for name in names if re.search(image, name) and (tag := re.search(r":v?(\d+\.\d+(?:\.\d+)?)", name))}
        if found:
            return {"release": found.pop()} if len(found) == 1 else {}
    return {}


def switched_on(variables: Mapping[str, str], text: str) -> dict[str, str | bool]:
    """Fields that a variable of the environment switches on: before a command, exported, given to a container, or in a manifest. A
    line that only assigns it reaches no server."""
    on = r"[\"']?(?:1|[Tt]rue)\b[\"']?"
    ways = (r"(?:export|ENV|-e|--env)[ =]+{0}[= ]{1}", r"\b{0}={1}[ \t]+[^\s#;&|]", r"\b{0}[\"']?\s*(?:,?\s*value)?:\s*{1}")
    return {key: True for key, name in variables.items() if any(re.search(way.format(name, on), text) for way in ways)}
