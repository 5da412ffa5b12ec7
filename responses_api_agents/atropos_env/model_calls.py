# SPDX-License-Identifier: Apache-2.0
"""Route the library's model calls to the model of the rollout that makes them.

As in the library, all rollouts share one environment object and its `server`. A context variable, which tasks inherit,
says which rollout a call belongs to.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NoReturn

import openai
from atroposlib.envs.server_handling.managed_server import ManagedServer, SequenceNode
from atroposlib.envs.server_handling.server_baseline import APIServer
from atroposlib.envs.server_handling.server_manager import ServerManager
from openai.types.chat import ChatCompletion

from nemo_gym.adapters.rollout_runner import ModelEndpoint
from nemo_gym.errors import RolloutFailure

_RETRIES = 2


@dataclass
class RolloutCalls:
    """The model calls of one rollout."""

    client: openai.AsyncOpenAI
    model: str
    sampling: dict[str, Any]
    """The row's sampling settings, which override the environment's."""
    failed: openai.OpenAIError | None = None
    """The error of a call that the model did not answer; a score does not count after that."""


CURRENT: ContextVar[RolloutCalls] = ContextVar("atropos_rollout")


def make_client(timeout_s: float) -> openai.AsyncOpenAI:
    """Return a client whose connections all rollouts share."""
    http = openai.DefaultAsyncHttpxClient(limits=openai.DEFAULT_CONNECTION_LIMITS, trust_env=False)
    return openai.AsyncOpenAI(
        base_url="http://model.invalid/v1", api_key="-", timeout=timeout_s, max_retries=_RETRIES, http_client=http
    )


def begin_calls(client: openai.AsyncOpenAI, model: ModelEndpoint, sampling: dict[str, Any]) -> RolloutCalls:
    """Send the calls of this asyncio task, and of those it starts, to `model`."""
    calls = RolloutCalls(client.with_options(base_url=model.base_url, api_key=model.api_key), model.model, sampling)
    CURRENT.set(calls)
    return calls


class RolloutServer(APIServer):
    """A library server that calls the rollout's model.

    It has no queue and none of the library's nested retries: the run limits the number of concurrent rollouts, and the
    client retries what can be retried.
    """

    async def chat_completion(self, **kwargs: Any) -> ChatCompletion:
        """Return a chat completion with `n` choices, each from a separate call."""
        kwargs = self._inject_reasoning_kwargs(kwargs)
        kwargs.pop("split", None)
        return await self._chat_completion_wrapper(**kwargs)

    async def _chat_completion_wrapper(self, **kwargs: Any) -> ChatCompletion:
        calls = CURRENT.get(None)
        if calls is None:
            raise RolloutFailure(
                "agent",
                "the environment called its model outside a rollout, such as in `setup`, where there is no model.\n"
                "hint: call it from `collect_trajectory` or `collect_trajectories`",
            )
        if "max_tokens" in calls.sampling:
            kwargs.pop("max_completion_tokens", None)
        count = kwargs.pop("n", None) or 1
        request = {**kwargs, **calls.sampling, "model": calls.model}
        try:
            answers = await asyncio.gather(*(calls.client.chat.completions.create(**request) for _ in range(count)))
        except openai.BadRequestError:
            raise  # such as a prompt that is too long, which an environment may handle
        except openai.OpenAIError as error:
            calls.failed = error
            raise
        merged: ChatCompletion = answers[0]
        merged.choices = [choice for answer in answers for choice in answer.choices]
        return merged

    async def completion(self, **kwargs: Any) -> NoReturn:
        """Refuse: model servers do not complete plain text."""
        _refuse("completions of a text (`server.completion`)")

    async def tokens_and_logprobs_completion(self, **kwargs: Any) -> NoReturn:
        """Refuse."""
        _refuse("completions of token ids (`completion` of a managed server)")

    async def get_logprobs(self, **kwargs: Any) -> NoReturn:
        """Refuse."""
        _refuse("log-probs of a prompt (`get_logprobs`)")

    async def check_server_status_task(self, chat_completion: bool = True) -> None:
        """Do nothing: a model that is down shows when it is called."""

    async def _completion_wrapper(self, **kwargs: Any) -> NoReturn:
        await self.completion(**kwargs)

    async def _tokens_and_logprobs_completion_wrapper(self, **kwargs: Any) -> NoReturn:
        await self.tokens_and_logprobs_completion(**kwargs)


class ChatManagedServer(ManagedServer):
    """The library's tracker of token sequences, on top of chat completions.

    The tokens come from the environment's tokenizer, and the log-probs are 1.0, the library's mark for unknown ones.
    The rollout's recorded calls have what the model actually read and wrote.
    """

    async def chat_completion(self, **kwargs: Any) -> ChatCompletion:
        """Call the model and track what it said."""
        prompt = self._convert_messages_to_prompt(kwargs["messages"])
        extended = self._find_extending_node(prompt)
        prompt_tokens = self._compute_input_ids(prompt, extended)
        answer = await self.server.chat_completion(**kwargs)
        for choice in answer.choices:
            text = choice.message.content or ""
            tokens = self.tokenizer.encode(text, add_special_tokens=False)
            node = self._create_sequence_node(
                prompt, None, prompt_tokens, tokens, [], text, choice.finish_reason, extended
            )
            self._store_node(node, extended)
        return answer

    def _store_node(self, node: SequenceNode, extended: SequenceNode | None) -> None:
        for index, known in enumerate(self.current_nodes):
            if known is extended:
                self.current_nodes[index] = node
                return
        self.current_nodes.append(node)


def replace_managed_server(manager: ServerManager, tokenizer: Any) -> None:
    """Make the manager's `managed_server` track chat completions."""
    own_tokenizer = tokenizer

    @asynccontextmanager
    async def managed_server(
        tokenizer: Any = None, base_url: str | None = None, preserve_think_blocks: bool = False
    ) -> AsyncIterator[ChatManagedServer]:
        managed = ChatManagedServer(
            manager.servers[0], tokenizer or own_tokenizer, preserve_think_blocks=preserve_think_blocks
        )
        try:
            yield managed
        finally:
            managed.reset()

    manager.managed_server = managed_server


def _refuse(what: str) -> NoReturn:
    raise RolloutFailure(
        "agent",
        f"the environment asks for {what}, which model servers do not support.\n"
        "hint: it must call `chat_completion`, of its server or of a managed server",
    )
