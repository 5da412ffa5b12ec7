# SPDX-License-Identifier: Apache-2.0
"""A thread beside the event loop of the main thread: it names the server that blocks the loop, and can interrupt it.

Signals come to this thread as well, because a loop that is blocked hears none. Where the thread does not get its turn
either, as beside a regular expression that never ends, a system timer makes the main thread do its work.
C code that does not check for signals cannot be interrupted; Python's fault handler prints where it hangs.
"""

import asyncio
import faulthandler
import linecache
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NamedTuple

from nemo_gym._servers.direct_calls.running_apps import find_server_at_work
from nemo_gym.errors import ServerBlocked

BLOCKED_S = 5.0
"""How long a server may block the event loop before it is named."""
BLOCKED_AT_END_S = 1.0
"""The same while the run or the worker is ending; then it is also interrupted."""
_BEAT_S = 0.25
_INTERRUPT_EVERY_S = 1.0
_MOST_INTERRUPTS = 5
_INTERPRETER_HELD_S = 30.0
# Ignored unless somebody handles it, so that a late one does no harm.
_INTERRUPT = signal.SIGURG
# Sent when this process has computed for so long without the thread having had its turn.
_STARVED = signal.SIGVTALRM
_STARVED_S = 1.0
_SERVER_PACKAGES = ("resources_servers.", "responses_api_agents.", "responses_api_models.")


class Blockage(NamedTuple):
    """What the event loop hangs in."""

    server: str
    place: str
    seconds: float

    def __str__(self) -> str:
        return f"server {self.server!r} blocks the event loop, for {self.seconds:.0f} s now, in {self.place}"


