"""Stands in for DeepEP's Buffer (V1): tokens travel as all-to-alls of the group, by the routing that is given."""

from deep_ep.buffer import Buffer
from deep_ep.buffer import BufferConfig as Config
from deep_ep.utils import EventHandle, EventOverlap

topk_idx_t = __import__("torch").int64
__all__ = ["Buffer", "Config", "EventHandle", "EventOverlap", "topk_idx_t"]
