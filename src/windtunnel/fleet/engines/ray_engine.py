"""Engine that starts agents under Ray: one actor per node, spread over Ray's machines, each with the agent as a child process.

Actors and their placement group are detached and named, so that a restarted driver finds them again. Needs the `search` extra.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import SpecError, WindtunnelError
from windtunnel.fleet.engines.engine import AgentCommand
from windtunnel.fleet.engines.local import PATIENCE

if TYPE_CHECKING:
    from types import ModuleType

NAMESPACE = "windtunnel-fleet"
ANSWER_SECONDS = 60.0


class RayError(WindtunnelError):
    """Ray could not place or start an agent."""


class _Host:
    """Actor of a node; the agent is its child process."""

    def __init__(self, arguments: list[str], variables: dict[str, str]) -> None:
        self.child = subprocess.Popen(arguments, env=variables, stdin=subprocess.DEVNULL, start_new_session=True)

    def place(self) -> str:
        import ray

        return str(ray.get_runtime_context().get_node_id())

    def runs(self) -> bool:
        return self.child.poll() is None

    def end(self) -> None:
        from windtunnel.fleet.engines.local import end_group

        end_group(self.child.pid, lambda: self.child.poll() is None, PATIENCE)
        self.child.wait()


@dataclass
class RayEngine:
    """Nodes `node0`, `node1`, … of a Ray cluster."""

    command: AgentCommand
    run: str
    """Prefix of the actors' names."""
    address: str = "auto"
    """Address of the cluster; `auto`: the one on this machine."""
    strategy: Literal["SPREAD", "STRICT_SPREAD"] = "STRICT_SPREAD"
    """STRICT_SPREAD puts each agent on its own machine; SPREAD shares machines if there are too few."""
    resources: tuple[tuple[str, float], ...] = (("CPU", 1.0),)
    """Resources of an agent, such as {"GPU": 8}."""
    wait: float = 600.0

    def acquire(self, count: int) -> tuple[str, ...]:
        """RayError if the cluster has no room for `count` agents within `wait` seconds."""
        ray = self._ray()
        group = self._group()
        if group is None:
            bundles = [dict(self.resources)] * count
            group = ray.util.placement_group(bundles, strategy=self.strategy, name=self._name("nodes"), lifetime="detached")
        if group.bundle_count < count or not group.wait(self.wait):
            has = len([one for one in ray.nodes() if one["Alive"]])
            self.close()
            raise RayError(f"Ray has {has} machines and no room for {count} agents by {self.strategy} with {dict(self.resources)}")
        return tuple(f"node{index}" for index in range(count))

    def start(self, nodes: Sequence[str]) -> None:
        ray, group = self._ray(), self._group()
        if group is None:
            raise SpecError("engine", "ray", "nodes that `acquire` has placed")
        resources = dict(self.resources)
        cpus, gpus = resources.pop("CPU", 0.0), resources.pop("GPU", 0.0)
        variables = {key: value for key, value in self.command.variables().items() if not key.startswith("RAY_")}
        for node in nodes:
            self.stop(node)
        started = []
        for node in nodes:
            at = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(group, int(node.removeprefix("node")))
            actor = ray.remote(_Host).options(
                name=self._name(node), namespace=NAMESPACE, lifetime="detached", max_restarts=0, num_cpus=cpus, num_gpus=gpus,
                resources=resources, scheduling_strategy=at,
            )  # fmt: skip
            started.append(actor.remote(self.command.of(node), variables))
        for node, actor in zip(nodes, started, strict=True):
            if self._call_actor(actor, "runs") is None:
                raise RayError(f"Ray did not start the agent of {node}")

    def stop(self, node: str) -> None:
        actor = self._actor(node)
        if actor is not None:
            self._call_actor(actor, "end")
            self._ray().kill(actor)

    def is_running(self, node: str) -> bool:
        actor = self._actor(node)
        return actor is not None and self._call_actor(actor, "runs") is True

    def place(self, node: str) -> str | None:
        """Ray's id of the machine."""
        actor = self._actor(node)
        return None if actor is None else self._call_actor(actor, "place")

    def close(self) -> None:
        ray, group = self._ray(), self._group()
        if group is not None:
            for index in range(group.bundle_count):
                self.stop(f"node{index}")
            ray.util.remove_placement_group(group)

    def _ray(self) -> ModuleType:
        try:
            import ray
            import ray.util
            import ray.util.scheduling_strategies
        except ImportError as error:
            raise SpecError("engine", "ray", "an engine that is installed", "Type: pip install 'windtunnel[search]'") from error
        if not ray.is_initialized():
            try:
                ray.init(address=self.address, namespace=NAMESPACE, log_to_driver=False)
            except ConnectionError as error:
                raise RayError(f"no Ray cluster at {self.address}: {error}") from error
        return ray

    def _name(self, what: str) -> str:
        return f"{self.run}-{what}"

    def _group(self) -> Any:
        try:
            return self._ray().util.get_placement_group(self._name("nodes"))
        except ValueError:
            return None

    def _actor(self, node: str) -> Any:
        try:
            return self._ray().get_actor(self._name(node), namespace=NAMESPACE)
        except ValueError:
            return None

    def _call_actor(self, actor: Any, method: str) -> Any:
        """Calls a method of an actor; None if it is dead or does not respond."""
        ray = self._ray()
        try:
            return ray.get(getattr(actor, method).remote(), timeout=ANSWER_SECONDS)
        except (ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError):
            return None
