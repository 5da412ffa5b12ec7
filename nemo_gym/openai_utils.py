# SPDX-License-Identifier: Apache-2.0
"""Schemas of the Responses and Chat Completions dialects, and a client for endpoints that speak them.

The schemas are ours, not the openai SDK's, which this module does not import. They live in `nemo_gym._wire` but carry
this module's name, so that pickles and tracebacks show where to import them from.
"""

import asyncio
import logging
import random
from datetime import UTC, datetime
from typing import Any

from aiohttp import ClientConnectionError, ClientPayloadError, ClientResponse
from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt

from nemo_gym._config.secret_lookup import find_secrets
from nemo_gym._servers.http_session import bound_model_reply, is_global_aiohttp_client_request_debug_enabled
from nemo_gym._transport.call_errors import InvalidServerReply, ServerResponseError, ServerUnreachable
from nemo_gym._transport.deadline import await_within, find_earliest_end
from nemo_gym._transport.http_calls import Response
from nemo_gym._transport.retries import (
    BROKEN_ENDPOINT_ATTEMPTS,
    BROKEN_ENDPOINT_STATUS,
    BUSY_ENDPOINT_STATUSES,
    ENDPOINT_ATTEMPTS,
    ENDPOINT_FIRST_PAUSE_S,
    RETRIES,
    RetryRule,
    retry_after_s,
)
from nemo_gym._util.json_depth import MAX_REPLY_DEPTH, is_too_deep
from nemo_gym._util.known_secrets import KNOWN_SECRETS, describe_error
from nemo_gym._util.message_throttle import MessageThrottle
from nemo_gym._wire.schema import chat_request, item_unions, items, replies, responses_request, tokens
from nemo_gym._wire.schema.chat_request import *  # noqa: F403
from nemo_gym._wire.schema.item_unions import *  # noqa: F403
from nemo_gym._wire.schema.items import *  # noqa: F403
from nemo_gym._wire.schema.replies import *  # noqa: F403
from nemo_gym._wire.schema.responses_request import *  # noqa: F403
from nemo_gym._wire.schema.tokens import *  # noqa: F403
from nemo_gym.errors import ServerCallError
from nemo_gym.server_utils import MAX_NUM_TRIES as MAX_NUM_TRIES, get_response_json, raise_for_status, request

__all__ = [
    "MAX_NUM_TRIES",
    "RATE_LIMIT_ERROR_CODES",
    "RETRY_ERROR_CODES",
    "NeMoGymAsyncOpenAI",
]
__all__ += chat_request.__all__
__all__ += item_unions.__all__
__all__ += items.__all__
__all__ += replies.__all__
__all__ += responses_request.__all__
__all__ += tokens.__all__

LOG = logging.getLogger(__name__)

RATE_LIMIT_ERROR_CODES = [*BUSY_ENDPOINT_STATUSES]
RETRY_ERROR_CODES = [*BUSY_ENDPOINT_STATUSES, BROKEN_ENDPOINT_STATUS]
_RNG = random.Random()
_BUSY_ANSWERS = MessageThrottle(every_s=10.0)


