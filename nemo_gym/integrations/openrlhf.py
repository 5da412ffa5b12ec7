# SPDX-License-Identifier: Apache-2.0
"""OpenRLHF 0.11: an agent that plays our environments with OpenRLHF's engine, and a reward endpoint in front of them.

The agent is a file of two lines, given to `--train.agent_func_path`:

    from nemo_gym.integrations.openrlhf import build_agent_executor
    AgentExecutor = build_agent_executor(["resources_servers/example_multi_step/configs/example_multi_step.yaml"])

This module can be that file too: then NEMO_GYM_LIVE_CONFIG_PATHS names the configs, separated by commas. The label of a
sample is the row, as JSON text. For rewards alone, beside `gym env start`, and for `--reward.remote_url`:

    python -m nemo_gym.integrations.openrlhf --port 5000

A rollout that fails is played again, `attempts` times in all; if none succeeds, the agent raises, which ends the step.
OpenRLHF takes exactly as many rewards as it asked for samples, so a failed one cannot be left out, and a zero would
move the baseline of its group. The endpoint answers 503 for a batch with an answer that nobody could score.
"""

import argparse
import asyncio
import copy
import functools
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import uvicorn
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, model_validator

from nemo_gym._training.formats.branches import build_openrlhf_response
from nemo_gym.errors import GymError
from nemo_gym.integrations.libraries import import_library
from nemo_gym.integrations.live import (
    DEFAULT_ATTEMPTS,
    LiveGym,
    PlayedRollout,
    read_row,
)
from nemo_gym.integrations.scoring import connect, score_reply
from nemo_gym.server_utils import ServerClient
from nemo_gym.token_engine import ChatFormat, EngineReply, TokenSettings

OPENRLHF_VERSION = "0.11.0"
"""The version of OpenRLHF that this module was made for and tested with."""
CONFIG_PATHS_ENV = "NEMO_GYM_LIVE_CONFIG_PATHS"
_UNAVAILABLE = 503
_SPECIAL_AT_END = re.compile(r"(\s*(<\|[^|<>]*\|>|</s>|<eos>))+\s*$")


# --- the agent --------------------------------------------------------------------------------------------------------


class OpenRLHFEngine:
    """One rollout's calls of OpenRLHF's engine."""

    def __init__(self, llm_engine: Any, sampling_params: Any) -> None:
        self._llm_engine = llm_engine
        self._sampling_params = sampling_params
        self.wants_log_probs = sampling_params.logprobs is not None

    async def generate(self, prompt_ids: list[int], limit: int | None) -> EngineReply:
        """Ask the engine."""
        params = copy.deepcopy(self._sampling_params)
        params.max_tokens = min((each for each in (limit, params.max_tokens) if each is not None), default=None)
        request = await self._llm_engine.generate(prompt_ids, params)
        [output] = request.outputs
        ids = list(output.token_ids)
        log_probs = [0.0] * len(ids)
        if self.wants_log_probs:
            log_probs = [chosen[each].logprob for each, chosen in zip(ids, output.logprobs, strict=True)]
        return EngineReply(ids, log_probs, is_cut_off=output.finish_reason == "length")


def build_response(played: PlayedRollout, *, with_log_probs: bool) -> dict[str, Any]:
    """Return what an AgentExecutor returns for a rollout, save for what it was given."""
    rollout = played.rollout
    response = build_openrlhf_response(rollout, played.branch)
    if not with_log_probs:
        response["rollout_log_probs"] = None
    # OpenRLHF wants the same keys from every sample.
    logs = {"is_cut_off": float(rollout.cut_off is not None), "branches": float(len(rollout.branches))}
    return {**response, "extra_logs": logs}


async def execute(
    gym: LiveGym,
    row: Mapping[str, Any],
    engine: OpenRLHFEngine,
    chat: ChatFormat,
    *,
    max_length: int,
    attempts: int = DEFAULT_ATTEMPTS,
    timeout_s: float | None = None,
) -> dict[str, Any]:
    """Play one row and return what an AgentExecutor returns; RolloutFailure if no attempt succeeds."""
    settings = TokenSettings(engine.generate, chat, max_length=max_length)
    played = await gym.play(row, settings, attempts=attempts, timeout_s=timeout_s)
    return build_response(played, with_log_probs=engine.wants_log_probs)


