# SPDX-License-Identifier: Apache-2.0
"""llama.cpp in this process: one loaded model, and the calls that it takes.

The engine works in threads of its own, outside Python. It is spoken to through its native API on a loopback port that
only holders of a random key may use, because that API alone takes prompts as token ids, gives the ids it generates, and
stops generating when a caller hangs up. Who may call when is decided in `gate`, what is asked for in `chat`.

Servers that ask for equal settings share one engine: it is loaded in the background and freed by the last of them.
"""

import atexit
import contextlib
import contextvars
import http.client
import importlib.util
import logging
import os
import secrets
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import orjson

from nemo_gym.errors import ConfigError, GymError
from nemo_gym.server_utils import get_global_aiohttp_client
from responses_api_models.local_model.gate import Gate

LOG = logging.getLogger(__name__)
_UNBOUNDED = aiohttp.ClientTimeout(total=None)  # deadlines are set around whole requests
_EVENT = b"data: "


@dataclass(frozen=True)
class EngineSettings:
    """What an engine is made from; equal settings can share one."""

    model_path: Path
    context_length: int
    slots: int
    threads: int
    batch_size: int


@dataclass
class Generated:
    """What the engine made of one prompt."""

    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    """May lack tokens that are only part of a character; `count` says how many there were."""
    scores: list[dict[str, Any]] = field(default_factory=list)
    """Log-probs in order, each with the `id` of its token, if they were asked for."""
    count: int = 0
    cached_count: int = 0
    """Tokens of the prompt that were known from an earlier one."""
    ended_by: str = ""
    """`eos`, `word` (a stop string) or `limit`."""
    stop_string: str | None = None


class ModelNotLoaded(GymError):
    """There is no model to answer with."""


class EngineRefusal(Exception):
    """The engine did not take a request; `kind` is its own word for why."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(status, kind, message)
        self.status = status
        self.kind = kind
        self.message = message

    def __str__(self) -> str:
        return f"llama.cpp answered {self.status} ({self.kind}): {self.message}"


def require_engine() -> None:
    """Raise if llama.cpp is not installed."""
    if importlib.util.find_spec("xllamacpp") is None:
        raise ConfigError(
            "the model server 'local_model' needs the package 'xllamacpp' (llama.cpp), which is not installed: it "
            "comes with the extra 'local' of nemo-gym.\n"
            f"hint: {sys.executable} -m uv pip install --python {sys.executable} xllamacpp"
        )


def default_threads() -> int:
    """Return one less than the processors this process may use.

    The threads of llama.cpp spin while they wait for each other. With as many as there are processors, any other work
    on the machine, our own included, makes generation many times slower.
    """
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(usable, _read_cpu_quota() or usable) - 1)


def _read_cpu_quota() -> int | None:
    """Return the processors that a container may use."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        return max(1, int(quota) // int(period))
    except (OSError, ValueError):  # not Linux, or no limit
        return None


