"""Which questions are short: they go first, and one worker is kept for them."""

from __future__ import annotations

from windtunnel.service.questions.question import AskedQuestion

_SHORT = ("predict", "memory", "catalog", "compare", "collective", "export", "import", "plan", "sensitivity", "fleet jobset",
          "fleet dashboard", "fleet startup", "profile show", "profile gains", "profile export", "flows")  # fmt: skip


def is_short(question: AskedQuestion) -> bool:
    """Whether it takes about a second: by its verb, without an engine of the network."""
    engines = any(word in ("--network=flow", "--network=packet") for word in question.words)
    return question.verb in _SHORT and not engines
