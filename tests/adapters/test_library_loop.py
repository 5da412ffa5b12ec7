# SPDX-License-Identifier: Apache-2.0
"""The event loop of a library: apart from the server's, and freed when something blocks it."""

import asyncio
import threading

import pytest
from fastapi import FastAPI

from nemo_gym.adapters import library_loop
from nemo_gym.adapters.library_loop import LibraryLoop
from nemo_gym.errors import RolloutFailure


@pytest.fixture
async def loop(monkeypatch):
    monkeypatch.setattr(library_loop, "_ANSWER_TIMEOUT_S", 0.3)
    made = LibraryLoop("library")
    yield made
    await made.aclose()


async def tell_thread(*parts: str) -> tuple[str, ...]:
    await asyncio.sleep(0)
    return threading.current_thread().name, *parts


async def spin(started: threading.Event) -> None:
    started.set()
    while True:
        pass


async def wait_for_good(started: threading.Event, release: threading.Event) -> None:
    started.set()
    release.wait()


async def cancel_once_started(running: asyncio.Task, started: threading.Event) -> None:
    await asyncio.to_thread(started.wait)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_work_runs_in_the_thread_of_the_library_side_by_side(loop):
    answers = await asyncio.gather(loop.run(tell_thread, "a"), loop.run(tell_thread, "b"))
    assert answers == [("library", "a"), ("library", "b")]


async def test_what_the_work_raises_is_raised(loop):
    async def fail() -> None:
        raise KeyError("seed")

    with pytest.raises(KeyError, match="seed"):
        await loop.run(fail)


async def test_cancelling_cancels_the_work(loop):
    started, ended = threading.Event(), threading.Event()

    async def wait() -> None:
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    await cancel_once_started(asyncio.create_task(loop.run(wait)), started)
    assert await asyncio.to_thread(ended.wait, 5)


async def test_code_that_spins_is_interrupted_and_the_others_go_on(loop):
    started, spinning = threading.Event(), threading.Event()
    others: list[asyncio.Event] = []

    async def wait_for_answer() -> str:
        others.append(asyncio.Event())
        started.set()
        await others[0].wait()
        return "answer"

    async def answer() -> None:
        others[0].set()

    other = asyncio.create_task(loop.run(wait_for_answer))
    await asyncio.to_thread(started.wait)
    await cancel_once_started(asyncio.create_task(loop.run(spin, spinning)), spinning)
    await loop.run(answer)
    assert await other == "answer"


async def test_code_that_nothing_interrupts_is_left_behind_and_fails_the_others_by_name(loop):
    started, release = threading.Event(), threading.Event()
    other = asyncio.create_task(loop.run(asyncio.sleep, 60))
    await cancel_once_started(asyncio.create_task(loop.run(wait_for_good, started, release)), started)
    with pytest.raises(RolloutFailure, match="another rollout has blocked"):
        await other
    assert (await loop.run(tell_thread))[0] == "library"
    release.set()


async def test_the_loop_ends_with_the_app_and_what_runs_in_it_is_cancelled(loop):
    app, started, ended = FastAPI(), threading.Event(), threading.Event()
    loop.close_with(app)

    async def wait() -> None:
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    async with app.router.lifespan_context(app):
        running = asyncio.create_task(loop.run(wait))
        await asyncio.to_thread(started.wait)
    assert ended.is_set()
    with pytest.raises(asyncio.CancelledError):
        await running
