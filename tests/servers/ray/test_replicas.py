# SPDX-License-Identifier: Apache-2.0
"""Calls to replicas of one server, each a real server on its own port."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from fastapi import FastAPI, Request

from nemo_gym._servers.http.session_cookie import SessionCookieMiddleware
from nemo_gym._servers.processes.server_host import InlineServer, serve_inline
from nemo_gym._servers.ray.replicas import AddressBook, ReplicaSessions, name_replica_cookie
from nemo_gym._transport import http_calls as http
from nemo_gym._transport.call_errors import ServerUnreachable
from nemo_gym._transport.failures import HEADER, decode_failure
from nemo_gym._transport.retries import RetryPolicy
from nemo_gym.errors import SessionLost
from tests.support.small_servers import free_port

COOKIE = name_replica_cookie("counter")


def replica_app(replica_id: str) -> FastAPI:
    """A server that counts the calls of each session."""
    app, counts = FastAPI(), dict[str, int]()

    @app.post("/count")
    async def count(request: Request) -> dict[str, Any]:
        session = request.session["session_id"]
        counts[session] = counts.get(session, 0) + 1
        return {"replica": replica_id, "count": counts[session]}

    app.add_middleware(SessionCookieMiddleware, cookie_name="session", secret="s", id_key="session_id")
    app.add_middleware(ReplicaSessions, server="counter", replica_id=replica_id)
    return app


class Cluster:
    """Replicas that start and end, and the head server's list of them."""

    def __init__(self) -> None:
        self.listed: dict[str, str] = {}
        self.asked = 0
        self._running: dict[str, AsyncExitStack] = {}

    async def start(self, replica_id: str, port: int | None = None) -> int:
        port = port or free_port()
        stack = self._running[replica_id] = AsyncExitStack()
        server = InlineServer(replica_id, "127.0.0.1", port, replica_app(replica_id))
        await stack.enter_async_context(serve_inline([server]))
        self.listed[replica_id] = f"http://127.0.0.1:{port}"
        return port

    async def end(self, replica_id: str, *, is_noticed: bool = True) -> None:
        await self._running.pop(replica_id).aclose()
        if is_noticed:
            self.listed.pop(replica_id, None)

    async def close(self) -> None:
        for replica_id in list(self._running):
            await self.end(replica_id)

    async def list_instances(self) -> list[dict[str, Any]]:
        self.asked += 1
        return [{"process_name": "counter", "replica": name, "url": url} for name, url in self.listed.items()]


class Client:
    """Calls the replicas, with one connection pool."""

    def __init__(self, cluster: Cluster, session: aiohttp.ClientSession) -> None:
        self.book, self._session = AddressBook(cluster.list_instances), session

    async def count(self, cookies: Any = None, wait_s: float = 30.0) -> aiohttp.ClientResponse:
        async def call_url(base_url: str) -> aiohttp.ClientResponse:
            url, policy = f"{base_url}/count", RetryPolicy(unsent=1, repeatable=1)
            return await http.send(self._session, "POST", url, policy=policy, cookies=cookies)

        return await self.book.call("counter", "POST", cookies, call_url, is_alive=self._is_alive, wait_s=wait_s)

    async def _is_alive(self, base_url: str) -> bool:
        try:
            async with self._session.get(base_url):
                return True
        except aiohttp.ClientError:
            return False


@asynccontextmanager
async def two_replicas() -> AsyncIterator[tuple[Cluster, Client]]:
    cluster = Cluster()
    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:
        try:
            await cluster.start("0-a")
            await cluster.start("1-a")
            yield cluster, Client(cluster, session)
        finally:
            await cluster.close()


async def test_calls_without_a_session_go_to_each_replica_in_turn():
    async with two_replicas() as (cluster, client):
        answers = [await (await client.count()).json() for _ in range(4)]
        assert sorted(answer["replica"] for answer in answers) == ["0-a", "0-a", "1-a", "1-a"]
        assert cluster.asked == 1


async def test_calls_of_a_session_go_to_the_replica_that_began_it():
    async with two_replicas() as (_, client):
        first = await client.count()
        began = (await first.json())["replica"]
        later = [await (await client.count(first.cookies)).json() for _ in range(3)]
        assert later == [{"replica": began, "count": count} for count in (2, 3, 4)]


