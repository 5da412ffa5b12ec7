# SPDX-License-Identifier: Apache-2.0
"""A model of the transformers library in this process: one that a trainer has lent, or one from a folder or a file.

Requests become batches (`batches.py`), batches become tokens (`engine.py`). Messages and tools become text, and a
reply becomes a chat completion, as in `local_model`; there is no grammar, so nothing is enforced.
"""

import asyncio
import copy
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse
from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, PrivateAttr

from nemo_gym import _resolve_under_cwd_or_install
from nemo_gym.base_responses_api_model import BaseResponsesAPIModelConfig, Body, SimpleResponsesAPIModel
from nemo_gym.config_types import ConfigError
from nemo_gym.integrations.lent_models import LentModel, find_lent_model
from nemo_gym.openai_utils import (
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
)
from nemo_gym.responses_converter import ResponsesConverter
from responses_api_models.local_model import chat
from responses_api_models.local_model.engine import Generated
from responses_api_models.local_model.weights import SMOLLM2
from responses_api_models.openai_model.endpoint import apply_overrides, get_set_fields
from responses_api_models.transformers_model.batches import Batcher
from responses_api_models.transformers_model.engine import Generation, generate
from responses_api_models.transformers_model.weights import load_pretrained, load_smollm2

_BAD_REQUEST = 400
_NOT_READY = 503


class TransformersModelConfig(BaseResponsesAPIModelConfig):
    """Config of a transformers model in this process."""

    lent_model: str | None = None
    """The name under which a program in this process has lent its model: `nemo_gym.integrations.lent_models`."""
    model_path: str | None = None
    """A folder that `save_pretrained` wrote, or a GGUF file; None: SmolLM2-135M-Instruct, fetched on first use."""
    model: str | None = None
    """The model's name in replies; None: that of its folder or file, or the one it was lent under."""
    run_once: bool = True
    """One model for all workers of `gym eval run --workers`: each copy would take its own memory, and all cores."""
    context_length: PositiveInt = 2048
    """Maximum tokens of prompt and reply together."""
    batch_size: PositiveInt = 64
    """Maximum replies that are generated at once."""
    batch_wait_s: NonNegativeFloat = 0.02
    """How long the first request of a batch waits for others."""
    temperature: NonNegativeFloat = 1.0
    """Used if the request sets none; 0: always the likeliest token."""
    top_p: PositiveFloat = 1.0
    """Used if the request sets none; below 1: sample from the likeliest tokens whose probabilities sum to this."""
    top_k: NonNegativeInt = 0
    """Sample only from this many of the likeliest tokens; 0: from all."""
    seed: int | None = None
    """Makes runs repeatable: the nth request with the same prompt gets the same seed in every run. None: random."""
    max_output_tokens: PositiveInt | None = None
    """Maximum tokens of a reply if the request sets none; None: as many as the context allows."""
    request_timeout_s: PositiveFloat = 600.0
    """Maximum time per request, waiting included."""
    return_token_id_information: bool = False
    """Add token ids and log-probs to replies, for training."""
    uses_reasoning_parser: bool = True
    """`<think>` blocks in replies become reasoning items. Otherwise they stay in the text."""
    extra_body: dict[str, Any] | None = None
    """Fields added to every request, unless it or its `metadata.extra_body` (JSON text) sets them."""