class LoopWatch:
    """Watches the loop that runs in the main thread. All it is given is called in a thread of its own."""

    def __init__(
        self,
        *,
        on_signal: Callable[[int], None],
        on_blocked: Callable[[Blockage], None],
        on_stuck: Callable[[Blockage], None],
        named_after_s: Callable[[], float],
        most_blocked_s: Callable[[], float],
    ) -> None:
        """`on_blocked` is called once for each place that blocks for `named_after_s`.

        What blocks for more than `most_blocked_s` is interrupted; `on_stuck` is called for what goes on blocking.
        """
        self._on_signal = on_signal
        self._on_blocked = on_blocked
        self._on_stuck = on_stuck
        self._named_after_s = named_after_s
        self._most_blocked_s = most_blocked_s
        self._loop = asyncio.get_running_loop()
        self._main = threading.main_thread().ident or 0
        self._has_turned = True
        self._asked_s = 0.0
        self._looked_s = time.monotonic()
        self._cpu_s = time.process_time()
        self._interrupts = 0
        self._next_interrupt_s = 0.0
        self._raise: ServerBlocked | None = None
        self._reader = self._loops_fd = -1
        self._is_told = False
        self._places_told = set[str]()
        self._latest: tuple[float, Blockage] | None = None
        self.dumps_threads = True
        """Whether to print all threads when code holds the interpreter, so that nothing else can tell where it is."""

    @contextmanager
    def watch(self, signals: tuple[signal.Signals, ...]) -> Iterator[None]:
        """Watch, and take `signals`, while the context lasts."""
        global _taken
        self._reader, writer = os.pipe()
        for fd in (self._reader, writer):
            os.set_blocking(fd, False)
        handlers = dict.fromkeys((*signals, _STARVED), self._work_for_thread) | {_INTERRUPT: self._interrupt_server}
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        # The system writes a byte here for every signal, whatever the main thread is doing.
        self._loops_fd = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        over = threading.Event()
        thread = threading.Thread(target=self._watch, args=(over,), name="loop watch", daemon=True)
        _taken = tuple(before)
        thread.start()
        try:
            yield
        finally:
            over.set()
            with suppress(BlockingIOError):
                os.write(writer, b"\0")
            thread.join()
            _taken = ()
            signal.set_wakeup_fd(self._loops_fd)
            for number, handler in before.items():
                signal.signal(number, handler)
            for fd in (self._reader, writer):
                os.close(fd)

    def explain_lateness(self, within_s: float) -> str | None:
        """Return what has blocked the loop in the last seconds, for those that are late because of it."""
        if self._latest is None or time.monotonic() - self._latest[0] > within_s:
            return None
        server, place, seconds = self._latest[1]
        return f"meanwhile server {server!r} blocked the event loop for {seconds:.0f} s, in {place}"

    def _watch(self, over: threading.Event) -> None:
        rearm_s = 0.0
        try:
            while not over.is_set():
                signal.setitimer(signal.ITIMER_VIRTUAL, _STARVED_S, _STARVED_S)
                if self.dumps_threads and time.monotonic() >= rearm_s and sys.__stderr__ is not None:
                    rearm_s = time.monotonic() + _INTERPRETER_HELD_S / 3
                    with suppress(OSError, ValueError, RuntimeError):  # no file behind it
                        faulthandler.dump_traceback_later(_INTERPRETER_HELD_S, file=sys.__stderr__)
                select.select([self._reader], [], [], _BEAT_S)
                self._hear_signals()
                self._look()
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
            faulthandler.cancel_dump_traceback_later()

    def _hear_signals(self) -> None:
        with suppress(BlockingIOError):
            for number in os.read(self._reader, 4096):
                if number in (0, _INTERRUPT, _STARVED):
                    continue
                if number in _taken:
                    self._on_signal(number)
                elif self._loops_fd >= 0:  # somebody else's
                    with suppress(OSError):
                        os.write(self._loops_fd, bytes([number]))

    def _look(self) -> None:
        now = time.monotonic()
        cpu_s = time.process_time()
        # Without a turn and without work, the whole process stood still, as after Ctrl-Z.
        has_slept = now - self._looked_s > 2 * _BEAT_S and cpu_s - self._cpu_s < _BEAT_S / 4
        if has_slept:
            self._asked_s += now - self._looked_s
        self._looked_s = now
        self._cpu_s = cpu_s
        if self._has_turned:
            self._has_turned = False
            self._is_told = False
            self._asked_s = now
            self._interrupts = 0
            with suppress(RuntimeError):  # the loop was closed
                self._loop.call_soon_threadsafe(self._note_turn)
            return
        blocked_s = now - self._asked_s
        named_s = self._named_after_s()
        most_s = self._most_blocked_s()
        if blocked_s <= min(named_s, most_s):
            return
        blockage = self._find_blockage(sys._current_frames().get(self._main), blocked_s)
        if blockage is None:
            return
        self._latest = now, blockage
        if blocked_s > named_s and not self._is_told:
            self._is_told = True  # of this time, and of this place for good
            if blockage.place not in self._places_told:
                self._places_told.add(blockage.place)
                self._on_blocked(blockage)
        if blocked_s > most_s and now >= self._next_interrupt_s:
            self._interrupt(blockage)

    def _interrupt(self, blockage: Blockage) -> None:
        self._interrupts += 1
        if self._interrupts > _MOST_INTERRUPTS:
            self._on_stuck(blockage)
            return
        self._raise = ServerBlocked(blockage.server, blockage.place, round(blockage.seconds, 1))
        self._next_interrupt_s = time.monotonic() + _INTERRUPT_EVERY_S
        signal.pthread_kill(self._main, _INTERRUPT)

    def _note_turn(self) -> None:
        self._has_turned = True
        self._raise = None

    def _interrupt_server(self, number: int, frame: FrameType | None) -> None:
        error = self._raise
        self._raise = None
        # Raised only into a server's own code: anything else, such as the loop, would be torn by it.
        if error is not None and not self._has_turned and self._find_blockage(frame, 0.0) is not None:
            raise error

    def _work_for_thread(self, number: int, frame: FrameType | None) -> None:
        """Do the work of the thread, in the main thread, if the thread has not had its turn for long."""
        now = time.monotonic()
        if now - self._looked_s < _STARVED_S:
            return
        self._hear_signals()
        blocked_s = now - (self._looked_s if self._has_turned else self._asked_s)
        blockage = self._find_blockage(frame, blocked_s)
        if blockage is not None and blocked_s > self._most_blocked_s():
            self._latest = now, blockage
            raise ServerBlocked(blockage.server, blockage.place, round(blocked_s, 1))

    def _find_blockage(self, frame: FrameType | None, seconds: float) -> Blockage | None:
        """Return the server that the loop is in a call to, and the line at which it is; None if it is in none."""
        server = find_server_at_work(self._loop)
        if server is None or frame is None:
            return None
        at = frame
        within: FrameType | None = frame
        while within is not None:
            if str(within.f_globals.get("__name__", "")).startswith(_SERVER_PACKAGES):
                at = within
                break
            within = within.f_back
        source = linecache.getline(at.f_code.co_filename, at.f_lineno).strip()
        place = f"{at.f_code.co_name}, {at.f_code.co_filename}:{at.f_lineno}: {source}"
        return Blockage(server, place, seconds)


_taken: tuple[int, ...] = ()
"""The signals that a watch has taken."""


def _forget_signals() -> None:
    """In a forked child: its signals are not ours."""
    global _taken
    if _taken:
        signal.set_wakeup_fd(-1)
        for number in _taken:
            signal.signal(number, signal.SIG_DFL)
        _taken = ()


os.register_at_fork(after_in_child=_forget_signals)