class Engine:
    """A loaded model."""

    def __init__(self, settings: EngineSettings) -> None:
        """Load the model: about a second of work for a small one, all of it outside Python."""
        self.settings = settings
        self.gate = Gate(settings.slots)
        self.supported_grammars: dict[str, bool] = {}
        self.foreign_ends: list[int] | None = None
        """Tokens that end a reply otherwise than the chat template does, once they are known."""
        self._key = secrets.token_urlsafe(32)
        self._server: Any = _load_model(settings, self._key)
        self._url = self._server.listening_address
        self._wait_for_loop()

    def close(self) -> None:
        """Stop the engine's threads and free the model."""
        self._server = None

    def _wait_for_loop(self) -> None:
        """Wait for one answer from the engine's loop: an engine that is stopped before its loop runs hangs forever."""
        address = urlsplit(self._url)
        with contextlib.closing(http.client.HTTPConnection(address.hostname or "", address.port)) as connection:
            connection.request("GET", "/slots", headers=self._build_headers())
            connection.getresponse().read()

    async def tokenize_prompt(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Return the token ids of `messages` in the model's own chat template, up to where its reply begins."""
        return await self.tokenize(await self.write_prompt(messages), parse_special=True)

    async def write_prompt(self, messages: Sequence[Mapping[str, str]]) -> str:
        """Return `messages` in the model's own chat template, up to where its reply begins."""
        prompt: str = (await self.call("/apply-template", {"messages": messages}))["prompt"]
        return prompt

    async def tokenize(self, text: str, *, parse_special: bool = False, add_special: bool | None = None) -> list[int]:
        """Return `text` as tokens; with `parse_special` the names of special tokens in it mean these.

        `add_special` puts the model's first token before it; None: with `parse_special`.
        """
        begins = parse_special if add_special is None else add_special
        asked = {"content": text, "add_special": begins, "parse_special": parse_special}
        ids: list[int] = (await self.call("/tokenize", asked))["tokens"]
        return ids

    async def detokenize(self, ids: Sequence[int]) -> str:
        """Return the text of `ids`, with the names of special tokens."""
        text: str = (await self.call("/detokenize", {"tokens": ids}))["content"]
        return text

    async def call(self, path: str, body: Mapping[str, Any]) -> Any:
        """Call an endpoint of the engine and return its answer."""
        async with self._post(path, body) as reply:
            content = await reply.read()
            if reply.status != 200:
                raise _read_refusal(reply.status, content)
            return orjson.loads(content)

    async def generate(self, body: Mapping[str, Any]) -> Generated:
        """Generate as `body` says. A caller that is cancelled hangs up, which stops the engine at its next token."""
        made = Generated()
        parts = list[str]()
        async with self._post("/completion", {**body, "stream": True, "return_tokens": True}) as reply:
            if reply.status != 200:
                raise _read_refusal(reply.status, await reply.read())
            async for line in reply.content:
                if line.startswith(_EVENT):
                    event = orjson.loads(line[len(_EVENT) :])
                    if "error" in event:
                        raise _read_refusal(500, line[len(_EVENT) :])
                    parts.append(event["content"])
                    _add_event(made, event)
        made.text = "".join(parts)
        if not made.ended_by:
            raise EngineRefusal(500, "cut_short", "the reply of the engine has no end")
        return made

    async def generate_whole(self, body: Mapping[str, Any]) -> Generated:
        """As `generate`, with every token, part of a character or not; it cannot be stopped half-way."""
        event = await self.call("/completion", {**body, "stream": False, "return_tokens": True})
        made = Generated(text=event["content"])
        _add_event(made, event)
        return made

    async def get_vocabulary_size(self) -> int:
        """Return how many tokens the model knows."""
        size: int = (await self._get_meta())["n_vocab"]
        return size

    async def get_parameter_count(self) -> int:
        """Return how many parameters the model has."""
        count: int = (await self._get_meta())["n_params"]
        return count

    async def _get_meta(self) -> dict[str, Any]:
        meta: dict[str, Any] = (await self._get("/v1/models"))["data"][0]["meta"]
        return meta

    async def _get(self, path: str) -> Any:
        async with get_global_aiohttp_client().get(f"{self._url}{path}", headers=self._build_headers()) as reply:
            return orjson.loads(await reply.read())

    def _post(self, path: str, body: Mapping[str, Any]) -> Any:
        session = get_global_aiohttp_client()
        data = orjson.dumps(body)
        return session.post(f"{self._url}{path}", data=data, headers=self._build_headers(), timeout=_UNBOUNDED)

    def _build_headers(self) -> dict[str, str]:
        # A connection per call: the engine drops idle ones at moments that nobody can foresee.
        return {"authorization": f"Bearer {self._key}", "content-type": "application/json", "connection": "close"}


def _load_model(settings: EngineSettings, key: str) -> Any:
    require_engine()
    import xllamacpp  # type: ignore[import-untyped]  # llama.cpp itself: loaded where a model is

    params = xllamacpp.CommonParams()
    params.model.path = str(settings.model_path)
    params.n_ctx = settings.context_length * settings.slots
    params.n_parallel = settings.slots
    params.n_batch = params.n_ubatch = settings.batch_size
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings.threads
    # With flash attention a sequence's logits are the same whatever else is in the batch.
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_ENABLED
    params.cache_ram_mib = 0  # prompts are kept in their slots; a second copy of up to 8 GB is not
    params.n_threads_http = 2 * settings.slots + 4
    params.fit_params = False  # everything is said here, and trying what fits reads the model twice
    params.api_keys = [key]
    params.ui = False
    params.verbosity = -1
    try:
        return xllamacpp.Server(params)
    except RuntimeError as error:
        raise ConfigError(
            f"llama.cpp could not load the model {str(settings.model_path)!r}: {error}\n"
            "hint: check that the file is a complete GGUF of a text model, and that its context fits into memory "
            f"(context_length {settings.context_length} for each of {settings.slots} slots)"
        ) from error


def _add_event(made: Generated, event: Mapping[str, Any]) -> None:
    made.token_ids += event["tokens"]
    made.scores += event.get("completion_probabilities") or ()
    if event["stop"]:
        made.count = event["tokens_predicted"]
        made.ended_by = event["stop_type"]
        made.stop_string = event["stopping_word"] or None
        made.cached_count = event["timings"]["cache_n"]


def _read_refusal(status: int, content: bytes) -> EngineRefusal:
    try:
        error = orjson.loads(content)["error"]
        return EngineRefusal(error.get("code", status), error.get("type", "error"), error.get("message", ""))
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return EngineRefusal(status, "error", content[:500].decode("utf-8", errors="replace"))


# --- engines that are shared ------------------------------------------------------------------------------------------

Prepare = Callable[[threading.Event], None]

_LOCK = threading.Lock()
_ENGINES: dict[EngineSettings, "SharedEngine"] = {}


class SharedEngine:
    """An engine that is loaded or on its way; `loaded` gives it, or raises why it could not be loaded."""

    def __init__(self, settings: EngineSettings, prepare: Prepare) -> None:
        self.settings = settings
        self.users = 0
        self.loaded: Future[Engine] = Future()
        self._stop = threading.Event()
        context = contextvars.copy_context()  # what it logs is the output of the server that asked first
        self._thread = threading.Thread(
            target=context.run, args=(self._load_model, prepare), name=f"load {settings.model_path.name}", daemon=True
        )
        self._thread.start()

    def _load_model(self, prepare: Prepare) -> None:
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


def acquire_engine(settings: EngineSettings, prepare: Prepare) -> SharedEngine:
    """Return the engine with `settings`. Before a new one is loaded `prepare` runs, and ends early on its event."""
    with _LOCK:
        shared = _ENGINES.get(settings)
        if shared is None or (shared.loaded.done() and shared.loaded.exception() is not None):
            shared = _ENGINES[settings] = SharedEngine(settings, prepare)
        shared.users += 1
        return shared


def release_engine(shared: SharedEngine) -> None:
    """Give the engine back. Blocks while the last user's is freed."""
    with _LOCK:
        shared.users -= 1
        if shared.users > 0:
            return
        if _ENGINES.get(shared.settings) is shared:
            del _ENGINES[shared.settings]
    shared.close()


@atexit.register
def _close_all() -> None:
    """Free what nobody gave back: it must not be at work when the interpreter goes."""
    with _LOCK:
        left = list(_ENGINES.values())
        _ENGINES.clear()
    for shared in left:
        shared.close()
