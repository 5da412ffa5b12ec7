# SPDX-License-Identifier: Apache-2.0
"""Several worker processes for one server on one port: started and watched by the process that was to be the server.

A worker runs the very command that its main process runs and learns from one environment variable that it is a worker,
so servers need no code for it. Each worker has a listening socket of its own on the shared port (SO_REUSEPORT), because
the kernel then spreads connections evenly: on one common socket whoever is quick takes them (64 connections to three
idle workers went 32, 32 and 0). Nothing is restarted: the sessions of a worker that dies are lost, so the server ends.
"""

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from nemo_gym._servers.http import sockets as binding
from nemo_gym._servers.http.admission import AccessRules
from nemo_gym._servers.processes.affinity import Peers
from nemo_gym._servers.processes.server_process import describe_exit

if TYPE_CHECKING:
    from nemo_gym._servers.http import listening

LOG = logging.getLogger(__name__)

GRACE_S = 5.0
# The other workers serve nobody any more once one has died, and whoever started the server waits to hear of it.
_GRACE_AFTER_DEATH_S = 1.5
_WORKER_ENV = "NEMO_GYM_WORKER"
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_MAX_SOCKET_PATH_BYTES = 100


@dataclass(frozen=True)
class ServerWorker:
    """One worker process, in its own eyes: its place among its peers and what its main process passed on to it."""

    index: int
    count: int
    folder: str
    """Holds the unix sockets by which workers reach each other; nobody else may enter it."""
    listen_fd: int
    peer_fd: int
    lifeline_fd: int
    ready_fd: int

    @property
    def fds(self) -> tuple[int, ...]:
        return self.listen_fd, self.peer_fd, self.lifeline_fd, self.ready_fd

    @property
    def peers(self) -> Peers:
        """All workers of the server."""
        return Peers(self.index, tuple(_socket_path(self.folder, number) for number in range(self.count)))

    def peer_listener(self) -> socket.socket:
        """Return the socket on which this worker takes requests from its peers."""
        return socket.socket(fileno=self.peer_fd)


def this_worker(environment: MutableMapping[str, str]) -> ServerWorker | None:
    """Return the worker that this process is to be, taken out of `environment`: what it starts is no worker any more.

    From here on the process ends when its main process does.
    """
    given = environment.pop(_WORKER_ENV, None)
    if given is None:
        return None
    worker = ServerWorker(**orjson.loads(given))
    for fd in worker.fds:
        os.set_inheritable(fd, False)
    threading.Thread(target=_end_with_main, args=(worker,), name="lifeline", daemon=True).start()
    return worker


def _end_with_main(worker: ServerWorker) -> None:
    os.read(worker.lifeline_fd, 1)  # returns when the main process, which never writes, is gone
    LOG.error("worker %d: the main process of the server is gone; ending", worker.index)
    shutil.rmtree(worker.folder, ignore_errors=True)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_S)
    os._exit(1)


def serve(
    worker: ServerWorker, app: Any, host: str, port: int, access: AccessRules, on_ready: Callable[[], None]
) -> None:
    """Serve `app` as `worker` until it is told to stop."""
    import uvloop

    from nemo_gym._servers.http import listening  # loads uvicorn, which only who serves needs

    server = listening.uvicorn_server(app, host, port, access, quiet_signals=True)
    assert isinstance(server, listening.OwnedServer)

    def stop(*_: object) -> None:
        server.should_exit = True

    for number in _STOP_SIGNALS:
        signal.signal(number, stop)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(worker, server, on_ready))


async def _serve(worker: ServerWorker, server: "listening.OwnedServer", on_ready: Callable[[], None]) -> None:
    async def say_ready() -> None:
        await server.ready.wait()
        on_ready()
        os.write(worker.ready_fd, b"1")

    announcement = asyncio.create_task(say_ready())
    try:
        await server.serve(sockets=[socket.socket(fileno=worker.listen_fd)])
    finally:
        announcement.cancel()


# --- in the main process ----------------------------------------------------------------------------------------------


def run(
    command: Sequence[str],
    listener: socket.socket,
    count: int,
    *,
    server_name: str,
    environment: Mapping[str, str],
    on_ready: Callable[[], None] = lambda: None,
    grace_s: float = GRACE_S,
) -> int:
    """Run `command` as `count` workers on the port of `listener`, which is taken over, until a signal or a death.

    The exit code for this process: 0 after SIGINT or SIGTERM, 1 if a worker ended by itself. `on_ready` is called when
    all workers listen. When this returns, no worker is left.
    """
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(_make_socket_folder())
        sockets = stack.enter_context(contextlib.ExitStack())
        listeners = [sockets.enter_context(sock) for sock in _open_listeners(listener, count)]
        doors = [sockets.enter_context(_open_peer_listener(folder, number)) for number in range(count)]
        lifeline = stack.enter_context(_open_pipe())
        ready = stack.enter_context(_open_pipe())
        workers = [
            ServerWorker(
                number, count, folder, listeners[number].fileno(), doors[number].fileno(), lifeline[0], ready[1]
            )
            for number in range(count)
        ]
        supervision = _Supervision(server_name, workers, grace_s)
        return asyncio.run(supervision.run(command, environment, sockets.close, ready[0], on_ready))


