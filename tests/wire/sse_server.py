# SPDX-License-Identifier: Apache-2.0
"""A real HTTP server that streams given frames to whoever posts, so that the official SDK clients can be the judges."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from aiohttp import web

from nemo_gym._wire import sse


@asynccontextmanager
async def streaming(frames: Iterable[bytes]) -> AsyncIterator[str]:
    """The base URL of a server that answers every POST with `frames`."""

    async def reply(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": sse.CONTENT_TYPE})
        await response.prepare(request)
        for frame in frames:
            await response.write(frame)
        return response

    app = web.Application()
    app.router.add_post("/{path:.*}", reply)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()
