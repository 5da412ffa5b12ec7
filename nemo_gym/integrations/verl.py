# SPDX-License-Identifier: Apache-2.0
"""verl 0.9.1: an agent loop that plays our environments with verl's own engine, and a reward function.

In verl's agent-loop config (`actor_rollout_ref.rollout.agent.agent_loop_config_path`):

    - name: nemo_gym
      _target_: nemo_gym.integrations.verl.GymAgentLoop
      config_paths: [resources_servers/example_multi_step/configs/example_multi_step.yaml]

Every agent-loop worker has the servers of these configs in its own process. Rows come from `write_dataset`. For rewards
alone: `reward.custom_reward_function.path` is this file, its `name` is `compute_score`.

A rollout that fails is played again, `attempts` times in all; if none succeeds, the loop raises. verl has no place for
a rollout without a reward: one with a mask of zeros would still stand in the baseline of its group, as a zero. Of a
rollout whose history was edited (`forked`), the sequence that ends with the answer is trained on.
"""

import argparse
import asyncio
import functools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from pydantic import ValidationError

from nemo_gym._training.chat_tokens import join_text
from nemo_gym._training.formats.branches import build_verl_output
from nemo_gym._util.row_keys import AGENT_REF_KEY_NAME
from nemo_gym.errors import GymError, RolloutFailure
from nemo_gym.integrations.libraries import import_library
from nemo_gym.integrations.live import (
    DEFAULT_ATTEMPTS,
    ROW_FIELD,
    LiveGym,
    LiveGymError,
    PlayedRollout,
    list_messages,
    read_row,
    write_row,
)
from nemo_gym.integrations.playing import read_tasks
from nemo_gym.integrations.scoring import connect, score_reply
from nemo_gym.server_utils import ServerClient
from nemo_gym.token_engine import ChatFormat, EngineReply, ParsedReply, TokenSettings

VERL_VERSION = "0.9.1"
"""The version of verl that this module was made for and tested with."""
AGENT_NAME = "nemo_gym"
"""The name of the agent loop in verl's config, for which the rows of a dataset ask."""
_ABORTED = "aborted"


@dataclass
class VerlEngine:
    """One rollout's calls of verl's engine, which sticks to one replica for the sake of its prefix cache."""

    server_manager: Any
    sampling_params: Mapping[str, Any]
    request_id: str = field(default_factory=lambda: uuid4().hex)
    seconds: float = 0.0
    num_preempted: int = -1
    has_log_probs: bool = True
    """Whether verl asked its engine for log-probs, and got them."""

    async def generate(self, prompt_ids: list[int], limit: int | None) -> EngineReply:
        """Ask verl's engine."""
        # Both of verl's engines accept this name.
        limits = {}
        if limit is not None:
            limits["max_new_tokens"] = limit
        started = time.perf_counter()
        output = await self.server_manager.generate(
            request_id=self.request_id, prompt_ids=prompt_ids, sampling_params={**self.sampling_params, **limits}
        )
        self.seconds += time.perf_counter() - started
        if output.stop_reason == _ABORTED:
            raise RuntimeError("verl's engine was told to stop in the middle of a reply")
        if output.num_preempted is not None:
            self.num_preempted = max(self.num_preempted, 0) + output.num_preempted
        ids = list(output.token_ids)
        log_probs = list(output.log_probs or ())
        if not log_probs:
            self.has_log_probs = False
            log_probs = [0.0] * len(ids)
        is_cut_off = limit is not None and len(ids) >= limit
        return EngineReply(ids, log_probs, is_cut_off, output.extra_fields.get("global_steps"))


