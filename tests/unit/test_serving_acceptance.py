"""Tokens of a pass with drafts where nothing states them: the middle of what is published."""

from __future__ import annotations

from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.serving.speculation import METHODS, accepted_tokens, mean_tokens, published_drafts, rate_of, speculation_of
from windtunnel.spec import load_model


def test_every_entry_is_possible_and_has_a_source() -> None:
    for one in published_drafts():
        assert one.method in METHODS and len(one.source) > 10 and len(one.task) > 5
        assert all(1.0 <= tokens <= drafts + 1 for drafts, tokens in one.points), one
        assert [drafts for drafts, _ in one.points] == sorted({drafts for drafts, _ in one.points})


@pytest.mark.parametrize(
    ("method", "model", "drafts", "tokens", "figures", "family"),
    [
        ("mtp", "deepseek-v4-pro", 3, (2.49 + 2.97) / 2, 2, "deepseek-v4"),
        ("mtp", "glm-5-744b-a40b", 3, (2.99 + 3.06) / 2, 2, "glm-5"),
        ("mtp", "glm-4.5", 3, (2.99 + 3.06) / 2, 2, "glm"),
        ("eagle", "qwen3-8b", 3, 2.26, 1, "qwen3-8b"),
        ("eagle", "llama3.1-8b", 3, (2.60 + 2.811) / 2, 2, "llama3.1-8b"),
        ("mtp", "deepseek-v3", 1, 1.875, 1, "deepseek-v3"),
        ("mtp", "deepseek-v3", 3, 2.50, 2, "deepseek-v3"),
    ],
)
def test_a_family_has_its_own_figures(method: str, model: str, drafts: int, tokens: float, figures: int, family: str) -> None:
    found = accepted_tokens(method, model, drafts)
    assert found[1:] == (figures, family)
    assert found[0] == pytest.approx(tokens, rel=0.02)


def test_a_point_is_carried_along_the_curve_of_its_method() -> None:
    """Nobody states two drafts of DeepSeek-V3's layer: 1.5 more of three, twice, shrunk as the middle curve of further layers does,
    beside 0.875 more of one, grown as it grows."""
    curves = [dict(one.points) for one in published_drafts() if one.method == "mtp" and len(one.points) > 1]
    one, two, three = (median(curve[n] for curve in curves) for n in (1, 2, 3))
    found, figures, _ = accepted_tokens("mtp", "deepseek-v3", 2)
    assert figures == 3 and found == pytest.approx(1.0 + 1.5 * (two - 1.0) / (three - 1.0))
    assert found < 1.0 + 0.875 * (two - 1.0) / (one - 1.0) < mean_tokens(0.875, 2)  # later drafts of one layer are worse


def test_any_model_has_the_middle_of_all_and_a_text_each_draft_alike() -> None:
    drawn = accepted_tokens("mtp", "mimo-7b", 3)
    assert drawn[2] == "" and drawn[1] == sum(one.method == "mtp" and 3 in dict(one.points) for one in published_drafts())
    few, many = accepted_tokens("ngram", "llama3.1-8b", 3)[0], accepted_tokens("ngram", "llama3.1-8b", 10)[0]
    rates = [rate_of(one.points[0][1], one.points[0][0]) for one in published_drafts() if one.method == "ngram"]
    assert few == pytest.approx(median(mean_tokens(rate, 3) for rate in rates), abs=0.01)
    assert 1.0 < few < many < 2.0


@given(
    method=st.sampled_from(METHODS), model=st.sampled_from(["deepseek-v3", "glm-4.5", "qwen3-8b", "x"]), drafts=st.integers(1, 32)
)
def test_no_pass_yields_more_than_it_verifies(method: str, model: str, drafts: int) -> None:
    tokens, figures, _ = accepted_tokens(method, model, drafts)
    assert 1.0 < tokens <= drafts + 1 and figures >= 1


def test_what_is_stated_beats_what_is_published() -> None:
    model = load_model("deepseek-v3")
    taken, stated = (speculation_of(text, model, load_model) for text in ("mtp,drafts=2", "mtp,drafts=2,accepted=2.2"))
    assert taken is not None and stated is not None
    assert taken.published == (3, "deepseek-v3") and stated.published is None and stated.accepted == 2.2
    head = speculation_of("draft=someone/llama-eagle3,drafts=3", load_model("llama3.1-8b"), load_model)
    gemma = load_model("gemma4-31b")
    own = speculation_of(
        "draft=google/gemma-4-31B-it-assistant,drafts=2", gemma, lambda name: load_model("gemma3-1b") if "/" in name else gemma
    )
    assert own is not None and (own.method, own.accepted, own.published) == ("draft", 2.33, (1, "gemma4"))
    assert head is not None and head.method == "eagle" and head.accepted == pytest.approx((2.60 + 2.811) / 2, abs=1e-3)
