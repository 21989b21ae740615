"""Every variable of NCCL that is honoured refuses what NCCL has no use for, with its own name and what it takes."""

from __future__ import annotations

import pytest
from drawn import examples
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.base.errors import SpecError, UnknownName, WindtunnelError
from windtunnel.network.nccl.settings import list_variables, parse_settings
from windtunnel.predict import predict
from windtunnel.spec import load_job

KNOWN = list_variables()["known"]

NEVER = ("", "-1", "abc", "1.5", "1e3", "٣", "9" * 13, "0x10", "yes", "1 2")


@pytest.mark.parametrize("name", sorted(KNOWN))
@pytest.mark.parametrize("value", NEVER)
def test_a_wrong_value_is_refused_with_the_field_and_what_it_takes(name: str, value: str) -> None:
    with pytest.raises(SpecError) as refused:
        parse_settings({name: value}, "runtime.nccl")
    message = str(refused.value)
    assert message.startswith(f"runtime.nccl.{name}"), message
    assert "allowed" in message or "known" in message or "did you mean" in message.lower(), message


@examples(200)
@given(st.sampled_from(sorted(KNOWN)), st.one_of(st.integers(-5, 2**40), st.text(max_size=12)))
def test_any_value_is_taken_or_refused_and_never_more(name: str, value: int | str) -> None:
    try:
        parse_settings({name: value}, "--env")
    except WindtunnelError as refused:
        assert name in str(refused)


def test_other_names_are_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="NCCL_MAX_NCHANNELS"):
        parse_settings({"NCCL_MAX_CHANNELS": 4})


def test_a_job_says_where_its_variable_stands() -> None:
    with pytest.raises(SpecError, match=r"runtime\.nccl\.NCCL_BUFFSIZE"):
        predict(load_job("llama3-8b-8xh100", ["runtime.nccl.NCCL_BUFFSIZE=12"]))
