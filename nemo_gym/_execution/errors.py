# SPDX-License-Identifier: Apache-2.0
"""What can go wrong with pools of workers, apart from what the work itself does."""

from nemo_gym.errors import GymError, RolloutFailure


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


class SandboxLost(RolloutFailure):
    """The sandboxes around a piece of code ended from outside, so nothing is known about the code."""

    def __init__(self, cause: str) -> None:
        super().__init__(
            "sandbox_lost",
            f"model-written code could not be run to its end: {cause}.\n"
            "hint: see what ends processes on this machine (the kernel log says if memory ran out), let fewer programs "
            "run at a time, and play the rollout again with `--resume`",
            True,
        )
        self.args = (cause,)
