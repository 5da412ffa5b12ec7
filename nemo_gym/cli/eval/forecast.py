# SPDX-License-Identifier: Apache-2.0
"""Estimate before a run how long a model on this machine will take; remote models are not asked."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from omegaconf import DictConfig, OmegaConf

from nemo_gym._rollouts.collect import Run
from nemo_gym._rollouts.outcomes import Row
from nemo_gym.cli import render
from nemo_gym.cli.default_model import LOCAL
from nemo_gym.errors import GymError
from nemo_gym.server_utils import ServerClient, get_response_json, raise_for_status

_SAMPLES = 8
_SMALL_PARAMETERS = 2e9
_LONG_PROMPT_TOKENS = 500
_MANY_CHARACTERS = 50_000
_WORTH_SAYING_S = 60.0


async def tell_duration(client: ServerClient, run: Run) -> None:
    """Print how long the rollouts of `run` will take if a local model runs long ones."""
    model_of = _find_local_models(client.global_config_dict)
    if not model_of:
        return
    played = [(model, row) for row in run.peek(_SAMPLES) if (model := model_of.get(row["agent_ref"]["name"]))]
    samples = [row["responses_create_params"] for model, row in played if model == played[0][0]]
    if not _may_take_long(samples, run.left):
        return
    try:
        reply = await client.post(played[0][0], "/forecast", json={"samples": samples})
        await raise_for_status(reply)
        forecast = await get_response_json(reply)
    except GymError:
        return  # the run itself will report what is wrong
    if said := describe(forecast, run.left, has_tools=any(one.get("tools") for one in samples)):
        render.note(said)


def _may_take_long(samples: Sequence[Row], count: int) -> bool:
    """Return whether the run is worth a measurement, which takes a moment."""
    if not samples:
        return False
    characters = count * fmean(len(str(one.get("input"))) for one in samples)
    return characters >= _MANY_CHARACTERS or any(one.get("tools") for one in samples)


def _find_local_models(config: DictConfig) -> dict[str, str]:
    """Return the local model of each agent that uses one."""
    plain: dict[str, Any] = OmegaConf.to_container(config, resolve=False)  # type: ignore[assignment]
    blocks = {name: block for name, block in plain.items() if isinstance(block, dict)}
    local = {name for name, block in blocks.items() if LOCAL in (block.get("responses_api_models") or {})}
    return {
        name: reference["name"]
        for name, block in blocks.items()
        for agent in (block.get("responses_api_agents") or {}).values()
        if isinstance(reference := agent.get("model_server"), dict) and reference.get("name") in local
    }


def describe(forecast: dict[str, Any], count: int, *, has_tools: bool) -> str | None:
    """Return the estimate for a run of `count` rollouts; None if it is short."""
    prompt = fmean(one["prompt_tokens"] for one in forecast["work"])
    output = fmean(one["most_output_tokens"] for one in forecast["work"])
    read = forecast["read_tokens_per_s"]
    written = forecast["written_tokens_per_s"]
    least_s = count * prompt / read
    most_s = least_s + count * output / written
    is_long = has_tools or prompt >= _LONG_PROMPT_TOKENS
    if most_s < _WORTH_SAYING_S or not (is_long or least_s >= _WORTH_SAYING_S):
        return None
    size = f"{forecast['parameters'] / 1e6:,.0f}M parameters"
    small = f", a small model ({size})" if forecast["parameters"] < _SMALL_PARAMETERS else f" ({size})"
    rollouts = f"{count:,} rollouts with prompts of about {prompt:,.0f} tokens"
    return (
        f"{forecast['model']}{small} on this machine's CPU, reads {read:,.0f} and writes {written:,.0f} tokens/s now.\n"
        f"{rollouts} take {_format_duration(least_s)} for the prompts alone, and up to {_format_duration(most_s)} "
        f"if its replies reach their limit of {output:,.0f} tokens.\n"
        "hint: run fewer tasks (--limit), allow shorter replies (--max-output-tokens) or name another model "
        "(--model-type)"
    )


def _format_duration(seconds: float) -> str:
    if seconds < 90:
        return f"about {max(seconds, 1):.0f} s"
    if seconds < 90 * 60:
        return f"about {seconds / 60:.0f} min"
    return f"about {seconds / 3600:,.0f} h"
