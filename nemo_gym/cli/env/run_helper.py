# SPDX-License-Identifier: Apache-2.0
"""Start, watch and stop servers from any thread of a program.

A training framework drives it like this:

    helper = RunHelper()
    helper.start(GlobalConfigDictParserConfig(...))   # returns when every server is ready
    ...
    helper.poll()                                     # raises if a server has died
    helper.shutdown()
"""

import asyncio
import atexit
import contextlib
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from omegaconf import DictConfig

from nemo_gym._servers.http.sockets import bind
from nemo_gym._servers.installing.venvs import VenvBuildError
from nemo_gym._servers.launching.launch import (
    child_spec,
    inline_spec,
    release_ports,
    serve_config,
    share_config,
    startup_timeout_s,
)
from nemo_gym._servers.launching.placement_plan import ServerPlan, build_environments, plan_launch
from nemo_gym._servers.processes.event_loop import interrupt_on_signals, run_beside_servers
from nemo_gym._servers.processes.server_host import build
from nemo_gym._servers.processes.server_process import ChildSpec, ServerDied, ServerLate, ServerProcess
from nemo_gym._util.reachable_addresses import reachable_url
from nemo_gym.cli import render
from nemo_gym.errors import GymError
from nemo_gym.global_config import (
    DRY_RUN_KEY_NAME,
    GlobalConfigDictParser,
    GlobalConfigDictParserConfig,
    get_global_config_dict,
    maybe_get_global_config_dict,
    set_global_config_dict,
)
from nemo_gym.server_utils import ServerClient, ServerInstanceDisplayConfig, ServerStatus

Beside = Callable[[], contextlib.AbstractAsyncContextManager[object]]
_OWN_PROCESS = "hint: give it a process of its own, with `placement: process` in its config"
_STOP_TIMEOUT_S = 20.0
_THREAD_TIMEOUT_S = 2.0


class RunHelper:
    """Runs the servers of a config in a separate thread."""

    def __init__(self, beside: Beside | None = None) -> None:
        """`beside` is entered once the servers are ready, on their event loop, and left before they stop."""
        self._server_client: ServerClient | None = None  # trainers read `head_server_config` of it
        self._run: _ServingThread | None = None
        self._beside = beside

    def start(self, global_config_dict_parser_config: GlobalConfigDictParserConfig | None = None) -> None:
        """Parse the config unless this process has one, start its servers, and return when all are ready."""
        if self._run is not None and not self._run.ended.is_set():
            raise RuntimeError(
                "these servers are already running.\nhint: call `shutdown` first, or use another RunHelper"
            )
        if global_config_dict_parser_config is not None or maybe_get_global_config_dict() is None:
            set_global_config_dict(global_config_dict_parser_config)
        config = get_global_config_dict()
        GlobalConfigDictParser().raise_on_no_server_instances(config)
        if config.get(DRY_RUN_KEY_NAME):
            show_plan(config)
            return
        try:
            self._run = _ServingThread(config, self._beside)
            self._run.begin()
            self.wait_for_spinup()
            self._server_client = ServerClient(
                head_server_config=ServerClient.load_head_server_config(), global_config_dict=config
            )
        except BaseException:  # also Ctrl-C: a failed start must leave nothing behind
            self.shutdown()
            raise

    def poll(self) -> None:
        """Raise if a server has died or could not be started. The other servers stay up until `shutdown`."""
        if self._run is not None and self._run.failure is not None:
            raise self._run.failure

    def wait_for_spinup(self) -> None:
        """Return when every server is ready; raise if one cannot be."""
        if self._run is not None:
            self._run.ready.wait()
        self.poll()

    def wait_for_dry_run_spinup(self) -> None:
        """Do nothing: a dry run serves nothing, and `start` has shown and rehearsed the plan."""

    def wait_for_model_endpoints(self, global_config_dict: DictConfig | None = None) -> None:
        """Return when the model endpoints answer, which `start` has waited for already."""
        self.poll()

    def check_http_server_statuses(self, done: list[str] | None = None) -> list[tuple[str, ServerStatus]]:
        """Return the status of every server that is not in `done`."""
        client = ServerClient.load_from_global_config()
        names = [server.process_name for server in self.server_instances if server.process_name not in (done or [])]
        return [(name, client.poll_for_status(name)) for name in names if name]

    @property
    def server_instances(self) -> list[ServerInstanceDisplayConfig]:
        """The servers that were started."""
        return list(self._run.servers) if self._run is not None else []

    def display_server_instance_info(self) -> None:
        """Print where each server is."""
        if not self.server_instances:
            render.note("No server instances to display.")
        for number, server in enumerate(self.server_instances, 1):
            url = reachable_url(server.host or "", server.port or 0)
            render.note(f"[{number}] {server.process_name} ({server.server_type}/{server.name}) {url}")

    def run_forever(self) -> None:
        """Wait until a signal arrives or a server dies, then stop everything; raise if a server died."""
        try:
            with interrupt_on_signals(), contextlib.suppress(KeyboardInterrupt):
                if self._run is not None:
                    self._run.over.wait()
        finally:
            self.shutdown()
        self.poll()

    def shutdown(self) -> None:
        """Stop all servers and wait until they are gone."""
        if self._run is not None:
            self._run.end()

    @property
    def hangs(self) -> bool:
        """Whether something that a server started in this process, such as a thread, has outlived `shutdown`."""
        return self._run is not None and self._run.thread.is_alive()


