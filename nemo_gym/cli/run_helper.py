# SPDX-License-Identifier: Apache-2.0
"""Servers under the control of a program: started, watched and stopped from any thread, beside whatever it runs.

A training framework drives it like this:

    helper = RunHelper()
    helper.start(GlobalConfigDictParserConfig(...))   # returns when every server is ready
    ...
    helper.poll()                                     # raises if a server has died
    helper.shutdown()
"""

import asyncio
import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any

from omegaconf import DictConfig

from nemo_gym.cli import render
from nemo_gym.cli.plan import show_plan
from nemo_gym.global_config import (
    DRY_RUN_KEY_NAME,
    GlobalConfigDictParser,
    GlobalConfigDictParserConfig,
    get_global_config_dict,
    maybe_get_global_config_dict,
    set_global_config_dict,
)
from nemo_gym.launch import Served, serve_config
from nemo_gym.server_utils import ServerClient, ServerInstanceDisplayConfig, ServerStatus


class RunHelper:
    """Starts the servers of a config in a thread of its own."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._ready = threading.Event()
        self._ended = threading.Event()
        self._failure: BaseException | None = None
        self._servers = list[ServerInstanceDisplayConfig]()

    def start(self, global_config_dict_parser_config: GlobalConfigDictParserConfig | None = None) -> None:
        """Parse the config unless this process has one, start its servers, return when all are ready."""
        if global_config_dict_parser_config is not None or maybe_get_global_config_dict() is None:
            set_global_config_dict(global_config_dict_parser_config)
        config = get_global_config_dict()
        GlobalConfigDictParser().raise_on_no_server_instances(config)
        if config.get(DRY_RUN_KEY_NAME):
            show_plan(config)
            return
        self._thread = threading.Thread(target=self._run, args=(config,), name="nemo-gym-servers", daemon=True)
        self._thread.start()
        try:
            self.wait_for_spinup()
        except BaseException:  # also Ctrl-C: nothing may be left behind by a start that did not succeed
            self.shutdown()
            raise

    def _run(self, config: DictConfig) -> None:
        import uvloop

        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._serve(config))
        except BaseException as error:
            self._failure = error
        finally:
            self._ended.set()
            self._ready.set()

    async def _serve(self, config: DictConfig) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        serving = asyncio.create_task(self._serve_until_stopped(config, self._stop))
        stopped = asyncio.create_task(self._stop.wait())
        await asyncio.wait({serving, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if not self._ready.is_set():
            serving.cancel()  # told to stop while still starting
        stopped.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await serving

    async def _serve_until_stopped(self, config: DictConfig, stop: asyncio.Event) -> None:
        async with serve_config(config, render.note) as served:
            self._servers = served.servers
            self._ready.set()
            await _stopped_or_dead(served, stop)

    def poll(self) -> None:
        """Raise if a server has died or could not be started."""
        if self._failure is not None:
            raise self._failure

    def wait_for_spinup(self) -> None:
        """Return when every server is ready; raise if one cannot be."""
        while not self._ready.wait(timeout=0.5):
            pass
        self.poll()

    def wait_for_dry_run_spinup(self) -> None:
        """A dry run starts nothing, so there is nothing to wait for: `start` has shown and checked the plan."""

    def wait_for_model_endpoints(self, global_config_dict: DictConfig | None = None) -> None:
        """Return when the model endpoints answer, which `start` has waited for already."""
        self.poll()

    def check_http_server_statuses(self, done: list[str] | None = None) -> list[tuple[str, ServerStatus]]:
        """The status of every server that is not in `done`."""
        client = ServerClient.load_from_global_config()
        names = [server.process_name for server in self._servers if server.process_name not in (done or [])]
        return [(name, client.poll_for_status(name)) for name in names if name]

    @property
    def server_instances(self) -> list[ServerInstanceDisplayConfig]:
        """The servers that run."""
        return list(self._servers)

    def display_server_instance_info(self) -> None:
        """Print where each server is."""
        if not self._servers:
            render.note("No server instances to display.")
        for number, server in enumerate(self._servers, 1):
            render.note(f"[{number}] {server.process_name} ({server.server_type}/{server.name}) {server.url}")

    def run_forever(self) -> None:
        """Wait until a signal comes or a server dies, then stop everything; a death is raised."""
        try:
            with signals_interrupt(), contextlib.suppress(KeyboardInterrupt):
                while not self._ended.wait(timeout=3600):
                    pass
        finally:
            self.shutdown()
        self.poll()

    def shutdown(self) -> None:
        """Stop all servers and wait until they are gone."""
        if self._thread is None:
            return
        if self._loop is not None and self._stop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended by itself
                self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._thread = None


async def _stopped_or_dead(served: Served, stop: asyncio.Event) -> None:
    death, stopped = asyncio.create_task(served.first_death()), asyncio.create_task(stop.wait())
    await asyncio.wait({death, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if death.done():
        raise death.result()
    death.cancel()


@contextlib.contextmanager
def signals_interrupt() -> Iterator[None]:
    """SIGTERM and SIGHUP interrupt as Ctrl-C does; only the main thread can have it so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before: dict[int, Any] = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