class TransformersModel(SimpleResponsesAPIModel):
    """Answers with a transformers model in this process."""

    is_chat_only = True

    config: TransformersModelConfig
    _converter: ResponsesConverter = PrivateAttr()
    _seeds: chat.Seeds = PrivateAttr()
    _loaded: "asyncio.Future[LentModel] | None" = PrivateAttr(default=None)
    _batcher: Batcher | None = PrivateAttr(default=None)

    def model_post_init(self, context: Any) -> None:
        config = self.config
        if config.lent_model is not None and config.model_path is not None:
            raise ConfigError(
                f"the model server {config.name!r} has both a lent_model and a model_path.\nhint: keep one of them"
            )
        if config.lent_model is not None:
            find_lent_model(config.lent_model)
        elif config.model_path is not None and not Path(self._resolve_model_path()).exists():
            raise ConfigError(
                f"the model server {config.name!r} has the model_path {config.model_path!r}, but there is nothing.\n"
                "hint: give a folder that `save_pretrained` wrote or a GGUF file, or leave model_path out to use "
                "SmolLM2-135M-Instruct"
            )
        self._seeds = chat.Seeds(config.seed)
        self._converter = ResponsesConverter(
            return_token_id_information=config.return_token_id_information,
            uses_reasoning_parser=config.uses_reasoning_parser,
        )
        return super().model_post_init(context)

    def _resolve_model_path(self) -> Path:
        return Path(_resolve_under_cwd_or_install(self.config.model_path or ""))

    @property
    def model_name(self) -> str:
        """The model's name in replies."""
        config = self.config
        if config.model or config.lent_model:
            return str(config.model or config.lent_model)
        return SMOLLM2.name if config.model_path is None else self._resolve_model_path().stem

    # --- start and end ------------------------------------------------------------------------------------------------

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.get("/health")(self.health)
        inner = app.router.lifespan_context

        @asynccontextmanager
        async def with_model(app: FastAPI) -> AsyncIterator[Any]:
            loading = asyncio.get_running_loop().run_in_executor(None, self._load)
            loading.add_done_callback(lambda done: done.cancelled() or done.exception())  # callers get it instead
            self._loaded = loading
            self._batcher = Batcher(self._run_batch, most=self.config.batch_size, wait_s=self.config.batch_wait_s)
            self._batcher.start()
            try:
                async with inner(app) as state:
                    yield state
            finally:
                await self._batcher.stop()
                self._loaded = None

        app.router.lifespan_context = with_model
        return app

    def _load(self) -> LentModel:
        """Return the model: the lent one, or one that is loaded. Runs in a thread."""
        config = self.config
        if config.lent_model is not None:
            return find_lent_model(config.lent_model)
        if config.model_path is not None:
            return LentModel(*load_pretrained(self._resolve_model_path()))
        settings: Any = getattr(self.server_client, "global_config_dict", None) or {}
        return LentModel(*load_smollm2(settings.get("cache_dir")))

    async def _wait_for_model(self) -> LentModel:
        if self._loaded is None:
            raise RuntimeError(f"the model server {self.config.name!r} is not running: its app was not started")
        return await asyncio.shield(self._loaded)

    async def health(self) -> JSONResponse:
        """`GET /health`: whether the model is loaded, and how many requests wait."""
        if self._loaded is None or not self._loaded.done():
            return JSONResponse({"status": "loading", "model": self.model_name}, _NOT_READY)
        if error := self._loaded.exception():
            return JSONResponse({"status": "failed", "model": self.model_name, "error": str(error)}, _NOT_READY)
        waiting = self._batcher.waiting if self._batcher is not None else 0
        return JSONResponse({"status": "ok", "model": self.model_name, "waiting": waiting})

    def _describe_model(self) -> dict[str, Any]:
        model = {**super()._describe_model(), "id": self.model_name, "display_name": self.model_name}
        return {**model, "owned_by": "local", "context_length": self.config.context_length}

    async def count_tokens(self, request: Request, params: NeMoGymResponseCreateParamsNonStreaming) -> int:
        lent = await self._wait_for_model()
        chat_params = self._converter.responses_to_chat_completion_create_params(params)
        messages = chat.read_ask(get_set_fields(chat_params), {"temperature": 0.0, "top_p": 1.0, "top_k": 0}).messages
        return len(
            lent.tokenizer.apply_chat_template(messages, tokenize=True, add_generation_prompt=True, return_dict=False)
        )

    # --- requests -----------------------------------------------------------------------------------------------------

    async def responses(  # type: ignore[override]  # arguments are found by name
        self, body: NeMoGymResponseCreateParamsNonStreaming = Body()
    ) -> NeMoGymResponse:
        body = body.model_copy(update={"model": self.model_name})
        try:
            params = self._converter.responses_to_chat_completion_create_params(body)
        except (NotImplementedError, ValueError) as error:
            raise HTTPException(_BAD_REQUEST, str(error)) from error
        return self._converter.chat_completion_to_response(body, await self.chat_completions(params))

    async def chat_completions(  # type: ignore[override]  # arguments are found by name
        self, body: NeMoGymChatCompletionCreateParamsNonStreaming = Body()
    ) -> NeMoGymChatCompletion:
        try:
            params = apply_overrides(get_set_fields(body), self.config.extra_body, None)
        except ValueError as error:
            raise HTTPException(_BAD_REQUEST, str(error)) from error
        config = self.config
        defaults = {"temperature": config.temperature, "top_p": config.top_p, "top_k": config.top_k}
        ask = chat.read_ask(params, defaults)
        if (ask.schemas and not ask.box.schemas) or ask.box.mode == "required" or ask.top_logprobs is not None:
            raise HTTPException(
                _BAD_REQUEST,
                "this model server has no grammar and gives no top_logprobs: it cannot enforce a response format or a "
                "tool call. hint: use `local_model`, or ask in words",
            )
        try:
            async with asyncio.timeout(config.request_timeout_s):
                return NeMoGymChatCompletion.model_validate(await self._answer(ask))
        except TimeoutError as error:
            raise TimeoutError(
                f"the model server {config.name!r} did not answer within request_timeout_s = "
                f"{config.request_timeout_s:g} s"
            ) from error

    async def _answer(self, ask: chat.Ask) -> dict[str, Any]:
        lent = await self._wait_for_model()
        assert self._batcher is not None
        prompt = lent.tokenizer.apply_chat_template(
            ask.messages, tokenize=True, add_generation_prompt=True, return_dict=False
        )
        room = self.config.context_length - len(prompt)
        if room <= 0:
            cut_off = [chat.build_cut_off_choice(number) for number in range(ask.choices)]
            return chat.build_completion(self.model_name, cut_off, len(prompt), [])
        wanted = ask.max_tokens if ask.max_tokens is not None else self.config.max_output_tokens
        first = ask.seed if ask.seed is not None else self._seeds.draw(prompt)
        generations = [
            Generation(
                prompt_ids=prompt,
                max_new_tokens=min(wanted, room) if wanted is not None else room,
                seed=first + number,
                temperature=ask.sampling["temperature"],
                top_p=ask.sampling["top_p"],
                top_k=ask.sampling["top_k"],
                stop=ask.sampling["stop"],
            )
            for number in range(ask.choices)
        ]
        await asyncio.gather(*map(self._batcher.generate, generations))
        made = [_to_generated(one, lent.tokenizer) for one in generations]
        choices = [
            chat.build_choice(number, text, ask, self._write_token_fields(one))
            for number, (one, text) in enumerate(zip(generations, made, strict=True))
        ]
        return chat.build_completion(self.model_name, choices, len(prompt), made)

    def _run_batch(self, batch: Sequence[Generation]) -> None:
        """Generate. Runs in the batcher's thread."""
        assert self._loaded is not None
        lent = self._loaded.result()
        # Two threads must not use a tokenizer at once, and the event loop writes prompts with it meanwhile.
        own = copy.deepcopy(lent.tokenizer) if any(one.stop for one in batch) else lent.tokenizer
        with lent.lock:
            generate(lent.model, find_end_ids(lent), own.decode, batch)

    def _write_token_fields(self, one: Generation) -> dict[str, Any]:
        if not self.config.return_token_id_information:
            return {}
        return {
            "prompt_token_ids": list(one.prompt_ids),
            "generation_token_ids": one.token_ids,
            "generation_log_probs": one.log_probs,
        }


def find_end_ids(lent: LentModel) -> list[int]:
    """Return the tokens that end a reply."""
    ids = lent.model.generation_config.eos_token_id
    known = ids if isinstance(ids, list) else [ids]
    return [one for one in {*known, lent.tokenizer.eos_token_id} if one is not None]


def _to_generated(one: Generation, tokenizer: Any) -> Generated:
    text: str = tokenizer.decode(one.token_ids, skip_special_tokens=True)
    if one.stop_string is not None:
        text = text.partition(one.stop_string)[0]
    return Generated(
        text=text,
        token_ids=one.token_ids,
        count=len(one.token_ids),
        ended_by=one.ended_by,
        stop_string=one.stop_string,
    )


if __name__ == "__main__":
    TransformersModel.run_webserver()
