"""Classes of kernels by their names, from the rows of kernel_classes.toml; the first match counts. Which kernels communicate: name
patterns of the libraries that launch them, and the calls that traces name.
"""

from __future__ import annotations

import re
from functools import lru_cache

from windtunnel.base.comm import Comm
from windtunnel.base.dataclasses import dataclass
from windtunnel.base.files import table_beside

OTHER = "other"


@dataclass(frozen=True)
class KernelClass:
    """A class, the library of the pattern, and what the kernel's name holds (in lower case, without its function arguments)."""

    name: str
    library: str
    pattern: re.Pattern[str]


CLASSES = tuple(KernelClass(name, library, re.compile(pattern)) for name, library, pattern in table_beside(__file__)["classes"])


@lru_cache(maxsize=65536)
def class_of(name: str) -> str:
    """The class of a kernel that computes. Template arguments are looked at last, since they name functors of other classes."""
    plain = re.split(r"\(", name.replace("(anonymous namespace)", ""), maxsplit=1)[0].lower()
    outer = re.split(r"<", plain, maxsplit=1)[0]
    for text in (outer, plain):
        for row in CLASSES:
            if row.pattern.search(text):
                return row.name
    return OTHER


@dataclass(frozen=True)
class CommLibrary:
    """A library whose kernels communicate: its name, and what the names of its kernels match."""

    name: str
    pattern: re.Pattern[str]


LIBRARIES: tuple[CommLibrary, ...] = (
    CommLibrary("nccl", re.compile(r"nccl(?:Dev)?Kernel|^nccl", re.IGNORECASE)),  # RCCL keeps NCCL's names
    CommLibrary("msccl", re.compile(r"msccl", re.IGNORECASE)),
    CommLibrary("deepep", re.compile(r"(?:deep_ep|\bep)::(?:\w+::)?(?:internode|intranode|internode_ll|hybrid)\w*::")),
    CommLibrary("nvshmem", re.compile(r"nvshmem|all_to_all_vdev", re.IGNORECASE)),
    CommLibrary("userbuffers", re.compile(r"userbuffers_")),  # Transformer Engine
    CommLibrary("symmetric memory", re.compile(r"multimem_(?:all|one|two)|(?:one|two)_shot_all_reduce", re.IGNORECASE)),
    CommLibrary("custom all-reduce", re.compile(r"cross_device_reduce", re.IGNORECASE)),  # vLLM, TensorRT-LLM
    CommLibrary("oneccl", re.compile(r"oneccl", re.IGNORECASE)),
    CommLibrary("hccl", re.compile(r"^hccl", re.IGNORECASE)),
)

_NOT_CALLS = re.compile(r"memcpy|memset|^aten::|::layout::", re.IGNORECASE)

_WORDS: tuple[tuple[str, Comm], ...] = (  # longer words before the words that they hold
    ("allreduce", Comm.ALL_REDUCE),
    ("barrier", Comm.ALL_REDUCE),
    ("crossdevicereduce", Comm.ALL_REDUCE),
    ("allgather", Comm.ALL_GATHER),
    ("reducescatter", Comm.REDUCE_SCATTER),
    ("alltoall", Comm.ALL_TO_ALL),
    ("dispatch", Comm.ALL_TO_ALL),
    ("combine", Comm.ALL_TO_ALL),
    ("notify", Comm.ALL_TO_ALL),
    ("broadcast", Comm.BROADCAST),
    ("bcast", Comm.BROADCAST),
    ("sendrecv", Comm.SEND_RECV),
    ("batchisend", Comm.SEND_RECV),
    ("send", Comm.SEND_RECV),
    ("recv", Comm.SEND_RECV),
    ("reduce", Comm.REDUCE),
    ("scatter", Comm.SCATTER),
    ("gather", Comm.GATHER),
)


def library_of(kernel: str) -> str:
    """The library whose communication kernel this is; empty text for a kernel that does not communicate."""
    if _NOT_CALLS.search(kernel):
        return ""
    return next((library.name for library in LIBRARIES if library.pattern.search(kernel)), "")


def comm_of(call: str) -> Comm:
    """The call that a kernel's or a call's name stands for, such as `_allgather_base` or `ncclDevKernel_AllReduce_Sum_f32_RING_LL`.

    Only the part before template and function arguments counts. NONE where no call is named.
    """
    plain = re.sub(r"[^a-z]", "", re.split(r"[<(]", call, maxsplit=1)[0].lower())
    return next((comm for word, comm in _WORDS if word in plain), Comm.NONE)
