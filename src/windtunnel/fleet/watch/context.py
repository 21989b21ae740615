"""What an adapter can use: the parts of the running monitor."""

from __future__ import annotations

from dataclasses import dataclass, field

from windtunnel.fleet.watch.groups import GroupRegistry
from windtunnel.fleet.watch.import_hooks import AfterImport
from windtunnel.fleet.watch.patches import Patches
from windtunnel.fleet.watch.recorder import Recorder
from windtunnel.fleet.watch.steps import StepWatch


@dataclass(frozen=True)
class WatchContext:
    """The monitor of this process, as its parts."""

    recorder: Recorder
    steps: StepWatch
    groups: GroupRegistry
    patches: Patches
    imports: AfterImport
    reported: set[str] = field(default_factory=set)
    """Frameworks recorded so far."""

    def report_framework(self, framework: str) -> None:
        """Records once that the job uses a framework. Its import alone proves little: other packages import it to check whether it
        exists.
        """
        if framework not in self.reported:
            self.reported.add(framework)
            self.recorder.ring.text("fact", {"framework": framework})
