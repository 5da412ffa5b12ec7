# SPDX-License-Identifier: Apache-2.0
"""A replica through its lives, with a stand-in for the actor: real ones are in `tests/e2e/test_ray_placement.py`."""

import asyncio
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from nemo_gym._config.server_types import RayPlacementConfig
from nemo_gym._servers.ray import replica_placement as ray_placement
from nemo_gym._servers.ray.replica_placement import NodeCode, RayReplica, ReplicaPlace, ReplicaSpec

READY = {"host": "10.0.0.2", "port": 1234, "pid": 7}


class RayActorError(Exception):
    pass


class ActorDiedError(RayActorError):
    pass


class Node:
    """What the actors of a test do, one script a life: reports, and then silence or an error."""

    def __init__(self, *lives: list[Any]) -> None:
        self.lives = list(lives)
        self.orders: list[dict[str, Any]] = []
        self.options: dict[str, Any] = {}
        self.calls: list[str] = []
        self._script: list[Any] = []
        self._said: list[str] = []

    async def start(self, order: dict[str, Any]) -> dict[str, Any]:
        if not self.lives:
            raise ActorDiedError("The actor died because all its nodes have died.\nmore")
        self._script, self._said = list(self.lives.pop(0)), []
        self.orders.append(order)
        return {"replica_id": order["replica_id"], "node": "10.0.0.2"}

    async def report(self, version: int, seen_lines: int, wait_s: float) -> dict[str, Any]:
        if not self._script:
            await asyncio.Event().wait()
        step = self._script.pop(0)
        if isinstance(step, Exception):
            raise step
        line = [step] if isinstance(step, str) else []
        facts = step if isinstance(step, dict) else {}
        return {"version": version + 1, "seen_lines": seen_lines + len(line), "lines": line, "facts": facts}

    async def leave(self) -> None:
        self.calls.append("leave")
        raise RayActorError("gone")

    async def stop(self) -> None:
        self.calls.append("stop")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(ray_placement, "_ASK_AGAIN_S", 0.0)