class NeMoGymAsyncOpenAI(BaseModel):
    """A client of one OpenAI-compatible endpoint. Every call returns the reply's JSON object.

    A busy or failing endpoint is retried a bounded number of times, after a pause that it may choose (`Retry-After`).
    An error status is then raised as an aiohttp `ClientResponseError` with the body in `response_content`.
    """

    model_config = ConfigDict(hide_input_in_errors=True)

    base_url: str
    api_key: str = Field(repr=False)
    internal: bool = False
    default_headers: dict[str, str] = Field(default_factory=dict, repr=False)
    max_attempts: PositiveInt = ENDPOINT_ATTEMPTS
    """Maximum attempts at one call; it gives up earlier after three answers with status 500."""
    timeout_s: PositiveFloat = 3600.0
    """Deadline of one call, including all attempts and pauses."""

    def model_post_init(self, context: Any) -> None:
        KNOWN_SECRETS.add(find_secrets({"api_key": self.api_key, "headers": self.default_headers}))

    async def create_models(self, **kwargs: Any) -> dict[str, Any]:
        return await self._call("GET", f"{self._root}/models", params=kwargs or None)

    async def create_chat_completion(self, **kwargs: Any) -> dict[str, Any]:
        return await self._call("POST", f"{self._root}/chat/completions", json=kwargs)

    async def create_completion(self, **kwargs: Any) -> dict[str, Any]:
        return await self._call("POST", f"{self._root}/completions", json=kwargs)

    async def create_response(self, **kwargs: Any) -> dict[str, Any]:
        return await self._call("POST", f"{self._root}/responses", json=kwargs)

    async def call_response(self, method: str, response_id: str) -> dict[str, Any]:
        """Fetch (GET) or delete (DELETE) a response that the endpoint keeps."""
        return await self._call(method, f"{self._root}/responses/{response_id}")

    async def create_tokenize(self, **kwargs: Any) -> dict[str, Any]:
        # vLLM serves it beside its OpenAI routes, not under them.
        return await self._call("POST", f"{self._root.removesuffix('/v1')}/tokenize", json=kwargs)

    async def create_detokenize(self, **kwargs: Any) -> dict[str, Any]:
        return await self._call("POST", f"{self._root.removesuffix('/v1')}/detokenize", json=kwargs)

    @property
    def _root(self) -> str:
        return self.base_url.rstrip("/")

    async def _call(self, method: str, url: str, **kwargs: Any) -> dict[str, Any]:
        try:
            return await await_within(self.timeout_s, method, url, self._fetch_reply(method, url, **kwargs))
        except ServerCallError:
            raise
        except (ClientPayloadError, ClientConnectionError) as error:
            raise ServerUnreachable(method, url, f"the answer broke off: {describe_error(error)}") from error

    async def _fetch_reply(self, method: str, url: str, **request_kwargs: Any) -> dict[str, Any]:
        response = await self._ask_repeatedly(method, url, **request_kwargs)
        try:
            if not response.ok:
                await raise_for_status(response)
            reply = await get_response_json(response)
            body = await response.read() if isinstance(response, Response) else b""
            if not isinstance(reply, dict):
                found = f"expected an object, got {type(reply).__name__}"
            elif is_too_deep(body, reply, MAX_REPLY_DEPTH):
                found = f"it is nested more than {MAX_REPLY_DEPTH} levels deep"
            else:
                return reply
            raise InvalidServerReply(method, url, response.status, str(response.content_type), body, found)
        except (ServerResponseError, InvalidServerReply) as error:
            raise self._mask_secrets(error) from None

    def _mask_secrets(self, error: ServerCallError) -> ServerCallError:
        """Return `error` with the secrets we sent masked: some endpoints repeat a key they do not know."""

        def mask(value: Any) -> Any:
            if isinstance(value, bytes):
                return KNOWN_SECRETS.mask_bytes(value)
            return KNOWN_SECRETS.mask(value) if isinstance(value, str) else value

        return type(error)(*map(mask, error.args))

    async def _ask_repeatedly(self, method: str, url: str, **request_kwargs: Any) -> ClientResponse:
        """Return the first answer that another attempt would not change, or the last one."""
        headers = {"Authorization": f"Bearer {self.api_key}", **self.default_headers}
        attempt = broken = 0
        while True:
            # Asking a model twice costs tokens and changes nothing, so retry a broken connection too.
            response = await request(
                method,
                url,
                _internal=self.internal,
                _idempotent=True,
                _bounded_s=self.timeout_s,
                _to_model=True,
                headers=headers,
                **request_kwargs,
            )
            bound_model_reply(response)
            if response.status not in RETRY_ERROR_CODES:
                return response
            attempt += 1
            broken += response.status == BROKEN_ENDPOINT_STATUS
            if attempt == self.max_attempts or broken == BROKEN_ENDPOINT_ATTEMPTS:
                return response
            pause_s = retry_after_s(response.headers, datetime.now(UTC))
            if pause_s is None:
                pause_s = RetryRule(self.max_attempts, ENDPOINT_FIRST_PAUSE_S).draw_pause_s(attempt, _RNG)
            # A pause that outlasts the caller's deadline would only hide why there is no answer.
            ends_at = find_earliest_end()
            if ends_at is not None and asyncio.get_running_loop().time() + pause_s >= ends_at:
                return response
            body = await response.read()  # also hands the connection back to the pool
            _log_busy(method, url, response.status, attempt, pause_s)
            if is_global_aiohttp_client_request_debug_enabled():
                LOG.warning("body of that answer: %r", body)
            with RETRIES.count(str(response.status)):
                await asyncio.sleep(pause_s)


def _log_busy(method: str, url: str, status: int, attempt: int, pause_s: float) -> None:
    if RETRIES.is_shown:
        return  # the progress line shows it as a count
    suppressed = _BUSY_ANSWERS.admit((url, status))
    if suppressed is not None:
        more = f" ({suppressed} more such answers since the last such line)" if suppressed else ""
        LOG.warning("%s %s answered %d (attempt %d); next in %.1f s%s", method, url, status, attempt, pause_s, more)


for _name in __all__:
    _value = globals()[_name]
    if isinstance(_value, type) and _value.__module__.startswith("nemo_gym._wire."):
        _value.__module__ = __name__
