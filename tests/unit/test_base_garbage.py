"""Work without a search for cycles leaves the search as it was."""

from __future__ import annotations

import gc

import pytest

from windtunnel.predict.answer.trace import keep_cycles


@pytest.mark.parametrize("before", [True, False])
def test_the_search_is_as_before_also_after_an_error(before: bool) -> None:
    own = gc.isenabled()
    try:
        (gc.enable if before else gc.disable)()
        with pytest.raises(ValueError), keep_cycles():
            assert not gc.isenabled()
            raise ValueError
        assert gc.isenabled() == before
    finally:
        (gc.enable if own else gc.disable)()
