# SPDX-License-Identifier: Apache-2.0
"""Start a worker of a run as a process on this machine, and keep the connection to it."""

import asyncio
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import cast

from nemo_gym._rollouts.workers.rollout_worker import ORDERS_ENV, WorkerOrders
from nemo_gym._servers.processes.server_process import ChildSpec, ServerLate, ServerProcess

_MODULE = "nemo_gym._rollouts.workers.rollout_worker"
_END_GRACE_S = 2.0


class WorkerProcess(asyncio.Protocol):
    """A worker in its own process; see `nemo_gym._rollouts.workers.worker_pool.Worker`."""

    def __init__(self, on_data: Callable[[bytes], None]) -> None:
        self._on_data = on_data
        self._silent = asyncio.Event()
        self._is_stopping = False
        self.process: ServerProcess

    @classmethod
    async def start(
        cls,
        name: str,
        on_data: Callable[[bytes], None],
        *,
        orders: WorkerOrders,
        environment: Mapping[str, str],
        on_line: Callable[[str], None],
        timeout_s: float,
    ) -> "WorkerProcess":
        """Start the worker `name` and return it when it is ready; `on_line` gets every line that it prints."""
        ours, theirs = socket.socketpair()
        loop = asyncio.get_running_loop()
        _, worker = await loop.create_unix_connection(lambda: cls(on_data), sock=ours)
        spec = ChildSpec(
            name=name,
            python=Path(sys.executable),
            folder=Path.cwd(),
            entrypoint=name,
            host="",
            port=0,
            environment={**environment, ORDERS_ENV: orders.model_dump_json()},
            module=_MODULE,
        )
        try:
            worker.process = await ServerProcess.start(spec, theirs, on_line)
        except BaseException:
            worker._transport.abort()
            raise
        try:
            await worker._wait_until_ready(timeout_s)
        except BaseException:
            await worker.stop()
            raise
        return worker

    async def _wait_until_ready(self, timeout_s: float) -> None:
        ready = asyncio.create_task(self.process.ready())
        death = asyncio.create_task(self.process.wait_for_death())
        try:
            done, _ = await asyncio.wait({ready, death}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                raise ServerLate(timeout_s, {self.process.spec.name: self.process.last_lines})
            if ready not in done:
                raise death.result()
        finally:
            for task in (ready, death):
                task.cancel()
            await asyncio.gather(ready, death, return_exceptions=True)

    @property
    def pid(self) -> int:
        return self.process.pid

    def send(self, frame: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(frame)

    async def wait_for_end(self) -> str:
        await self._silent.wait()
        dying = asyncio.create_task(self.process.wait_for_death())
        # A worker that only closed its end of the connection is no longer of use.
        await asyncio.wait({dying}, timeout=_END_GRACE_S)
        if not dying.done() and not self._is_stopping:
            with suppress(ProcessLookupError):
                self.process.process.kill()
        death = await dying
        return str(death).removeprefix(f"server {death.name!r} ")

    async def stop(self) -> None:
        self._is_stopping = True
        await self.process.stop()
        self._transport.abort()

    # --- asyncio's side -----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._on_data(data)

    def connection_lost(self, error: Exception | None) -> None:
        self._silent.set()
