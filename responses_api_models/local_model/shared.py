# SPDX-License-Identifier: Apache-2.0
"""Engines of this process: loaded in the background, shared by all who ask for equal settings, freed by the last."""

import atexit
import contextvars
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future

from responses_api_models.local_model.engine import Engine, EngineSettings

LOG = logging.getLogger(__name__)
Prepare = Callable[[threading.Event], None]

_lock = threading.Lock()
_engines: dict[EngineSettings, "SharedEngine"] = {}


class SharedEngine:
    """An engine that is loaded or on its way; `loaded` gives it, or says why there is none."""

    def __init__(self, settings: EngineSettings, prepare: Prepare) -> None:
        self.settings = settings
        self.users = 0
        self.loaded: Future[Engine] = Future()
        self._stop = threading.Event()
        context = contextvars.copy_context()  # what it logs is the output of the server that asked first
        self._thread = threading.Thread(
            target=context.run, args=(self._load, prepare), name=f"load {settings.model_path.name}", daemon=True
        )
        self._thread.start()

    def _load(self, prepare: Prepare) -> None:
        try:
            prepare(self._stop)
            self.loaded.set_result(Engine(self.settings))
        except Exception as error:
            if not self._stop.is_set():
                LOG.error("the model %s could not be loaded: %s", self.settings.model_path.name, error)
            self.loaded.set_exception(error)

    def close(self) -> None:
        """Free the engine, as soon as it is loaded if it is not yet."""
        self._stop.set()
        self._thread.join()
        if self.loaded.exception() is None:
            self.loaded.result().close()


def acquire(settings: EngineSettings, prepare: Prepare) -> SharedEngine:
    """Return the engine with `settings`. Before a new one is loaded `prepare` runs, and ends early on its event."""
    with _lock:
        shared = _engines.get(settings)
        if shared is None or (shared.loaded.done() and shared.loaded.exception() is not None):
            shared = _engines[settings] = SharedEngine(settings, prepare)
        shared.users += 1
        return shared


def release(shared: SharedEngine) -> None:
    """Give the engine back. Blocks while the last user's is freed."""
    with _lock:
        shared.users -= 1
        if shared.users > 0:
            return
        if _engines.get(shared.settings) is shared:
            del _engines[shared.settings]
    shared.close()


@atexit.register
def _close_all() -> None:
    """Free what nobody gave back: it must not be at work when the interpreter goes."""
    with _lock:
        left = list(_engines.values())
        _engines.clear()
    for shared in left:
        shared.close()
