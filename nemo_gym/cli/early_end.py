# SPDX-License-Identifier: Apache-2.0
"""What ends a run before its last rollout: the death of a server."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from nemo_gym._rollouts.control import RunControl
from nemo_gym.cli import render

if TYPE_CHECKING:
    from nemo_gym._serving.processes import ServerDied
    from nemo_gym.launch import Served

# Longer than it takes to notice that a server process, or one of its workers, has died.
_HOLD_FAILURES_S = 2.0


@contextmanager
def abort_on_server_death(served: "Served | None", control: RunControl) -> Iterator[float]:
    """Give the run up if a server process ends by itself meanwhile; yield how long to hold failures back for that.

    `served` is None where somebody else runs the servers.
    """

    def abort(death: "ServerDied") -> None:
        render.error(str(death))
        control.abort(
            f"server {death.name!r} {death.how}. What was not played yet, or was under way, has lost no attempt.\n"
            "hint: the last lines of the server are above; run the same command again with `--resume`"
        )

    if served is None or not served.has_processes:
        yield 0.0
        return
    with served.calling_on_death(abort):
        yield _HOLD_FAILURES_S
