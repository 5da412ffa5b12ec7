# SPDX-License-Identifier: Apache-2.0
"""Hand over the tokens of a rollout, with the model's own tokenizer where texts have to be compared.

The model server of the agent is asked (`POST /detokenize`), at the end of a rollout and only if its tokens do not
extend each other. That is the one moment at which all turns are known, whoever reported them: an agent that sent its
tokens along, or a token capture. If a server cannot give the text of ids, such a rollout stays forked, which is safe.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, cast

from omegaconf import DictConfig

from nemo_gym._rollouts.outcomes import Row
from nemo_gym._rollouts.play import HandOver
from nemo_gym._training.handover import carries_tokens, hand_over, is_clean
from nemo_gym._util.json_shapes import as_mapping
from nemo_gym._util.known_secrets import describe_error
from nemo_gym._util.message_throttle import MessageThrottle
from nemo_gym._util.row_keys import AGENT_REF_KEY_NAME, TOKEN_DRIFT_KEY
from nemo_gym.errors import GymError
from nemo_gym.global_config import get_first_server_config_dict
from nemo_gym.server_utils import ServerClient, get_response_json, raise_for_status

LOG = logging.getLogger(__name__)
_DETOKENIZE_TIMEOUT_S = 60.0
_WARN_EVERY_S = 60.0
_NOT_SERVED = (404, 405, 501)
# Not the event loop's own threads: they resolve the address of the endpoint that these wait for.
_THREADS = ThreadPoolExecutor(8, thread_name_prefix="token-handover")


class TextUnknown(GymError):
    """A model server does not give the text of token ids."""


def hand_over_with(client: ServerClient, config: Mapping[str, Any] | DictConfig) -> HandOver:
    """Return a function that hands over the tokens of a result, given its row; `config` is that of the servers."""
    mute: set[str] = set()  # model servers that have no text for ids: they are not asked again
    throttle = MessageThrottle(_WARN_EVERY_S)

    async def hand_over_result(row: Row, result: Row) -> None:
        if not carries_tokens(result) or TOKEN_DRIFT_KEY in result or is_clean(result):
            return
        model = _find_model_server(config, row)
        if model is None or model in mute:
            hand_over(result)
            return
        loop = asyncio.get_running_loop()

        def decode(ids: Sequence[int]) -> str:
            asked = asyncio.run_coroutine_threadsafe(_ask_for_text(client, model, ids), loop)
            return asked.result(2 * _DETOKENIZE_TIMEOUT_S)

        try:
            await loop.run_in_executor(_THREADS, copy_context().run, hand_over, result, decode)
        except Exception as error:
            if getattr(error, "status", None) in _NOT_SERVED:
                mute.add(model)
            if throttle.admit(model) is not None:
                LOG.warning(
                    "the model server %r does not give the text of token ids (%s), so a re-tokenized history cannot be "
                    "told from a changed one: such rollouts count as forked.\n"
                    "hint: use a model server with `/detokenize`, such as vllm_model in front of vLLM, or local_model",
                    model,
                    describe_error(error),
                )
            hand_over(result)

    return hand_over_result


async def _ask_for_text(client: ServerClient, model: str, ids: Sequence[int]) -> str:
    async with asyncio.timeout(_DETOKENIZE_TIMEOUT_S):
        reply = await client.post(model, "/detokenize", json={"tokens": list(ids)})
        await raise_for_status(reply)
        text = as_mapping(await get_response_json(reply)).get("prompt")
    if isinstance(text, str):
        return text
    raise TextUnknown(f"`/detokenize` of {model!r} answered without `prompt`")


def _find_model_server(config: Mapping[str, Any] | DictConfig, row: Row) -> str | None:
    """Return the model server of the agent of `row`, from its config; None if it names none."""
    agent = as_mapping(row.get(AGENT_REF_KEY_NAME)).get("name")
    known = cast(Any, config)
    if agent is None or agent not in known:
        return None
    model = get_first_server_config_dict(known, agent).get("model_server")
    return None if model is None else str(model.get("name"))
