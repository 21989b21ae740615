"""Identities of blocks and rows. Code decides by these types; labels are only for people."""

from __future__ import annotations

from enum import IntEnum

from windtunnel.base.dataclasses import dataclass
from windtunnel.spec.model import LayerKind


class Module(IntEnum):
    """The part of the model, or of the framework, that a row belongs to."""

    NONE = 0
    EMBEDDING = 1
    ATTENTION = 2
    MAMBA = 3
    LINEAR_ATTENTION = 4
    MLP = 5
    MOE = 6
    HEAD = 7
    MTP = 8
    VISION = 9
    PROJECTOR = 10
    AMAX = 11
    SHARDING = 12
    OPTIMIZER = 13
    GRAPH = 14  # a block of a graph model, which has its own label
    SHORT_CONVOLUTION = 15


class Role(IntEnum):
    """The function of a unit and its rows, if code depends on it; else NONE. A backward row has the role of its unit."""

    NONE = 0
    NORM1 = 1  # before the mixer
    NORM2 = 2  # before the MLP
    FINAL_NORM = 3
    RESIDUAL = 4  # bias, dropout and add in separate kernels, or the add alone
    BIAS_DROPOUT_ADD = 5  # bias, dropout and add in one kernel
    QKV = 6
    Q = 7
    Q_DOWN = 8
    Q_NORM = 9
    Q_UP = 10
    KV_DOWN = 11
    KV_NORM = 12
    KV_UP = 13
    ROPE = 14
    KEY_CONCAT = 15
    ATTENTION_CORE = 16
    SOFTMAX = 17
    ATTENTION_DROPOUT = 18
    ATTENTION_OUT = 19
    MLP_UP = 20
    MLP_DOWN = 21
    ACTIVATION = 22
    GATED_ACTIVATION = 23
    ROUTER = 24
    ROUTING = 25  # top-k, balancing loss, load count
    TOKEN_COUNTS = 26
    EXPERT_UP = 27
    PROJECTOR = 28  # the first product of a vision projector
    LOGITS_IN_BLOCKS = 29  # a product whose result never reaches memory
    GRADIENT_NORM = 30
    GRADIENT_CLIP = 31
    ADAM_UPDATE = 32
    QKV_COPIES = 33
    STATE_SPACE_SCAN = 34  # the recurrence of Mamba-2
    DELTA_RULE = 35  # of gated linear attention, a decay a head
    CHANNEL_DELTA_RULE = 36  # of Kimi's, a decay a channel
    SHORT_CONVOLUTION = 37  # over the last tokens, before a recurrence
    INDEX_SCORES = 38  # of sparse attention
    STREAMS = 39  # several residual streams, mixed
    GATED_NORM = 40  # after a recurrence
    QUERY_KEY_NORM = 41  # of gated linear attention
    DECAY = 42  # and strength of writing, of gated linear attention


class BlockKind(IntEnum):
    """Kinds of blocks of a model."""

    EMBEDDING = 0
    LAYER = 1
    HEAD = 2
    AMAX = 3  # amax histories of delayed fp8 scaling
    MTP_LAYER = 4
    MTP_HEAD = 5
    VISION_PATCHES = 6
    VISION_LAYER = 7
    PROJECTOR = 8
    GRAPH = 9  # of a graph model
    GRAPH_ROOT = 10  # of a graph model, outside of its list of layers


LAYERS = (BlockKind.LAYER, BlockKind.MTP_LAYER, BlockKind.VISION_LAYER, BlockKind.GRAPH)
"""Kinds of blocks that repeat along the depth of a model."""


@dataclass(frozen=True)
class BlockKey:
    """Identity of a block: equal keys have equal rows.

    `layer`: mixer and MLP of a layer. `recompute`: its policy. `wide`: products stay in 16 bits where others are in 8 or 4.
    `offloaded`: saved activations leave the GPU. `number`: of an MTP layer, 0 for the first. `graph`: key of a graph model's block.
    """

    kind: BlockKind
    layer: LayerKind | None = None
    recompute: str = "none"
    wide: bool = False
    offloaded: bool = False
    number: int = 0
    graph: str = ""


MODULE_LABELS: dict[Module, str] = {
    Module.NONE: "",
    Module.EMBEDDING: "embedding",
    Module.ATTENTION: "attention",
    Module.MAMBA: "mamba",
    Module.LINEAR_ATTENTION: "linear attention",
    Module.MLP: "mlp",
    Module.MOE: "moe",
    Module.HEAD: "head",
    Module.MTP: "mtp",
    Module.VISION: "vision",
    Module.PROJECTOR: "projector",
    Module.AMAX: "amax",
    Module.SHARDING: "sharding",
    Module.OPTIMIZER: "optimizer",
    Module.GRAPH: "graph",
    Module.SHORT_CONVOLUTION: "short convolution",
}
"""Labels of modules in reports."""