async def test_a_cookie_that_was_passed_on_as_text_does_as_well():
    async with two_replicas() as (_, client):
        first = await client.count()
        texts = {name: morsel.value for name, morsel in first.cookies.items()}
        assert (await (await client.count(texts)).json())["count"] == 2


async def test_the_session_of_a_replica_that_is_gone_is_lost_by_name():
    async with two_replicas() as (cluster, client):
        first = await client.count()
        gone = (await first.json())["replica"]
        await cluster.end(gone)
        with pytest.raises(SessionLost, match=f"replica {gone}.*no longer answers") as caught:
            await client.count(first.cookies)
        assert (caught.value.kind, caught.value.retryable) == ("session_lost", True)
        await client.book.refresh()
        with pytest.raises(SessionLost, match="is gone"):
            await client.count(first.cookies)


async def test_new_sessions_avoid_a_replica_that_is_gone_before_anybody_has_noticed():
    async with two_replicas() as (cluster, client):
        await client.book.refresh()
        await cluster.end("0-a", is_noticed=False)
        answers = [await (await client.count()).json() for _ in range(4)]
        assert {answer["replica"] for answer in answers} == {"1-a"}


async def test_a_replica_that_was_started_again_refuses_the_sessions_of_its_former_life():
    async with two_replicas() as (cluster, client):
        first = await client.count({COOKIE: "0-a"})
        port = int(cluster.listed["0-a"].rpartition(":")[2])
        await cluster.end("0-a")
        await cluster.start("0-b", port)
        # Without having heard of it, the client calls the same address.
        refused = await client.count(first.cookies)
        assert refused.status == 503
        failure = decode_failure(refused.headers[HEADER])
        assert failure is not None
        assert (failure.kind, failure.retryable, failure.ends_rollout) == ("session_lost", True, True)
        assert "replica 0-a held it, and this is replica 0-b" in failure.message


async def test_a_call_without_a_session_waits_for_a_replica_to_come_back():
    async with two_replicas() as (cluster, client):
        await cluster.end("0-a")
        await cluster.end("1-a")
        call = asyncio.create_task(client.count())
        while cluster.asked < 2:  # it has asked in vain  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await cluster.start("1-b")
        assert (await (await call).json())["replica"] == "1-b"


async def test_the_wait_for_a_replica_has_a_bound():
    async with two_replicas() as (cluster, client):
        await cluster.end("0-a")
        await cluster.end("1-a")
        with pytest.raises(ServerUnreachable, match="no replica of server 'counter' answered") as caught:
            await client.count(wait_s=0.0)
        assert "hint: `gym env status`" in str(caught.value)


@asynccontextmanager
async def server_that_hangs_up(*, is_alive: bool) -> AsyncIterator[str]:
    """A server that breaks the connection of every POST; if it is not alive, of every other call as well."""

    async def hang_up(request: web.Request) -> web.Response:
        if request.method == "GET" and is_alive:
            return web.Response()
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    app, port = web.Application(), free_port()
    app.router.add_route("*", "/{path:.*}", hang_up)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await runner.cleanup()


async def test_a_connection_that_breaks_loses_no_session_while_its_replica_lives():
    async with two_replicas() as (cluster, client), server_that_hangs_up(is_alive=True) as url:
        cluster.listed = {"0-a": url}
        with pytest.raises(ServerUnreachable):
            await client.count({COOKIE: "0-a"})


async def test_a_connection_that_breaks_with_its_replica_loses_the_session():
    async with two_replicas() as (cluster, client), server_that_hangs_up(is_alive=False) as url:
        cluster.listed = {"0-a": url}
        with pytest.raises(SessionLost):
            await client.count({COOKIE: "0-a"})


async def test_a_call_that_may_have_run_is_not_sent_to_another_replica():
    async with two_replicas() as (cluster, client), server_that_hangs_up(is_alive=True) as url:
        cluster.listed = {"0-a": url}
        with pytest.raises(ServerUnreachable):
            await client.count(wait_s=0.0)


async def test_many_who_miss_a_replica_at_once_ask_the_head_server_once():
    async with two_replicas() as (cluster, client):
        lost = [client.count({COOKIE: "9-a"}) for _ in range(50)]
        outcomes = await asyncio.gather(*lost, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {SessionLost}
        assert cluster.asked == 1