class Run:
    """One replica on a `Node`, and what is told of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, node: Node, **options: Any) -> None:
        self.places, self.notices, self.lines = list[ReplicaPlace | None](), list[str](), list[str]()
        self.node, self.others_serve = node, False
        self._stand_in_for_ray(monkeypatch)
        self.spec = ReplicaSpec(
            server="counter",
            number=1,
            count=2,
            options=RayPlacementConfig(**options),
            task={"config": "a secret"},
            environment={},
            code=NodeCode({}),
            restart_timeout_s=5.0,
            others_serve=lambda: self.others_serve,
            on_change=lambda spec, place: self.places.append(place),
            notice=self.notices.append,
        )

    def _stand_in_for_ray(self, monkeypatch: pytest.MonkeyPatch) -> None:
        node = self.node
        methods = {name: SimpleNamespace(remote=getattr(node, name)) for name in ("start", "report", "leave", "stop")}

        def options(**given: Any) -> Any:
            node.options = given
            return SimpleNamespace(remote=lambda *arguments: SimpleNamespace(created_with=arguments, **methods))

        ray, exceptions = ModuleType("ray"), ModuleType("ray.exceptions")
        ray.remote = lambda cls: SimpleNamespace(options=options)
        ray.cloudpickle = SimpleNamespace(register_pickle_by_value=lambda module: None)
        ray.kill = lambda actor, no_restart: node.calls.append(f"kill {actor.created_with} {no_restart}")
        exceptions.RayActorError, exceptions.ActorDiedError = RayActorError, ActorDiedError
        ray.exceptions = exceptions
        monkeypatch.setitem(sys.modules, "ray", ray)
        monkeypatch.setitem(sys.modules, "ray.exceptions", exceptions)

    async def start(self) -> RayReplica:
        return await self.spec.start(self.lines.append)


async def until(happened: Callable[[], bool]) -> None:
    async with asyncio.timeout(300):
        while not happened():  # noqa: ASYNC110 - told by calls, not by events
            await asyncio.sleep(0.001)


async def test_a_replica_is_ready_when_its_actor_says_where_it_listens(monkeypatch):
    run = Run(monkeypatch, Node(["loading", READY]))
    replica = await run.start()
    await replica.ready()
    assert replica.place is not None
    assert (replica.place.host, replica.place.port, replica.pid, replica.place.node) == (
        "10.0.0.2",
        1234,
        7,
        "10.0.0.2",
    )
    assert replica.name == "counter.replica1"
    assert run.lines == ["loading"]
    await replica.stop()
    # Nothing that is kept in the state of the cluster says anything.
    assert run.node.calls == ["stop", "kill () True"]
    assert "a secret" not in str(run.node.options)


async def test_ray_is_told_what_the_server_needs(monkeypatch):
    wishes = {"num_cpus": 2.0, "num_gpus": 1.0, "resources": {"disk": 1.0}, "max_restarts": -1}
    run = Run(monkeypatch, Node([READY]), **wishes, node_labels={"zone": "a"})
    replica = await run.start()
    assert wishes.items() <= run.node.options.items()
    assert run.node.options["label_selector"] == {"zone": "a"}
    asked = "num_cpus: 2.0, num_gpus: 1.0, resources: {'disk': 1.0}, node_labels: {'zone': 'a'}"
    assert replica.spec.describe_wishes() == asked
    await replica.stop()


async def test_a_replica_whose_node_is_lost_comes_back_under_another_name(monkeypatch):
    run = Run(monkeypatch, Node([READY, RayActorError("The node is lost.")], [{**READY, "port": 99}]))
    replica = await run.start()
    await until(lambda: len(run.places) == 3)
    first, gone, second = run.places
    assert gone is None
    assert first is not None
    assert second is not None
    assert second.port == 99
    assert second.replica_id != first.replica_id
    assert second.replica_id.startswith("1-")
    assert run.notices == ["server 'counter.replica1' was lost: The node is lost.\nRay starts it again"]
    await replica.stop()


async def test_a_server_that_ends_by_itself_is_left_to_ray_to_start_again(monkeypatch):
    run = Run(monkeypatch, Node([READY, {**READY, "ended": "exited with code 3"}], [READY]))
    replica = await run.start()
    await until(lambda: len(run.places) == 3)
    assert run.node.calls == ["leave"]
    assert "exited with code 3" in run.notices[0]
    await replica.stop()


async def test_a_server_that_never_starts_is_not_tried_again(monkeypatch):
    run = Run(monkeypatch, Node(["no such luck", {"ended": "exited with code 1"}], [READY]))
    replica = await run.start()
    death = await replica.wait_for_death()
    assert str(death) == "server 'counter.replica1' exited with code 1.\nits last lines:\n  no such luck"
    assert len(run.node.orders) == 1
    await replica.stop()


async def test_a_replica_that_ray_gives_up_has_died(monkeypatch):
    run = Run(monkeypatch, Node([READY, RayActorError("The node is lost.")]))
    replica = await run.start()
    death = await replica.wait_for_death()
    assert death.how == "was lost for good: The actor died because all its nodes have died."
    assert run.places[-1] is None
    await replica.stop()


async def test_a_replica_that_does_not_come_back_in_time_has_died(monkeypatch):
    lost = RayActorError("The actor is restarting.")
    node = Node([READY, lost])
    node.start = _start_once(node, lost)
    run = Run(monkeypatch, node)
    object.__setattr__(run.spec, "restart_timeout_s", 0.05)
    replica = await run.start()
    assert "did not come back within 0.05 s" in (await replica.wait_for_death()).how
    await replica.stop()


async def test_while_others_serve_a_replica_may_take_its_time_to_come_back(monkeypatch):
    lost = RayActorError("The actor is restarting.")
    node = Node([READY, lost], [READY])
    once, begin_again = _start_once(node, lost), node.start
    node.start = once
    run = Run(monkeypatch, node)
    run.others_serve = True
    object.__setattr__(run.spec, "restart_timeout_s", 0.0)
    replica = await run.start()
    await until(lambda: len(run.places) == 2)
    await asyncio.sleep(0.01)
    replica._actor.start.remote = begin_again
    await until(lambda: len(run.places) == 3)
    assert replica.place is not None
    await replica.stop()


def _start_once(node: Node, error: Exception) -> Callable[[dict[str, Any]], Any]:
    first = node.start

    async def start(order: dict[str, Any]) -> dict[str, Any]:
        if node.orders:
            raise error
        return await first(order)

    return start


async def test_a_fault_of_ours_ends_the_run_instead_of_waiting_for_ever(monkeypatch):
    run = Run(monkeypatch, Node([READY, ZeroDivisionError("oh")]))
    replica = await run.start()
    assert "cannot be followed on the Ray cluster: ZeroDivisionError('oh')" in (await replica.wait_for_death()).how
    await replica.stop()


async def test_a_replica_that_no_node_can_take_says_what_it_waits_for(monkeypatch):
    monkeypatch.setattr(ray_placement, "_PLACED_WITHIN_S", 0.01)
    node = Node([READY])
    placed, first = asyncio.Event(), node.start

    async def start(order: dict[str, Any]) -> dict[str, Any]:
        await placed.wait()
        return await first(order)

    node.start = start
    run = Run(monkeypatch, node, num_gpus=8)
    replica = await run.start()
    await until(lambda: bool(run.lines))
    assert run.lines == ["Ray has not found a node for it yet, which has to have num_cpus: 0.001, num_gpus: 8.0"]
    placed.set()
    await replica.ready()
    await replica.stop()


async def test_a_node_that_is_gone_does_not_keep_anybody_from_stopping(monkeypatch):
    async def fail() -> None:
        raise RayActorError("gone")

    node = Node([READY])
    node.stop = fail
    run = Run(monkeypatch, node)
    replica = await run.start()
    await replica.ready()
    await replica.stop()
    assert run.node.calls == ["kill () True"]
