# SPDX-License-Identifier: Apache-2.0
"""Play rows inside a trainer: the servers of a config on its event loop, and its own engine as the model.

    gym = await LiveGym.of_process(["resources_servers/example_multi_step/configs/example_multi_step.yaml"])
    played = await gym.play(row, TokenSettings(generate, ChatFormat(tokenizer)))
    played.rollout.main_branch, played.rollout.reward

Every process of a trainer that plays has servers of its own, on ports of its own. A rollout that fails is played again,
and if that does not help either, it is an error: no trainer here can be given a rollout without a reward, and a zero in
its place would move the baseline of its group.
"""

import asyncio
import contextlib
import logging
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar
from uuid import uuid4

import orjson
from omegaconf import OmegaConf
from pydantic import PrivateAttr

from nemo_gym._config.port_reservation import reserve_port, take_reserved
from nemo_gym._rollouts.journal import build_failed_row
from nemo_gym._rollouts.outcomes import Scored
from nemo_gym._rollouts.play import Player
from nemo_gym._rollouts.rollout_calls import LONGEST_ROLLOUT_S, post_with
from nemo_gym._servers.launching.launch import serve_config
from nemo_gym._training.alignment import Branch, join_turns
from nemo_gym._training.record import TrainableRollout
from nemo_gym._transport.retries import RetryRule, RetryRules
from nemo_gym._util.json_shapes import as_mapping
from nemo_gym._util.row_keys import (
    ATTEMPT_INDEX_KEY_NAME,
    FAILURE_KEY,
    RESPONSES_CREATE_PARAMS_KEY_NAME,
    ROLLOUT_ID_KEY_NAME,
)
from nemo_gym.config_types import BaseServerConfig
from nemo_gym.errors import GymError, RolloutFailure
from nemo_gym.global_config import (
    DEFAULT_PORT_RANGE_HIGH,
    DEFAULT_PORT_RANGE_LOW,
    HEAD_SERVER_KEY_NAME,
    GlobalConfigDictParserConfig,
    get_global_config_dict,
    set_global_config_dict,
)
from nemo_gym.openai_utils import NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.responses_converter import ResponsesConverter
from nemo_gym.rollout_collection import RolloutCollectionHelper
from nemo_gym.server_utils import ServerClient
from nemo_gym.token_engine import TokenSettings, open_token_rollout

LOG = logging.getLogger(__name__)

ENGINE_CONFIG = "responses_api_models/token_engine_model/configs/token_engine_model.yaml"
"""The config of the policy model that a trainer's engine plays."""
DEFAULT_ATTEMPTS = 3
_HOST = "127.0.0.1"
_PORT_TRIES = 50
_ONCE = RetryRules(other=RetryRule(1, 0.0), by_kind={})


class LiveGymError(GymError):
    """A trainer cannot play in this process."""


@dataclass(frozen=True)
class PlayedRollout:
    """A rollout that may be trained on."""

    rollout: TrainableRollout
    result: dict[str, Any]
    """The row that a rollouts file would hold."""

    @property
    def branch(self) -> Branch:
        """The token sequence that ends with the answer."""
        branch = self.rollout.main_branch
        assert branch is not None, "a rollout without tokens is not handed out"
        return branch


