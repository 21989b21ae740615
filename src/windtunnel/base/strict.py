"""What is read from a file and checked: no unknown keys, and no change afterwards."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Strict(BaseModel):
    """A table of a file. Unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)
