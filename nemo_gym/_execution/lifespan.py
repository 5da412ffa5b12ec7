# SPDX-License-Identifier: Apache-2.0
"""Let something end together with an app."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any


def at_shutdown(app: Any, close: Callable[[], Awaitable[None]]) -> None:
    """Await `close` when the Starlette app `app` shuts down, after what it did at shutdown already."""
    inner = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(of: Any) -> AsyncIterator[Any]:
        try:
            async with inner(of) as state:
                yield state
        finally:
            await close()

    app.router.lifespan_context = lifespan