class LiveGym:
    """Servers that run on the event loop of the caller, until `close`."""

    _of_process: ClassVar["tuple[asyncio.AbstractEventLoop, tuple[Any, ...], asyncio.Task[LiveGym]] | None"] = None

    def __init__(self, client: ServerClient, serving: "asyncio.Task[None]", stop: asyncio.Event) -> None:
        self.client = client
        self._serving = serving
        self._stop = stop

    @classmethod
    async def start(
        cls,
        config_paths: Sequence[str],
        overrides: Sequence[str] = (),
        *,
        model_config: str = ENGINE_CONFIG,
        values: Mapping[str, Any] | None = None,
    ) -> "LiveGym":
        """Start the servers of these configs and wait until they are ready; the config becomes that of the process.

        Paths and overrides (`++key=value`) are those of `gym env start`. `model_config` defines the policy model: by
        default the caller's engine. `values` go on top of the files, such as keys, which are no overrides to show.
        """
        # Held until the head server takes it: other processes of the trainer start at the same moment.
        port = reserve_port(_HOST, DEFAULT_PORT_RANGE_LOW, DEFAULT_PORT_RANGE_HIGH, (), _PORT_TRIES)
        given: dict[str, Any] = {
            "config_paths": [model_config, *config_paths],
            HEAD_SERVER_KEY_NAME: {"host": _HOST, "port": port},
            **(values or {}),
        }
        wanted = GlobalConfigDictParserConfig(
            initial_global_config_dict=OmegaConf.create(given), overrides=list(overrides)
        )
        try:
            set_global_config_dict(wanted)
        except BaseException:
            if sock := take_reserved(_HOST, port):
                sock.close()
            raise
        ready: asyncio.Future[ServerClient] = asyncio.get_running_loop().create_future()
        stop = asyncio.Event()
        serving = asyncio.create_task(_serve(ready, stop), name="nemo-gym-servers")
        await asyncio.wait(set[asyncio.Future[Any]]({ready, serving}), return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            serving.result()  # raises what kept the servers from starting
            raise LiveGymError("the servers ended before they were ready")
        return cls(ready.result(), serving, stop)

    @classmethod
    async def of_process(cls, config_paths: Sequence[str], overrides: Sequence[str] = ()) -> "LiveGym":
        """Return the servers of this process, which are started by whoever comes first."""
        loop = asyncio.get_running_loop()
        asked = (tuple(config_paths), tuple(overrides))
        known = cls._of_process
        if known is None or known[0] is not loop:
            known = cls._of_process = (loop, asked, asyncio.create_task(cls.start(config_paths, overrides)))
        if known[1] != asked:
            raise LiveGymError(
                f"this process plays with the configs {list(known[1][0])}, and is asked for {list(config_paths)}.\n"
                "hint: name all environments in one list: each row says by its `agent_ref` which one it plays in"
            )
        try:
            return await asyncio.shield(known[2])
        except BaseException:
            if known[2].done() and cls._of_process is known:
                cls._of_process = None  # so that the next one may try again
            raise

    async def __aenter__(self) -> "LiveGym":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop the servers."""
        known = type(self)._of_process
        if known is not None and known[2].done() and not known[2].exception() and known[2].result() is self:
            type(self)._of_process = None
        self._stop.set()
        with contextlib.suppress(asyncio.CancelledError):
            await self._serving

    async def play(
        self,
        row: Mapping[str, Any],
        settings: TokenSettings,
        *,
        attempts: int = DEFAULT_ATTEMPTS,
        timeout_s: float | None = None,
    ) -> PlayedRollout:
        """Play the row with the engine of `settings`; RolloutFailure if no attempt gave a rollout to train on.

        `timeout_s` bounds each attempt. Every kind of failure is tried again, because another sample may succeed.
        """
        for attempt in range(1, attempts + 1):
            try:
                return await self._attempt(row, settings, timeout_s)
            except RolloutFailure as failure:
                if attempt == attempts:
                    raise
                LOG.warning("attempt %d of %d at a rollout failed: %s", attempt, attempts, failure)
                if failure.retryable:
                    await asyncio.sleep(RetryRules().rule(failure.kind).draw_pause_s(attempt, random.Random()))
        raise ValueError(f"attempts must be at least 1, not {attempts}")

    async def _attempt(self, row: Mapping[str, Any], settings: TokenSettings, timeout_s: float | None) -> PlayedRollout:
        # Each attempt has its own id, so that a late call of an abandoned attempt belongs to no rollout.
        rollout_id = uuid4().hex
        post = post_with(self.client, timeout=LONGEST_ROLLOUT_S)
        self._require_serving()
        task = {name: value for name, value in row.items() if name != ATTEMPT_INDEX_KEY_NAME}
        with open_token_rollout(rollout_id, settings) as session:
            player = Player(post, timeout_s=timeout_s, retries=_ONCE)
            outcome = await player.play({**task, ROLLOUT_ID_KEY_NAME: rollout_id})
        result = outcome.result if isinstance(outcome, Scored) else build_failed_row(outcome)
        rollout = TrainableRollout.from_row(result)
        # The engine's own turns say more, such as the version of the weights, and exist for every agent.
        by_tokens = {(tuple(turn.prompt_ids), tuple(turn.generated_ids)): turn for turn in session.turns}
        if rollout.turns:
            turns = [by_tokens.get((tuple(t.prompt_ids), tuple(t.generated_ids)), t) for t in rollout.turns]
        else:
            turns = session.turns
        rollout.turns = turns
        rollout.branches = join_turns(turns)
        require_trainable(rollout, result)
        return PlayedRollout(rollout, result)

    async def run(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Play the row once, with whichever model its agent has, and return its result or the row of its failure."""
        self._require_serving()
        collection = _LiveCollection()
        collection._client = self.client
        [playing] = collection.run_examples([dict(row)], route_failures_to_sidecar=True)
        _, result = await playing
        return result

    def _require_serving(self) -> None:
        if self._serving.done():
            self._serving.result()  # raises what ended them
            raise LiveGymError("the servers of this process have been stopped")


def require_trainable(rollout: TrainableRollout, result: Mapping[str, Any]) -> None:
    """Raise RolloutFailure unless the rollout has a reward and tokens that may be trained on."""
    if rollout.failure is not None:
        failure = as_mapping(result.get(FAILURE_KEY))
        message = str(failure.get("message") or "the result has no reward")
        raise RolloutFailure(rollout.failure, message, bool(failure.get("retryable")))
    if rollout.invalid is not None:
        raise RolloutFailure("tokens_lost", f"the rollout must not be trained on: {rollout.invalid}")
    if rollout.main_branch is None or not any(rollout.main_branch.mask):
        raise RolloutFailure(
            "no_tokens",
            "the model wrote nothing: its agent did not ask it, or the prompt leaves no room for a reply.\n"
            "hint: raise the lengths of the trainer's config, or leave out rows whose prompts are that long",
        )
    if rollout.reward is None or not math.isfinite(rollout.reward):
        raise RolloutFailure("no_reward", f"the reward is {rollout.reward!r}, with which nothing can be trained")


async def _serve(ready: "asyncio.Future[ServerClient]", stop: asyncio.Event) -> None:
    config = get_global_config_dict()
    async with serve_config(config, LOG.info, LOG.info) as served:
        head = OmegaConf.to_container(config[HEAD_SERVER_KEY_NAME], resolve=True)
        ready.set_result(
            ServerClient(head_server_config=BaseServerConfig.model_validate(head), global_config_dict=config)
        )
        await served.running.run_unless_dead(stop.wait())


class _LiveCollection(RolloutCollectionHelper):
    """Plays with an existing client."""

    _client: ServerClient = PrivateAttr()

    def setup_server_client(self, head_server_config: BaseServerConfig | None = None) -> ServerClient:
        return self._client


# --- rows -------------------------------------------------------------------------------------------------------------

ROW_FIELD = "nemo_gym_row"
"""The field of a trainer's dataset that holds our row as JSON text: table columns would mix the fields of all rows."""


def write_row(row: Mapping[str, Any]) -> str:
    """Return a row as the text that datasets of trainers carry."""
    return orjson.dumps(row).decode()


def read_row(carried: Any, where: str) -> dict[str, Any]:
    """Return the row that `carried` holds, text or object; LiveGymError, which names `where`, if it holds none."""
    try:
        row = orjson.loads(carried) if isinstance(carried, str | bytes) else carried
    except orjson.JSONDecodeError:
        row = None
    if isinstance(row, Mapping) and RESPONSES_CREATE_PARAMS_KEY_NAME in row:
        return dict(row)
    raise LiveGymError(
        f"{where} holds no row of NeMo Gym: {str(carried)[:120]!r}\n"
        f"hint: put the row there as JSON text, with its `agent_ref` and `{RESPONSES_CREATE_PARAMS_KEY_NAME}`"
    )


def list_messages(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the prompt of a row as chat messages."""
    params = NeMoGymResponseCreateParamsNonStreaming.model_validate(row[RESPONSES_CREATE_PARAMS_KEY_NAME])
    converter = ResponsesConverter(return_token_id_information=False)
    return [dict(message) for message in converter.responses_to_chat_completion_create_params(params).messages]