class _Supervision:
    """The workers of one server, from start to end."""

    def __init__(self, server_name: str, workers: Sequence[ServerWorker], grace_s: float) -> None:
        self._server_name = server_name
        self._workers = workers
        self._grace_s = grace_s
        self._processes = list[asyncio.subprocess.Process]()
        self._stop = asyncio.Event()
        self._kill = asyncio.Event()

    async def run(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        hand_over: Callable[[], None],
        ready_fd: int,
        on_ready: Callable[[], None],
    ) -> int:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._on_signal)
        # Ctrl-C reaches the workers too. They leave it to us, and must not print tracebacks while they are starting.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            for worker in self._workers:
                self._processes.append(await _start(worker, command, environment))
            hand_over()  # from here on the port is refused as soon as the workers close it
            loop.add_signal_handler(signal.SIGINT, self._on_signal)
            loop.add_reader(ready_fd, self._count_ready, ready_fd, bytearray(), on_ready)
            return await self._watch()
        finally:
            loop.remove_reader(ready_fd)
            await self._stop_all()
            for number in _STOP_SIGNALS:
                loop.remove_signal_handler(number)

    def _on_signal(self) -> None:
        (self._kill if self._stop.is_set() else self._stop).set()

    def _count_ready(self, fd: int, said: bytearray, on_ready: Callable[[], None]) -> None:
        said += os.read(fd, len(self._workers))
        if len(said) == len(self._workers):
            asyncio.get_running_loop().remove_reader(fd)
            on_ready()

    async def _watch(self) -> int:
        """Wait for a signal (0) or for the first death (1)."""
        stop = asyncio.create_task(self._stop.wait())
        ends = [asyncio.create_task(process.wait()) for process in self._processes]
        await asyncio.wait([stop, *ends], return_when=asyncio.FIRST_COMPLETED)
        if self._stop.is_set():
            return 0
        stop.cancel()
        self._grace_s = min(self._grace_s, _GRACE_AFTER_DEATH_S)
        for worker, process in zip(self._workers, self._processes, strict=True):
            if process.returncode is not None:
                LOG.error(
                    "server %r: worker %d of %d (pid %d) %s. The other workers are stopped and the server ends, "
                    "because the sessions of that worker are lost.\nhint: the reason is in what it printed before",
                    self._server_name,
                    worker.index,
                    worker.count,
                    process.pid,
                    describe_exit(process.returncode),
                )
        return 1

    async def _stop_all(self) -> None:
        """Ask every worker to end, and kill those that have not when the grace is over or a second signal comes."""
        for process in self._list_running():
            process.terminate()
        ends: asyncio.Future[Any] = asyncio.gather(*(process.wait() for process in self._processes))
        kill: asyncio.Future[Any] = asyncio.create_task(self._kill.wait())
        await asyncio.wait([ends, kill], timeout=self._grace_s, return_when=asyncio.FIRST_COMPLETED)
        kill.cancel()
        for process in self._list_running():
            LOG.warning("server %r: killed the worker with pid %d, which did not end", self._server_name, process.pid)
            process.kill()
        await ends

    def _list_running(self) -> Iterator[asyncio.subprocess.Process]:
        return (process for process in self._processes if process.returncode is None)


async def _start(
    worker: ServerWorker, command: Sequence[str], environment: Mapping[str, str]
) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *command,
        env={**environment, _WORKER_ENV: orjson.dumps(asdict(worker)).decode()},
        pass_fds=worker.fds,
        stdin=asyncio.subprocess.DEVNULL,
    )


def _open_listeners(first: socket.socket, count: int) -> list[socket.socket]:
    """Return `count` sockets on the port of `first`; all the same one where the system cannot balance several.

    The port is ours alone: `first` was bound without SO_REUSEPORT, and others of this kind may join only from here on.
    """
    listeners = [first]
    try:
        first.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        for _ in range(count - 1):
            sock = socket.socket(first.family, socket.SOCK_STREAM)
            listeners.append(sock)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            sock.bind(first.getsockname())
    except (OSError, AttributeError) as error:
        LOG.warning("workers share one listening socket, which may load them unevenly: %s", error)
        for sock in listeners[1:]:
            sock.close()
        return [first] * count
    return listeners


@contextlib.contextmanager
def _make_socket_folder() -> Iterator[str]:
    # A unix socket's path has a small limit, which a deep TMPDIR exceeds.
    parent = "/tmp"
    if len(os.fsencode(tempfile.gettempdir())) < _MAX_SOCKET_PATH_BYTES - 30:
        parent = tempfile.gettempdir()
    with tempfile.TemporaryDirectory(prefix="nemo-gym-", dir=parent, ignore_cleanup_errors=True) as folder:
        yield folder


def _socket_path(folder: str, number: int) -> str:
    return str(Path(folder) / f"{number}.sock")


def _open_peer_listener(folder: str, number: int) -> socket.socket:
    # Listening before any worker runs: what is carried to a worker that still starts waits for it.
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.bind(_socket_path(folder, number))
    sock.listen(binding.BACKLOG)
    return sock


@contextlib.contextmanager
def _open_pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    try:
        yield ends
    finally:
        for fd in ends:
            os.close(fd)
