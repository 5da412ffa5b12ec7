# SPDX-License-Identifier: Apache-2.0
"""How fast the model is here and how much work some requests are, so that a run can say how long it will take.

Measured when somebody asks, with a handful of tokens, because the speed depends on what else the machine does.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, PositiveFloat, PositiveInt

from nemo_gym.openai_utils import NeMoGymResponseCreateParamsNonStreaming
from responses_api_models.local_model.engine import Engine

_PROMPT_TOKENS = 16
_WRITTEN_TOKENS = 4


class ForecastRequest(BaseModel):
    """Requests that stand for those to come."""

    samples: list[NeMoGymResponseCreateParamsNonStreaming]


class ExpectedWork(BaseModel):
    """The work of one request and of those that follow it in the same conversation."""

    prompt_tokens: int
    most_output_tokens: int
    """As many as the request and the context allow."""


class Forecast(BaseModel):
    """What the model is, how fast it is here, and what each of the samples asks of it."""

    model: str
    parameters: PositiveInt
    context_length: PositiveInt
    read_tokens_per_s: PositiveFloat
    written_tokens_per_s: PositiveFloat
    work: list[ExpectedWork]


async def measure_speed(engine: Engine) -> tuple[float, float]:
    """Return how many tokens a second the engine reads and writes with all of its slots at work."""
    vocabulary = await engine.get_vocabulary_size()

    async def work(slot: int) -> dict[str, Any]:
        # Different prompts, for what two have in common is read once.
        prompt = [(slot * _PROMPT_TOKENS + number + 1) % vocabulary for number in range(_PROMPT_TOKENS)]
        body = {"prompt": prompt, "n_predict": _WRITTEN_TOKENS, "ignore_eos": True, "cache_prompt": False}
        timings: dict[str, Any] = (await engine.call("/completion", body))["timings"]
        return timings

    timings = await asyncio.gather(*(work(slot) for slot in range(engine.gate.places)))
    return _compute_rate(timings, "prompt"), _compute_rate(timings, "predicted")


def _compute_rate(timings: Sequence[dict[str, Any]], kind: str) -> float:
    # The slots work at the same time, so that the slowest says how long all of it took.
    longest_ms: float = max(one[f"{kind}_ms"] for one in timings)
    tokens: float = sum(one[f"{kind}_n"] for one in timings)
    return tokens / max(longest_ms / 1000, 1e-6)
