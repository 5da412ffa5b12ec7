# SPDX-License-Identifier: Apache-2.0
"""What a run prints when it is stopped, or when something holds it up."""

import asyncio
import faulthandler
import os
import signal
import threading

import pytest

from nemo_gym._rollouts.control import RunControl
from nemo_gym.cli.eval.interrupts import RunInterrupts


@pytest.fixture
def armed(monkeypatch) -> threading.Event:
    """Set once all threads are to be printed later."""
    event = threading.Event()
    monkeypatch.setattr(faulthandler, "dump_traceback_later", lambda seconds, **_: event.set())
    return event


def test_stopping_while_a_model_loads_is_one_sentence_without_a_dump_of_threads(armed, capsys):
    async def load():
        with RunInterrupts(RunControl(), None).catch():
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.Event().wait()

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(load())
    assert capsys.readouterr().err == "\nstopped before any rollout ran\n"
    assert not armed.is_set()


def test_while_rollouts_run_what_holds_the_interpreter_is_told(armed):
    async def run():
        interrupts = RunInterrupts(RunControl(), None)
        with interrupts.catch(), interrupts.guard_play():
            assert await asyncio.to_thread(armed.wait, 60)

    asyncio.run(run())
