# SPDX-License-Identifier: Apache-2.0
"""A language model inside this process, without key, network or GPU: llama.cpp and any GGUF file.

This module has the order of the steps of a request; the modules next to it implement them. The default model is
SmolLM2-135M-Instruct, small enough for any machine and too small for hard tasks.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Event
from typing import Any, TypeVar

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, PrivateAttr

from nemo_gym import _resolve_under_cwd_or_install
from nemo_gym.base_responses_api_model import BaseResponsesAPIModelConfig, Body, SimpleResponsesAPIModel
from nemo_gym.config_types import ConfigError
from nemo_gym.openai_utils import (
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
)
from nemo_gym.responses_converter import ResponsesConverter
from responses_api_models.local_model import chat, exact, grammars
from responses_api_models.local_model.engine import (
    Engine,
    EngineRefusal,
    EngineSettings,
    Generated,
    ModelNotLoaded,
    SharedEngine,
    acquire_engine,
    default_threads,
    release_engine,
    require_engine,
)
from responses_api_models.local_model.forecast import ExpectedWork, Forecast, ForecastRequest, measure_speed
from responses_api_models.local_model.gate import GateFull
from responses_api_models.local_model.weights import SMOLLM2, ensure_weights, weights_folder
from responses_api_models.openai_model.endpoint import apply_overrides, get_set_fields
from responses_api_models.openai_model.tokens import DetokenizeRequest

T = TypeVar("T")
_BAD_REQUEST = 400
_TOO_MANY = 429
_HUNG_UP = 499
_NOT_READY = 503


class SamplingDefaults(BaseModel, extra="forbid"):
    """Sampling defaults, for requests that do not set them."""

    temperature: NonNegativeFloat = 0.7
    top_p: PositiveFloat = 0.95
    top_k: NonNegativeInt = 40
    """Sample only from this many of the likeliest tokens; 0: from all. Ignored for requests that set top_p."""
    min_p: NonNegativeFloat = 0.0
    """Leave out tokens less likely than this share of the likeliest one. Ignored for requests that set top_p."""


class LocalModelConfig(BaseResponsesAPIModelConfig):
    """Config of a model in this process."""

    model_path: str | None = None
    """A GGUF file; None: the weights of SmolLM2-135M-Instruct, fetched on first use."""
    weights_dir: str | None = None
    """Where the default weights are kept; None: in the cache folder."""
    model: str | None = None
    """The model's name in replies; None: that of its file."""
    run_once: bool = True
    """One model for all workers of `gym eval run --workers`: each copy would take its own memory, and all cores."""
    context_length: PositiveInt = 2048
    """Maximum tokens of prompt and reply together, per slot."""
    slots: PositiveInt = 4
    """Requests that run at once. Memory grows with slots and context length."""
    threads: PositiveInt | None = None
    """Threads of llama.cpp; None: one fewer than there are CPUs."""
    batch_size: PositiveInt = 256
    """Prompt tokens that are read in one step; other requests and cancellations wait that long."""
    sampling: SamplingDefaults = SamplingDefaults()
    """Sampling defaults: `temperature`, `top_p` and the others of llama.cpp."""
    seed: int | None = None
    """Makes runs repeatable: the nth request with the same prompt gets the same seed in every run. None: random."""
    max_output_tokens: PositiveInt | None = None
    """Maximum tokens of a reply if the request sets none; None: as many as the context allows."""
    max_queue: NonNegativeInt = 1024
    """Maximum requests that wait for a slot; more are refused with status 429."""
    request_timeout_s: PositiveFloat = 600.0
    """Maximum time per request, waiting included."""
    return_token_id_information: bool = False
    """Add token ids and log-probs to replies, for training."""
    uses_reasoning_parser: bool = True
    """`<think>` blocks in replies become reasoning items. Otherwise they stay in the text."""
    extra_body: dict[str, Any] | None = None
    """Fields added to every request, unless it or its `metadata.extra_body` (JSON text) sets them."""


