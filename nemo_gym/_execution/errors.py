# SPDX-License-Identifier: Apache-2.0
"""What can go wrong with pools of workers, apart from what the work itself does."""

from nemo_gym.errors import GymError


class PoolFull(GymError):
    """So much work is waiting already that more of it is refused."""

    def __init__(self, what: str, max_queue: int) -> None:
        super().__init__(what, max_queue)
        self.what, self.max_queue = what, max_queue

    def __str__(self) -> str:
        return (
            f"{self.what}: {self.max_queue} calls are waiting for a worker already.\n"
            "hint: send fewer at a time, or allow more workers or a longer queue"
        )


class PoolClosed(GymError):
    """The pool was closed while, or before, it was used."""


class WorkerDied(GymError):
    """A worker process ended without an answer: it crashed, was killed, or ran out of memory."""


class SandboxUnavailable(GymError):
    """No sandbox for untrusted code can be started on this machine."""
