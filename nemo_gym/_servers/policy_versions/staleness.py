# SPDX-License-Identifier: Apache-2.0
"""Bounded staleness: hold new rollouts back while they would be too old by the time they are trained on.

A trainer that uses `batch_size` rollouts per step, and makes one new version in each, can use

    (version - first version + max_staleness + 1) × batch_size

rollouts in total. No more are admitted, so nothing has to be dropped: the k-th admitted rollout is trained on in step
k / batch_size, at most `max_staleness` versions after the one it began with, provided that rollouts are trained on in
the order they were admitted. A rollout that ends without a sample gives its place back.
"""

import asyncio
import threading
from collections import deque
from dataclasses import dataclass

from nemo_gym._servers.policy_versions.announcing import PolicyVersionRefused
from nemo_gym.errors import GymError


class StalenessTimeout(GymError, TimeoutError):
    """No place for a new rollout became free in time: the trainer has made no new version."""


@dataclass(eq=False)
class _Waiting:
    count: int
    loop: asyncio.AbstractEventLoop
    admitted: "asyncio.Future[None]"
    has_place: bool = False

    def wake(self) -> None:
        if not self.admitted.done():
            self.admitted.set_result(None)


class StalenessGate:
    """Admits rollouts as long as they will not be too old. Safe to use from several threads and event loops."""

    def __init__(self, max_staleness: int, batch_size: int, version: int | None) -> None:
        """`version` is the one in force; None admits nothing until the first one is announced.

        `batch_size` is how many rollouts, all samples of all groups, the trainer uses per version.
        """
        if max_staleness < 0 or batch_size < 1:
            raise ValueError(
                f"max_staleness must be 0 or more and batch_size 1 or more, not {max_staleness} and {batch_size}"
            )
        self.max_staleness = max_staleness
        self.batch_size = batch_size
        self._first = self._version = version
        self._admitted = 0
        self._lock = threading.Lock()
        self._waiting = deque[_Waiting]()

    @property
    def version(self) -> int | None:
        """The version in force, as far as the gate knows."""
        return self._version

    @property
    def admitted(self) -> int:
        """How many rollouts were admitted, minus those that gave their place back."""
        return self._admitted

    @property
    def free(self) -> int:
        """How many more may be admitted now; may be negative."""
        if self._version is None or self._first is None:
            return 0
        return (self._version - self._first + self.max_staleness + 1) * self.batch_size - self._admitted

    def announce(self, version: int, restart: bool = False) -> None:
        """Take note of a new version and admit whoever has room now. Raise PolicyVersionRefused if it is older.

        With `restart`, an older version is accepted and the gate counts from it. Rollouts that were admitted and cannot
        have been trained on yet still count; a trainer that lost some of them gives those back.
        """
        with self._lock:
            if self._version is not None and self._first is not None and version < self._version:
                if not restart:
                    raise PolicyVersionRefused(version, self._version)
                self._admitted = max(0, self._admitted - (self._version - self._first) * self.batch_size)
                self._first = version
            self._version = version
            if self._first is None:
                self._first = version
            self._admit_waiting()

    def try_admit(self, count: int = 1) -> bool:
        """Admit `count` rollouts together if there is room for all and nobody is waiting; return whether it did."""
        self._require_possible(count)
        with self._lock:
            if self._waiting or count > self.free:
                return False
            self._admitted += count
            return True

    async def admit(self, count: int = 1, timeout_s: float | None = None) -> int | None:
        """Wait in line until `count` rollouts may begin together; return the version in force.

        Cancelling it leaves everything as it was. Raise StalenessTimeout after `timeout_s`.
        """
        if self.try_admit(count):
            return self._version
        waiting = _Waiting(count, loop := asyncio.get_running_loop(), loop.create_future())
        with self._lock:
            self._waiting.append(waiting)
            self._admit_waiting()
        try:
            async with asyncio.timeout(timeout_s):
                await waiting.admitted
        except BaseException as error:
            with self._lock:
                if waiting.has_place:
                    self._admitted -= count
                else:
                    self._waiting.remove(waiting)
                self._admit_waiting()
            if isinstance(error, TimeoutError):
                raise StalenessTimeout(self.explain_wait(timeout_s or 0.0)) from error
            raise
        return self._version

    def give_back(self, count: int = 1) -> None:
        """Free the places of rollouts that will not be trained on: they failed, or the trainer dropped them."""
        with self._lock:
            self._admitted = max(0, self._admitted - count)
            self._admit_waiting()

    def explain_wait(self, waited_s: float) -> str:
        """Explain why nothing is admitted."""
        if self._version is None:
            return (
                f"no rollout could begin for {waited_s:g} s: no policy version was announced, so nobody could say "
                "how old it would get.\n"
                "hint: the trainer announces the version it starts with (`nemo_gym.policy_versions.announce`)"
            )
        return (
            f"no new rollout could begin for {waited_s:g} s: {self._admitted} were admitted and not given back, which "
            f"is all that policy version {self._version} can use (max_staleness {self.max_staleness}, batches of "
            f"{self.batch_size}).\n"
            "hint: the trainer announces a new version after each step (`nemo_gym.policy_versions.announce`) and gives "
            "back what it does not train on; is it still running?"
        )

    def _require_possible(self, count: int) -> None:
        most = (self.max_staleness + 1) * self.batch_size
        if not 1 <= count <= most:
            raise ValueError(
                f"{count} rollouts can never begin together: at most {most} are ever free at once, "
                f"(max_staleness {self.max_staleness} + 1) × batches of {self.batch_size}"
            )

    def _admit_waiting(self) -> None:
        """Admit those at the front who have room. The lock is held."""
        while self._waiting and self._waiting[0].count <= self.free:
            waiting = self._waiting.popleft()
            if waiting.loop.is_closed():
                continue  # this waiter is gone
            self._admitted += waiting.count
            waiting.has_place = True
            waiting.loop.call_soon_threadsafe(waiting.wake)