class LocalModel(SimpleResponsesAPIModel):
    """Answers with a model in this process."""

    is_chat_only = True

    config: LocalModelConfig
    _settings: EngineSettings = PrivateAttr()
    _converter: ResponsesConverter = PrivateAttr()
    _seeds: chat.Seeds = PrivateAttr()
    _engine: SharedEngine | None = PrivateAttr(default=None)

    def model_post_init(self, context: Any) -> None:
        config = self.config
        require_engine()
        self._settings = EngineSettings(
            model_path=self._find_model_file(),
            context_length=config.context_length,
            slots=config.slots,
            threads=config.threads or default_threads(),
            batch_size=config.batch_size,
        )
        self._seeds = chat.Seeds(config.seed)
        self._converter = ResponsesConverter(
            return_token_id_information=config.return_token_id_information,
            uses_reasoning_parser=config.uses_reasoning_parser,
        )
        return super().model_post_init(context)

    def _find_model_file(self) -> Path:
        config = self.config
        if config.model_path is None:
            settings: Any = getattr(self.server_client, "global_config_dict", None) or {}
            folder = Path(config.weights_dir) if config.weights_dir else weights_folder(settings.get("cache_dir"))
            return folder.expanduser().absolute() / SMOLLM2.file_name
        path = _resolve_under_cwd_or_install(config.model_path)
        if not Path(path).is_file():
            raise ConfigError(
                f"the model server {config.name!r} has the model_path {config.model_path!r}, but there is no such "
                "file.\nhint: give the path of a GGUF file, or leave model_path out to use SmolLM2-135M-Instruct"
            )
        return Path(path)

    @property
    def model_name(self) -> str:
        """The model's name in replies."""
        if self.config.model is not None:
            return self.config.model
        return SMOLLM2.name if self.config.model_path is None else self._settings.model_path.stem

    # --- start and end ------------------------------------------------------------------------------------------------

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.get("/health")(self.health)
        app.post("/forecast")(self.forecast)
        app.post("/detokenize")(self.detokenize)
        inner = app.router.lifespan_context

        @asynccontextmanager
        async def with_engine(app: FastAPI) -> AsyncIterator[Any]:
            self._engine = acquire_engine(self._settings, self._prepare)
            try:
                async with inner(app) as state:
                    yield state
            finally:
                engine = self._engine
                self._engine = None
                await asyncio.to_thread(release_engine, engine)

        app.router.lifespan_context = with_engine
        return app

    def _prepare(self, stop: Event) -> None:
        """Fetch the model's file if need be. Runs in a thread, before the engine is loaded."""
        if self.config.model_path is None:
            ensure_weights(self._settings.model_path.parent, stop=stop)

    async def _wait_for_engine(self) -> Engine:
        if self._engine is None:
            raise RuntimeError(f"the model server {self.config.name!r} is not running: its app was not started")
        loaded = self._engine.loaded
        await asyncio.wait((asyncio.wrap_future(loaded),))
        if error := loaded.exception():
            raise ModelNotLoaded(f"the model of {self.config.name!r} could not be loaded: {error}")
        return loaded.result()

    async def health(self) -> JSONResponse:
        """`GET /health`: whether the model is loaded, and how busy it is."""
        loaded = self._engine.loaded if self._engine is not None else None
        if loaded is None or not loaded.done():
            return JSONResponse({"status": "loading", "model": self.model_name}, _NOT_READY)
        if error := loaded.exception():
            return JSONResponse({"status": "failed", "model": self.model_name, "error": str(error)}, _NOT_READY)
        gate = loaded.result().gate
        state = {"slots": gate.places, "running": gate.inside, "waiting": gate.waiting}
        return JSONResponse({"status": "ok", "model": self.model_name, **state})

    def _describe_model(self) -> dict[str, Any]:
        model = {**super()._describe_model(), "id": self.model_name, "display_name": self.model_name}
        return {**model, "owned_by": "local", "context_length": self.config.context_length}

    async def count_tokens(self, request: Request, params: NeMoGymResponseCreateParamsNonStreaming) -> int:
        engine = await self._wait_for_engine()
        chat_params = self._converter.responses_to_chat_completion_create_params(params)
        ask = chat.read_ask(get_set_fields(chat_params), self.config.sampling.model_dump())
        return len(await engine.tokenize_prompt(ask.messages))

    async def forecast(self, body: ForecastRequest = Body()) -> Forecast:
        """`POST /forecast`: how fast the model is here, and how much work the samples are."""
        engine = await self._wait_for_engine()
        read, written = await measure_speed(engine)
        return Forecast(
            model=self.model_name,
            parameters=await engine.get_parameter_count(),
            context_length=self.config.context_length,
            read_tokens_per_s=read,
            written_tokens_per_s=written,
            work=[await self._expect_work(engine, sample) for sample in body.samples],
        )

    async def detokenize(self, body: DetokenizeRequest = Body()) -> dict[str, str]:
        """`POST /detokenize`: the text of token ids, special tokens included."""
        engine = await self._wait_for_engine()
        return {"prompt": await engine.detokenize(body.tokens)}

    async def _expect_work(self, engine: Engine, sample: NeMoGymResponseCreateParamsNonStreaming) -> ExpectedWork:
        params = self._converter.responses_to_chat_completion_create_params(sample)
        ask = chat.read_ask(get_set_fields(params), self.config.sampling.model_dump())
        prompt_tokens = len(await engine.tokenize_prompt(ask.messages))
        room = max(0, self.config.context_length - prompt_tokens)
        limit = ask.max_tokens if ask.max_tokens is not None else self.config.max_output_tokens
        # With tools there may be several replies, which share the context.
        most = room if ask.box.schemas or limit is None else min(room, limit)
        return ExpectedWork(prompt_tokens=min(prompt_tokens, self.config.context_length), most_output_tokens=most)

    # --- requests -----------------------------------------------------------------------------------------------------

    async def responses(  # type: ignore[override]  # arguments are found by name
        self, request: Request, body: NeMoGymResponseCreateParamsNonStreaming = Body()
    ) -> NeMoGymResponse:
        body = body.model_copy(update={"model": self.model_name})
        try:
            params = self._converter.responses_to_chat_completion_create_params(body)
        except (NotImplementedError, ValueError) as error:
            raise HTTPException(_BAD_REQUEST, str(error)) from error
        return self._converter.chat_completion_to_response(body, await self.chat_completions(request, params))

    async def chat_completions(  # type: ignore[override]  # arguments are found by name
        self, request: Request, body: NeMoGymChatCompletionCreateParamsNonStreaming = Body()
    ) -> NeMoGymChatCompletion:
        try:
            params = apply_overrides(get_set_fields(body), self.config.extra_body, None)
        except ValueError as error:
            raise HTTPException(_BAD_REQUEST, str(error)) from error
        ask = chat.read_ask(params, self.config.sampling.model_dump())
        work = self._answer(ask, may_cut_off=not self.is_outside_of_rollouts(request))
        reply = await _run_unless_hung_up(request, self._run_within_deadline(work))
        return NeMoGymChatCompletion.model_validate(reply)

    async def _run_within_deadline(self, work: Awaitable[T]) -> T:
        limit = self.config.request_timeout_s
        try:
            async with asyncio.timeout(limit):
                return await work
        except TimeoutError as error:
            raise TimeoutError(
                f"the model server {self.config.name!r} did not answer within request_timeout_s = {limit:g} s"
            ) from error

    async def _answer(self, ask: chat.Ask, *, may_cut_off: bool) -> dict[str, Any]:
        """Return the reply; a conversation that outgrew the context is cut off, or refused."""
        engine = await self._wait_for_engine()
        try:
            prompt = await engine.tokenize_prompt(ask.messages)
            if self.config.return_token_id_information and ask.tokens_so_far:
                prompt = await exact.keep_tokens(engine, prompt, ask.tokens_so_far)
            room = self.config.context_length - len(prompt)
            if room <= 0 and not may_cut_off:
                raise chat.build_length_refusal(len(prompt), self.config.context_length)
            if room <= 0:
                return chat.build_completion(
                    self.model_name, [chat.build_cut_off_choice(n) for n in range(ask.choices)], len(prompt), []
                )
            first = ask.seed if ask.seed is not None else self._seeds.draw(prompt)
            made = await asyncio.gather(
                *(self._generate(engine, ask, prompt, first + n, room) for n in range(ask.choices))
            )
        except EngineRefusal as refusal:
            if refusal.status == _BAD_REQUEST:
                raise HTTPException(_BAD_REQUEST, str(refusal)) from refusal
            raise
        choices = [chat.build_choice(n, generated, ask, fields) for n, (generated, fields) in enumerate(made)]
        return chat.build_completion(self.model_name, choices, len(prompt), [generated for generated, _ in made])

    async def _generate(
        self, engine: Engine, ask: chat.Ask, prompt: Sequence[int], seed: int, room: int
    ) -> tuple[Generated, Mapping[str, Any]]:
        """Return one reply, and its fields for training."""
        wanted = ask.max_tokens if ask.max_tokens is not None else self.config.max_output_tokens
        with_tokens = self.config.return_token_id_information
        body: dict[str, Any] = {
            **ask.sampling,
            "prompt": prompt,
            "seed": seed,
            "n_predict": min(wanted, room) if wanted is not None else room,
            "n_probs": max(ask.top_logprobs or 0, int(with_tokens or ask.top_logprobs is not None)),
        }
        if ask.grammar is not None:
            body["grammar"] = ask.grammar
        async with self._hold_slot(engine):
            for what, schema in ask.schemas.items():
                await grammars.require_support(engine, schema, what)
            made = await engine.generate(body)
            if not with_tokens:
                return made, {}
            made = await exact.complete_tokens(engine, body, made)
            exactly = made if ask.grammar is None else await exact.drop_foreign_end(engine, made)
            return made, await exact.build_token_fields(engine, prompt, exactly)

    @asynccontextmanager
    async def _hold_slot(self, engine: Engine) -> AsyncIterator[None]:
        try:
            async with engine.gate.hold_place(self.config.max_queue):
                yield
        except GateFull as full:
            raise HTTPException(
                _TOO_MANY,
                f"the model server {self.config.name!r} is overloaded: {engine.gate.places} requests are running and "
                f"{full.waiting} are waiting. hint: ask again later, run fewer rollouts at once, or raise max_queue",
                {"Retry-After": str(round(full.retry_after_s))},
            ) from full


async def _run_unless_hung_up(request: Request, work: Awaitable[T]) -> T:
    """Await `work`, and cancel it when the client hangs up."""
    answer = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_wait_for_hang_up(request))
    try:
        await asyncio.wait((answer, gone), return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            return answer.result()
        raise HTTPException(_HUNG_UP, "the client hung up before the answer was there")
    finally:
        answer.cancel()
        gone.cancel()
        await asyncio.wait((answer, gone))  # so that the slot is free when the caller continues


async def _wait_for_hang_up(request: Request) -> None:
    """Wait until the client is gone. Its request has been read, so nothing else can come from it."""
    if (await request.receive())["type"] != "http.disconnect":
        # The request came from within this process: its caller cancels the handler itself.
        await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    LocalModel.run_webserver()
