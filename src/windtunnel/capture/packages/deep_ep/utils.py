"""Events of DeepEP: what a stream waits for."""

from typing import Any

import torch


class EventHandle:
    """What the current stream holds; or a call, where `work` is given."""

    def __init__(self, work: Any = None) -> None:
        self._work = work
        if work is None:
            self._event = torch.cuda.Event()
            self._event.record()

    def current_stream_wait(self) -> None:
        if self._work is None:
            self._event.wait()
        else:
            self._work.wait()


class EventOverlap:
    """An event, to be waited for at once or where a `with` ends."""

    def __init__(self, event: Any = None, extra_tensors: Any = None) -> None:
        self.event, self.extra_tensors = event, extra_tensors

    def current_stream_wait(self) -> None:
        assert self.event is not None
        self.event.current_stream_wait()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: Any) -> None:
        if self.event is not None:
            self.event.current_stream_wait()
