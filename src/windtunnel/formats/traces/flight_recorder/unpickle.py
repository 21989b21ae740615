"""Pickles of plain data: no name is looked up and nothing is called, whatever the file says."""

from __future__ import annotations

import io
import pickle
import pickletools
from typing import Any

from windtunnel.base.errors import FileError

_WANTED = "a pickle of plain data: numbers, texts, lists and tables"
_REFUSED = frozenset(
    {
        "GLOBAL",
        "STACK_GLOBAL",
        "INST",
        "OBJ",
        "REDUCE",
        "NEWOBJ",
        "NEWOBJ_EX",
        "BUILD",
        "EXT1",
        "EXT2",
        "EXT4",
        "PERSID",
        "BINPERSID",
    }
)
_MEMO = frozenset({"PUT", "BINPUT", "LONG_BINPUT"})


class _Plain(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("it refers to something outside")


def load_plain(name: str, data: bytes) -> Any:
    """The value of a pickle. FileError for one that is broken or would run or import anything."""
    try:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(data)):
            if opcode.name in _REFUSED:
                raise pickle.UnpicklingError(f"it holds the opcode {opcode.name}")
            if opcode.name in _MEMO and int(argument or 0) > count:  # the unpickler would reserve memory up to that number
                raise pickle.UnpicklingError(f"it numbers an object {argument}")
        return _Plain(io.BytesIO(data)).load()
    except FileError:
        raise
    except Exception as error:  # a broken pickle raises nearly anything
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise FileError(name, "a pickle that cannot be read", _WANTED, f"{reason}.") from None
