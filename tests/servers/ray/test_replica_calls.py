# SPDX-License-Identifier: Apache-2.0
"""`ServerClient` and servers that Ray has placed: real servers in place of the replicas and of the head server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
from fastapi import FastAPI
from omegaconf import OmegaConf

from nemo_gym._rollouts.outcomes import Failed, Scored
from nemo_gym._rollouts.play import Player
from nemo_gym._servers.head_app import build_head_app
from nemo_gym._servers.http_session import close_global_aiohttp_client
from nemo_gym._servers.processes.server_host import InlineServer, serve_inline
from nemo_gym._servers.ray import replica_calls
from nemo_gym._servers.ray.replica_calls import forget_address_book, guard_replica_sessions, is_placed_on_ray
from nemo_gym.config_types import BaseServerConfig
from nemo_gym.errors import SessionLost
from nemo_gym.server_utils import ServerClient
from tests.servers.ray.test_replicas import Cluster
from tests.support.small_servers import free_port

ROW = {"_ng_task_index": 0, "_ng_rollout_index": 0, "agent_ref": {"name": "agent"}}


@asynccontextmanager
async def one_replica() -> AsyncIterator[tuple[Cluster, ServerClient]]:
    """A server with one replica, a head server that lists it, and a client in another process's place."""
    cluster, port = Cluster(), free_port()

    def list_instances() -> list[dict[str, Any]]:
        return [{"process_name": "counter", "replica": name, "url": url} for name, url in cluster.listed.items()]

    head = InlineServer("head_server", "127.0.0.1", port, build_head_app(lambda _: "", list_instances, None))
    block = {"host": "127.0.0.1", "port": 1, "placement": "ray"}
    where = {"host": "127.0.0.1", "port": port}
    config = OmegaConf.create({"head_server": where, "counter": {"resources_servers": {"counter": block}}})
    head_config = BaseServerConfig(**where)
    async with serve_inline([head]):
        try:
            await cluster.start("0-a")
            yield cluster, ServerClient(head_server_config=head_config, global_config_dict=config)
        finally:
            forget_address_book(head_config)
            await cluster.close()
            await close_global_aiohttp_client()


async def test_a_client_finds_a_replica_by_the_name_of_its_server_and_again_where_it_moved():
    async with one_replica() as (cluster, client):
        first = await client.post("counter", "/count", json={})
        assert await first.json() == {"replica": "0-a", "count": 1}
        again = await client.post("counter", "/count", json={}, cookies=first.cookies)
        assert await again.json() == {"replica": "0-a", "count": 2}
        await cluster.end("0-a")
        await cluster.start("0-b")
        with pytest.raises(SessionLost):
            await client.post("counter", "/count", json={}, cookies=first.cookies)
        moved = await client.post("counter", "/count", json={})
        assert await moved.json() == {"replica": "0-b", "count": 1}


async def test_a_client_that_keeps_one_address_gets_that_of_a_replica(monkeypatch):
    # Else the head server, which is in this very process, is not asked.
    monkeypatch.setattr(replica_calls.registry, "is_in_this_process", lambda host, port: False)
    async with one_replica() as (cluster, client):
        block = client.global_config_dict.counter.resources_servers.counter
        url = await asyncio.to_thread(client._build_server_base_url, block)
        assert url == cluster.listed["0-a"]
        assert await asyncio.to_thread(client.poll_for_status, "counter") == "success"


class Agent:
    """Plays a rollout of two calls in one session, during the first of which something happens."""

    def __init__(self, client: ServerClient, meanwhile: Any) -> None:
        self._client, self._meanwhile = client, meanwhile

    async def post(self, name: str, row: dict[str, Any]) -> Any:
        first = await self._client.post("counter", "/count", json={})
        await self._meanwhile()
        last = await self._client.post("counter", "/count", json={}, cookies=first.cookies)
        count = (await last.json())["count"]

        class Reply:
            status, headers = 200, {}

            async def read(self) -> bytes:
                return orjson.dumps({"reward": float(count)})

        return Reply()


async def no_pause(seconds: float) -> None:
    """Go on at once."""


async def test_a_rollout_that_lost_its_session_is_played_again_and_scored_once():
    async with one_replica() as (cluster, client):

        async def move_once() -> None:
            if "0-a" in cluster.listed:
                await cluster.end("0-a")
                await cluster.start("0-b")

        outcome = await Player(Agent(client, move_once).post, sleep=no_pause).play(dict(ROW))
        assert isinstance(outcome, Scored)
        assert (outcome.result["reward"], outcome.attempts) == (2.0, 2)


async def test_a_rollout_that_loses_its_session_each_time_fails_by_that_name():
    async with one_replica() as (cluster, client):

        async def move() -> None:
            (name,) = cluster.listed
            await cluster.end(name)
            await cluster.start(f"{name}x")

        outcome = await Player(Agent(client, move).post, sleep=no_pause).play(dict(ROW))
        assert isinstance(outcome, Failed)
        assert (outcome.failure.kind, outcome.failure.retryable, outcome.attempts) == ("session_lost", True, 3)


@pytest.mark.parametrize(
    ("config", "block", "placed"),
    [
        ({}, {}, False),
        ({}, {"placement": "ray"}, True),
        ({"default_placement": "ray"}, {}, True),
        ({"default_placement": "ray"}, {"placement": "inline"}, False),
        ({"default_placement": "ray"}, {"external": True}, False),
    ],
)
def test_who_is_placed_on_a_cluster(config, block, placed):
    assert is_placed_on_ray(config, block) is placed


def test_only_a_replica_guards_its_sessions(monkeypatch):
    monkeypatch.delenv("NEMO_GYM_REPLICA", raising=False)
    app = FastAPI()
    guard_replica_sessions(app, "counter", has_affinity=True)
    monkeypatch.setenv("NEMO_GYM_REPLICA", "0-a")
    guard_replica_sessions(app, "counter", has_affinity=False)
    assert app.user_middleware == []
    guard_replica_sessions(app, "counter", has_affinity=True)
    assert len(app.user_middleware) == 1
