# SPDX-License-Identifier: Apache-2.0
"""Let deadlines pass when a test says so, not when a busy machine is slow."""

import asyncio


def skip_time(seconds: float) -> None:
    """Set the clock of the running event loop forward, so that its timers are due that much earlier."""
    loop = asyncio.get_running_loop()
    read_clock = loop.time
    loop.time = lambda: read_clock() + seconds