def build_output(played: PlayedRollout, engine: VerlEngine) -> dict[str, Any]:
    """Return the fields of verl's AgentLoopOutput."""
    rollout = played.rollout
    steps = [turn.policy_version for turn in rollout.turns if turn.policy_version is not None]
    output = build_verl_output(rollout, played.branch)
    if not engine.has_log_probs:
        output["response_logprobs"] = None
    return {
        **output,
        "metrics": {"generate_sequences": engine.seconds, "num_preempted": engine.num_preempted},
        "extra_fields": {
            "turn_scores": [],
            "tool_rewards": [],
            "min_global_steps": min(steps, default=None),
            "max_global_steps": max(steps, default=None),
            # verl wants the same keys from every sample.
            "reward_extra_info": {"is_cut_off": int(rollout.cut_off is not None), "branches": len(rollout.branches)},
        },
    }


async def play_sample(
    gym: LiveGym,
    row: Mapping[str, Any],
    engine: VerlEngine,
    chat: ChatFormat,
    *,
    prompt_length: int,
    response_length: int,
    attempts: int = DEFAULT_ATTEMPTS,
    timeout_s: float | None = None,
) -> dict[str, Any]:
    """Play one row and return the fields of an AgentLoopOutput; RolloutFailure if no attempt succeeds."""
    settings = TokenSettings(engine.generate, chat, max_response_length=response_length)
    played = await gym.play(row, settings, attempts=attempts, timeout_s=timeout_s)
    found = len(played.branch.prompt_ids)
    if found > prompt_length:
        raise RolloutFailure(
            "prompt_too_long",
            f"a prompt has {found} tokens, and data.max_prompt_length is {prompt_length}; to cut it would train on "
            "what the model has not read.\nhint: raise data.max_prompt_length, or set data.filter_overlong_prompts",
        )
    return build_output(played, engine)


def build_chat_format(tokenizer: Any, tool_format: str, template_settings: Mapping[str, Any] | None) -> ChatFormat:
    """Return how verl's model writes conversations; its calls are read by verl's own parser `tool_format`."""
    module = import_library(
        "verl.experimental.agent_loop.tool_parser", "ToolParser", package="verl", version=VERL_VERSION
    )
    schemas = import_library("verl.tools.schemas", "OpenAIFunctionToolSchema", package="verl", version=VERL_VERSION)
    parser = module.ToolParser.get_tool_parser(tool_format, tokenizer)

    async def parse(ids: list[int], tools: Any) -> ParsedReply:
        if not tools:
            return ParsedReply(tokenizer.decode(ids, skip_special_tokens=True))
        try:
            known = [schemas.OpenAIFunctionToolSchema.model_validate(tool) for tool in tools]
        except ValidationError:  # verl knows less of JSON schemas than tools use; most parsers do without
            known = None
        text, calls = await parser.extract_tool_calls(ids, known)
        text = text.removesuffix(getattr(tokenizer, "eos_token", None) or "")
        return ParsedReply(text.strip() if calls else text, [(each.name, each.arguments) for each in calls])

    return ChatFormat(tokenizer, template_settings=template_settings, parse_reply=parse)


@functools.cache
def build_agent_loop() -> type[Any]:
    """Return the class of the agent loop; MissingLibrary without verl."""
    verl = import_library(
        "verl.experimental.agent_loop.agent_loop",
        "AgentLoopBase",
        "AgentLoopOutput",
        package="verl",
        version=VERL_VERSION,
    )

    class GymAgentLoop(verl.AgentLoopBase):  # type: ignore[name-defined]
        """Plays one row of ours for each sample of verl's batch."""

        def __init__(
            self,
            *args: Any,
            config_paths: Sequence[str] = (),
            overrides: Sequence[str] = (),
            attempts: int = DEFAULT_ATTEMPTS,
            timeout_s: float | None = None,
            **kwargs: Any,
        ) -> None:
            super().__init__(*args, **kwargs)
            self.config_paths = list(config_paths)
            self.overrides = list(overrides)
            self.attempts = attempts
            self.timeout_s = timeout_s

        async def run(self, sampling_params: dict[str, Any], **fields: Any) -> Any:
            """Play the row that the sample carries in `extra_info`."""
            row = read_sample_row(fields)
            gym = await LiveGym.of_process(self.config_paths, self.overrides)
            rollout = self.rollout_config
            settings = dict(self.apply_chat_template_kwargs or {})
            output = await play_sample(
                gym,
                row,
                VerlEngine(self.server_manager, sampling_params),
                build_chat_format(self.tokenizer, rollout.multi_turn.format, settings),
                prompt_length=rollout.prompt_length,
                response_length=rollout.response_length,
                attempts=self.attempts,
                timeout_s=self.timeout_s,
            )
            return verl.AgentLoopOutput(**output)

    # verl's config names the class by this path. verl's own `register` is not used: it would replace that config.
    GymAgentLoop.__module__ = __name__
    GymAgentLoop.__qualname__ = "GymAgentLoop"
    return GymAgentLoop


