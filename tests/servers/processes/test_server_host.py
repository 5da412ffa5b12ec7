# SPDX-License-Identifier: Apache-2.0
"""Servers that share a process: built off the event loop, served together, stopped together."""

import asyncio
import threading
from contextlib import asynccontextmanager

import pytest
from fastapi import FastAPI
from omegaconf import OmegaConf

from nemo_gym._servers.direct_calls.call import call_app
from nemo_gym._servers.direct_calls.response import ObjectResponse
from nemo_gym._servers.direct_calls.running_apps import find_app
from nemo_gym._servers.processes import server_host as host
from nemo_gym._servers.processes.server_host import InlineServer, InlineSpec, build, build_in_thread, serve_inline
from nemo_gym._servers.processes.server_logs import route_output
from nemo_gym._servers.processes.server_process import ServerDied
from nemo_gym._transport.probe import status_of
from nemo_gym.base_resources_server import BaseVerifyRequest, BaseVerifyResponse, SimpleResourcesServer
from nemo_gym.errors import ConfigError
from nemo_gym.testing import asked, build_server, reply
from tests.support.small_servers import free_port, is_free


def spec(make) -> InlineSpec:
    return InlineSpec("tiny", "127.0.0.1", 1, make)


def fail(error: BaseException):
    def make():
        raise error

    return spec(make)


def test_an_error_of_its_code_is_told_as_the_servers_end_with_the_traceback():
    with pytest.raises(ServerDied) as caught:
        build(fail(ValueError("no such thing")))
    assert str(caught.value).startswith("server 'tiny' could not be loaded.\nits last lines:\n  Traceback")
    assert caught.value.last_lines[-1] == "ValueError: no such thing"


@pytest.mark.parametrize(("code", "told"), [(0, 0), (None, 0), (4, 4), ("a message", "a message")])
def test_a_server_that_exits_while_it_is_loaded_does_not_end_this_process(code, told):
    with pytest.raises(ServerDied, match=f"exited with code {told} while it was loaded"):
        build(fail(SystemExit(code)))


def test_a_mistake_of_the_user_stays_what_it_is():
    with pytest.raises(ConfigError, match=r"^as it is$"):
        build(fail(ConfigError("as it is")))


async def test_building_does_not_block_the_loop_and_prints_as_the_server(capsys):
    loop, started, go = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def make():
        print("building")
        loop.call_soon_threadsafe(started.set)
        assert go.wait(300)
        return "the app"

    with route_output(None):
        task = asyncio.create_task(build_in_thread(spec(make)))
        await started.wait()
        assert not task.done()
        go.set()
        assert await task == "the app"
    assert capsys.readouterr().err == "(tiny) building\n"


async def test_an_error_while_building_reaches_the_caller():
    with pytest.raises(ServerDied, match="could not be loaded"):
        await build_in_thread(fail(KeyError("x")))


async def test_one_that_hangs_while_building_can_be_given_up():
    go = threading.Event()
    task = asyncio.create_task(build_in_thread(spec(lambda: go.wait(300))))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go.set()
    for thread in threading.enumerate():
        if thread.name == "build tiny":
            assert thread.daemon, "it keeps no process alive"
            thread.join(300)


def app(startup=None, shutdown=None) -> FastAPI:
    @asynccontextmanager
    async def lifespan(_):
        if startup:
            await startup()
        yield
        if shutdown:
            await shutdown()

    return FastAPI(lifespan=lifespan)


async def test_each_is_told_when_it_is_up_and_all_are_up_at_the_end():
    go, told = asyncio.Event(), list[str]()
    servers = [
        InlineServer("slow", "127.0.0.1", free_port(), app(startup=go.wait)),
        InlineServer("fast", "127.0.0.1", free_port(), app()),
    ]

    def on_ready(name: str) -> None:
        told.append(name)
        go.set()

    async with serve_inline(servers, on_ready):
        assert told == ["fast", "slow"]
        statuses = [await asyncio.to_thread(status_of, f"http://127.0.0.1:{s.port}", 5) for s in servers]
        assert statuses == ["success", "success"]
    assert all(is_free(server.port) for server in servers)


class Chatty(SimpleResourcesServer):
    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        print("scored")
        return BaseVerifyResponse(**body.model_dump(), reward=1.0)


async def test_servers_that_run_together_call_each_other_the_short_way_and_print_under_their_names(capsys):
    server = build_server(Chatty, name="chatty")
    here = InlineServer("chatty", "127.0.0.1", free_port(), server.build_complete_app(OmegaConf.create({})))
    answered = {"responses_create_params": asked("2 + 2?"), "response": reply("4")}
    with route_output(None):
        async with serve_inline([here]):
            app = find_app(here.host, here.port)
            where = f"http://{here.host}:{here.port}"
            verified = await call_app(app, "POST", where, "/verify", address=(here.host, here.port), json=answered)
            print("between")
            other = await call_app(app, "POST", where, "/nowhere", address=(here.host, here.port), json={})
    assert isinstance(verified, ObjectResponse)
    assert (await verified.json())["reward"] == 1.0
    assert other.status == 404
    out, err = capsys.readouterr()
    assert "(chatty) scored" in err.splitlines()
    assert out == "between\n"


async def test_one_that_cannot_start_stops_the_others_and_is_explained(caplog):
    async def startup():
        raise OSError("the database is away")

    servers = [
        InlineServer("fine", "127.0.0.1", free_port(), app()),
        InlineServer("broken", "127.0.0.1", free_port(), app(startup)),
    ]
    with pytest.raises(ServerDied, match=r"server 'broken' could not start\.\nits last lines:\n  said before"):
        async with serve_inline(servers, last_lines=lambda name: ["said before"]):
            pytest.fail("it is not ready")
    assert all(is_free(server.port) for server in servers)


async def test_one_whose_startup_never_ends_can_be_given_up():
    server = InlineServer("slow", "127.0.0.1", free_port(), app(startup=asyncio.Event().wait))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05), serve_inline([server]):
            pytest.fail("it is not ready")
    assert is_free(server.port)


async def test_one_whose_shutdown_never_ends_is_left_after_a_while(monkeypatch):
    monkeypatch.setattr(host, "_STOP_GRACE_S", 0.1)
    server = InlineServer("slow", "127.0.0.1", free_port(), app(shutdown=asyncio.Event().wait))
    async with asyncio.timeout(300), serve_inline([server]):
        pass
    assert is_free(server.port)