class _ServingThread:
    """The servers of one config, from start to end, in a thread with its own event loop."""

    def __init__(self, config: DictConfig, beside: Beside | None) -> None:
        import uvloop

        self._config = config
        self._beside = beside or contextlib.nullcontext
        # Created before the thread, so that it can be told to stop from the start.
        self._loop = uvloop.new_event_loop()
        self._stop = asyncio.Event()
        self.thread = threading.Thread(target=self._work, name="nemo-gym-servers", daemon=True)
        self.ready = threading.Event()
        self.ended = threading.Event()
        self.over = threading.Event()
        """Set when a server has died or all have ended."""
        self.failure: BaseException | None = None
        self.servers = list[ServerInstanceDisplayConfig]()

    def begin(self) -> None:
        """Start the servers; they stop when the program ends, at the latest."""
        atexit.register(self.end)
        self.thread.start()

    def end(self) -> None:
        """Stop the servers and wait until they are gone; a second call does nothing."""
        atexit.unregister(self.end)
        if not self.thread.is_alive():
            return
        with contextlib.suppress(RuntimeError):  # the loop has already ended
            self._loop.call_soon_threadsafe(self._stop.set)
        if not self.ended.wait(timeout=_STOP_TIMEOUT_S):
            render.note(f"a server blocks the event loop of this process and does not stop.\n{_OWN_PROCESS}")
        self.thread.join(timeout=_THREAD_TIMEOUT_S)

    def _work(self) -> None:
        try:
            run_beside_servers(self._serve(), lambda: self._loop)
        except SystemExit as error:
            code = error.code or 0
            self._tell_end(GymError(f"a server that shares this process exited with code {code}.\n{_OWN_PROCESS}"))
        except BaseException as error:
            self._tell_end(error)

    async def _serve(self) -> None:
        serving = asyncio.create_task(self._serve_until_stopped())
        stopped = asyncio.create_task(self._stop.wait())
        await asyncio.wait({serving, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if not self.ready.is_set():
            serving.cancel()  # told to stop while still starting
        stopped.cancel()
        outcome, _ = await asyncio.gather(serving, stopped, return_exceptions=True)
        # Reported here, not at the end of the thread, which has to wait for server threads that may hang.
        is_cancelled = isinstance(outcome, asyncio.CancelledError)
        self._tell_end(GymError("the servers were stopped before they were ready") if is_cancelled else outcome)

    async def _serve_until_stopped(self) -> None:
        async with serve_config(self._config, render.note, render.count) as served, self._beside():
            self.servers = served.servers
            self.ready.set()
            try:
                await served.running.run_unless_dead(self._stop.wait())
            except ServerDied as death:
                # The other servers keep working: whoever started them decides when they stop.
                self.failure = death
                self.over.set()
                await self._stop.wait()

    def _tell_end(self, failure: BaseException | None) -> None:
        if not self.over.is_set():
            self.failure = failure
        self.over.set()
        self.ended.set()
        self.ready.set()


# --- dry run ----------------------------------------------------------------------------------------------------------


class DryRunFailed(GymError, RuntimeError):
    """Servers that could not be started."""


def show_plan(config: DictConfig) -> None:
    """Print where each server would run, build the environments, and build each server up to the point of serving.

    Inside a running event loop, as in a Ray actor, this blocks the loop until it is done.
    """
    try:
        plans = plan_launch(config)
        width = max(len(plan.name) for plan in plans)
        for plan in plans:
            unbuilt = "" if plan.venv is None or plan.venv.built else "; its environment is built first"
            where = plan.url if plan.ray is None else f"{plan.ray.num_replicas} replicas on a Ray cluster"
            render.data(f"{plan.name:{width}}  {plan.placement:8}  {where}  {plan.why}{unbuilt}")
        here, own = (sum(plan.placement == one for plan in plans) for one in ("inline", "process"))
        render.data(
            f"{len(plans)} servers: {here} in one process with the head server, {own} in processes of their own"
        )
        failures = _run(_rehearse(config, plans))
    finally:
        release_ports(config)
    if failures:
        raise DryRunFailed("\n\n".join(failures))


def _run(work: Coroutine[Any, Any, list[str]]) -> list[str]:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as beside_the_loop:
        return beside_the_loop.submit(asyncio.run, work).result()


async def _rehearse(config: DictConfig, plans: Sequence[ServerPlan]) -> list[str]:
    """Return what goes wrong with each server."""
    failures = []
    try:
        await build_environments(config, plans, render.note)
    except VenvBuildError as error:
        failures.append(str(error))
    for plan in plans:
        if plan.placement == "inline":
            try:
                build(inline_spec(config, plan))
            except GymError as error:
                failures.append(str(error))
    # Planned again, now that environments are built: a server whose environment is missing cannot be started.
    apart = [plan for plan in plan_launch(config) if plan.placement == "process" and plan.venv and plan.venv.built]
    with share_config(config) as environment:
        specs = [child_spec(plan, environment) for plan in apart]
        outcomes = await asyncio.gather(*(_check(spec, startup_timeout_s(config)) for spec in specs))
    return [*failures, *filter(None, outcomes)]


async def _check(spec: ChildSpec, timeout_s: float) -> str | None:
    """Return what goes wrong with a server, which sees `dry_run` in its config and exits once it is built."""
    try:
        child = await ServerProcess.start(spec, bind(spec.host, spec.port, spec.name), lambda line: None)
    except GymError as error:
        return str(error)
    ends = {asyncio.create_task(child.wait_for_death()), asyncio.create_task(child.ready())}
    try:
        done, _ = await asyncio.wait(ends, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if not done:
            return str(ServerLate(timeout_s, {spec.name: child.last_lines}))
        return str(await child.wait_for_death()) if child.process.returncode else None
    finally:
        for task in ends:
            task.cancel()
        await asyncio.gather(*ends, return_exceptions=True)
        await child.stop()