def __getattr__(name: str) -> Any:
    if name == "GymAgentLoop":
        return build_agent_loop()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def read_sample_row(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of ours that a sample of verl's dataset carries."""
    return read_row((fields.get("extra_info") or {}).get(ROW_FIELD), f"extra_info.{ROW_FIELD} of a sample")


# --- rewards alone ----------------------------------------------------------------------------------------------------

_clients: dict[tuple[asyncio.AbstractEventLoop, str | None], ServerClient] = {}


async def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    *,
    head_server: str | None = None,
    **_: Any,
) -> float:
    """Return the reward that a running environment gives for `solution_str`; RolloutFailure if it gives none.

    The servers are those of `gym env start`, whose head server is at `head_server`, given as `host:port` in
    `reward.custom_reward_function.reward_kwargs`; by default it is where the config of this process says.
    """
    row = read_sample_row({"extra_info": extra_info})
    where = asyncio.get_running_loop(), head_server
    if where not in _clients:
        _clients[where] = await connect(head_server)
    return await score_reply(_clients[where], row, solution_str)


# --- datasets ---------------------------------------------------------------------------------------------------------


def build_sample(row: Mapping[str, Any], index: int) -> dict[str, Any]:
    """Return a row of ours as a row of verl's dataset."""
    return {
        "data_source": (row.get(AGENT_REF_KEY_NAME) or {}).get("name"),
        "agent_name": AGENT_NAME,
        # verl measures it; what the model reads is made from the row.
        "prompt": [{"role": each["role"], "content": join_text(each)} for each in list_messages(row)],
        "ability": "agent",
        "reward_model": {"style": "rule", "ground_truth": ""},
        "extra_info": {"index": index, ROW_FIELD: write_row(row)},
    }


def write_dataset(rows: Path, output: Path, agent: str | None = None) -> int:
    """Write the rows of a JSONL file as a parquet file for verl; return how many. `agent`: for rows that name none."""
    import pyarrow  # type: ignore[import-untyped]  # verl brings it
    from pyarrow import parquet

    samples = [build_sample(row, index) for index, row in enumerate(read_tasks(str(rows), agent))]
    if nameless := [str(index) for index, sample in enumerate(samples) if not sample["data_source"]]:
        raise LiveGymError(
            f"{rows}: {len(nameless)} rows name no agent, the first is row {nameless[0]}.\n"
            "hint: say which one plays them with `--agent`"
        )
    parquet.write_table(pyarrow.Table.from_pylist(samples), output)
    return len(samples)


def main(arguments: Sequence[str] | None = None) -> None:
    """`python -m nemo_gym.integrations.verl rows.jsonl train.parquet`."""
    parser = argparse.ArgumentParser(prog="python -m nemo_gym.integrations.verl", description=write_dataset.__doc__)
    parser.add_argument("rows", type=Path, help="rows of NeMo Gym, JSONL")
    parser.add_argument("output", type=Path, help="the dataset for verl, parquet")
    parser.add_argument("--agent", help="the agent of rows that name none")
    given = parser.parse_args(arguments)
    try:
        write_dataset(given.rows, given.output, given.agent)
    except GymError as error:
        parser.exit(1, f"{error}\n")


if __name__ == "__main__":
    main()