def build_agent_executor(
    config_paths: Sequence[str],
    overrides: Sequence[str] = (),
    *,
    attempts: int = DEFAULT_ATTEMPTS,
    timeout_s: float | None = None,
    template_settings: Mapping[str, Any] | None = None,
) -> type[Any]:
    """Return the class that an agent file of OpenRLHF has to have; MissingLibrary without OpenRLHF.

    A rollout is played `attempts` times at most, each within `timeout_s`. Calls of tools are read in the form of Hermes
    and Qwen.
    """
    agent = import_library("openrlhf.utils.agent", "AgentExecutorBase", package="openrlhf", version=OPENRLHF_VERSION)

    class AgentExecutor(agent.AgentExecutorBase):  # type: ignore[name-defined]
        """Plays the row that stands in the label of a sample."""

        async def execute(
            self,
            prompt: str,
            label: str,
            sampling_params: Any,
            max_length: int,
            hf_tokenizer: Any,
            llm_engine: Any,
            images: Any = None,
        ) -> dict[str, Any]:
            """Play one sample."""
            row = read_row(label, "the label of a sample")
            gym = await LiveGym.of_process(config_paths, overrides)
            chat = ChatFormat(hf_tokenizer, template_settings=template_settings)
            engine = OpenRLHFEngine(llm_engine, sampling_params)
            bounds: dict[str, Any] = {"max_length": max_length, "attempts": attempts, "timeout_s": timeout_s}
            response = await execute(gym, row, engine, chat, **bounds)
            return {"prompt": prompt, "label": label, "images": images, "mm_train_inputs": None, **response}

    return AgentExecutor


@functools.cache
def _build_own_executor() -> type[Any]:
    return build_agent_executor([path for path in os.environ.get(CONFIG_PATHS_ENV, "").split(",") if path])


def __getattr__(name: str) -> Any:
    if name == "AgentExecutor":
        return _build_own_executor()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


# --- the reward endpoint ----------------------------------------------------------------------------------------------


class ScoreRequest(BaseModel):
    """A batch of answers, as OpenRLHF sends it."""

    query: list[str]
    """Prompts with their answers."""
    prompts: list[str]
    labels: list[str]
    """Rows of ours, as JSON text."""

    @model_validator(mode="after")
    def _require_equal_lengths(self) -> "ScoreRequest":
        lengths = {"query": len(self.query), "prompts": len(self.prompts), "labels": len(self.labels)}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"the three lists must be of equal length, not {lengths}")
        return self


class RewardReply(BaseModel):
    """The rewards of a batch, in its order."""

    rewards: list[float]
    scores: list[float]
    extra_logs: dict[str, list[float]]


def cut_answer(query: str, prompt: str) -> str:
    """Return the answer of a query: what follows the prompt, without special tokens at its end."""
    if not query.startswith(prompt):
        raise ValueError(
            f"a query does not begin with its prompt: {query[:80]!r}, {prompt[:80]!r}\n"
            "hint: the tokenizer changes the text of the prompt; play the rows with the agent instead"
        )
    return _SPECIAL_AT_END.sub("", query[len(prompt) :])


def build_reward_app(head_server: str | None = None) -> FastAPI:
    """Return the reward endpoint, `POST /get_reward`, for the servers of `gym env start`."""
    app = FastAPI(title="NeMo Gym rewards for OpenRLHF")
    clients = list[ServerClient]()

    @app.post("/")
    @app.post("/get_reward")
    async def get_reward(body: ScoreRequest) -> RewardReply:
        """Score every answer; one that cannot be scored fails the batch, because a zero would be false."""
        try:
            rows = [read_row(label, f"labels[{number}]") for number, label in enumerate(body.labels)]
            answers = [cut_answer(query, prompt) for query, prompt in zip(body.query, body.prompts, strict=True)]
        except (GymError, ValueError) as error:
            raise HTTPException(422, str(error)) from error
        try:
            if not clients:
                clients.append(await connect(head_server))
            pairs = zip(rows, answers, strict=True)
            rewards = await asyncio.gather(*(score_reply(clients[0], row, answer) for row, answer in pairs))
        except GymError as error:
            raise HTTPException(_UNAVAILABLE, str(error)) from error
        return RewardReply(rewards=rewards, scores=rewards, extra_logs={})

    return app


def main(arguments: Sequence[str] | None = None) -> None:
    """`python -m nemo_gym.integrations.openrlhf --port 5000`: serve rewards until interrupted."""
    parser = argparse.ArgumentParser(
        prog="python -m nemo_gym.integrations.openrlhf",
        description="Serve rewards of running environments to OpenRLHF.",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=5000, help="port to listen on (default: %(default)s)")
    parser.add_argument("--head-server", help="host:port of the head server; by default that of the config")
    given = parser.parse_args(arguments)
    uvicorn.run(build_reward_app(given.head_server), host=given.host, port=given.port, log_level="info")


if __name__ == "__main__":
    main()
