# SPDX-License-Identifier: Apache-2.0
"""The process-wide HTTP session: one pool of connections per event loop, built from the config on first use."""

import asyncio
import atexit
from weakref import WeakKeyDictionary

import aiohttp
from omegaconf import DictConfig
from pydantic import BaseModel, PositiveInt

from nemo_gym._servers.process_environment import get_nemo_gym_fastapi_num_workers
from nemo_gym._transport import http_calls as http
from nemo_gym._transport.http1 import Http1Client
from nemo_gym._transport.http_calls import MAX_MODEL_REPLY_BYTES, MAX_SERVER_REPLY_BYTES, BoundedResponse
from nemo_gym.global_config import (
    GlobalConfigDictParser,
    GlobalConfigDictParserConfig,
    get_global_config_dict,
    maybe_get_global_config_dict,
)


class GlobalAIOHTTPAsyncClientConfig(BaseModel):
    """Settings of the process-wide HTTP session; each is also a top-level config key."""

    global_aiohttp_connector_limit: int = 100 * 1024
    """Most connections at once, over all hosts; divided among the workers of a server."""
    global_aiohttp_connector_limit_per_host: int = 1024
    """Most connections at once to one host; divided among the workers of a server."""
    global_aiohttp_client_request_debug: bool = False
    """Log every call."""
    global_aiohttp_tcp_keepalive_idle_seconds: int = 60
    """How long a connection is silent before TCP asks whether the other side is still there."""
    global_aiohttp_tcp_keepalive_interval_seconds: int = 10
    """How long TCP waits between two such probes."""
    global_aiohttp_tcp_keepalive_probes: int = 3
    """How many probes without an answer end a connection."""
    global_aiohttp_total_timeout_seconds: float = 3600.0
    """Deadline of one call, from start to the last byte of the answer."""
    max_model_reply_bytes: PositiveInt = MAX_MODEL_REPLY_BYTES
    """A larger reply of a model's endpoint, counted after decompression, is a failure and not held in memory."""
    max_server_reply_bytes: PositiveInt = MAX_SERVER_REPLY_BYTES
    """The same for every other reply."""

    def settings(self, workers: int) -> http.SessionSettings:
        """Return these settings for one of `workers` processes."""
        return http.SessionSettings(
            connector_limit=max(1, self.global_aiohttp_connector_limit // workers),
            connector_limit_per_host=max(1, self.global_aiohttp_connector_limit_per_host // workers),
            tcp_keepalive_idle_s=self.global_aiohttp_tcp_keepalive_idle_seconds,
            tcp_keepalive_interval_s=self.global_aiohttp_tcp_keepalive_interval_seconds,
            tcp_keepalive_probes=self.global_aiohttp_tcp_keepalive_probes,
            total_timeout_s=self.global_aiohttp_total_timeout_seconds,
            max_reply_bytes=self.max_server_reply_bytes,
        )


_SESSIONS: WeakKeyDictionary[asyncio.AbstractEventLoop, aiohttp.ClientSession] = WeakKeyDictionary()
_MODEL_CLIENTS: WeakKeyDictionary[aiohttp.ClientSession, Http1Client] = WeakKeyDictionary()
_REQUEST_DEBUG = False
_MODEL_REPLY_LIMIT_BYTES = MAX_MODEL_REPLY_BYTES


def get_global_aiohttp_client(
    global_config_dict_parser_config: GlobalConfigDictParserConfig | None = None,
    global_config_dict_parser_cls: type[GlobalConfigDictParser] = GlobalConfigDictParser,
) -> aiohttp.ClientSession:
    """Return the session of the running event loop, made on first use."""
    session = _SESSIONS.get(asyncio.get_running_loop())
    if session is not None and not session.closed:
        return session
    config: DictConfig | None
    if global_config_dict_parser_config is not None:
        config = get_global_config_dict(global_config_dict_parser_config, global_config_dict_parser_cls)
    else:
        config = maybe_get_global_config_dict()
    fields = GlobalAIOHTTPAsyncClientConfig.model_fields
    given = {}
    if config is not None:
        given = {key: config[key] for key in fields if key in config}
    return set_global_aiohttp_client(GlobalAIOHTTPAsyncClientConfig.model_validate(given))


def set_global_aiohttp_client(cfg: GlobalAIOHTTPAsyncClientConfig) -> aiohttp.ClientSession:
    """Build the session of the running event loop from `cfg`; there must be none yet."""
    global _REQUEST_DEBUG, _MODEL_REPLY_LIMIT_BYTES
    assert not is_global_aiohttp_client_setup(), "this event loop already has an HTTP session"
    settings = cfg.settings(get_nemo_gym_fastapi_num_workers())
    session = http.build_session(settings)
    _SESSIONS[asyncio.get_running_loop()] = session
    _MODEL_CLIENTS[session] = http.build_model_client(settings, cfg.max_model_reply_bytes)
    _REQUEST_DEBUG = cfg.global_aiohttp_client_request_debug
    _MODEL_REPLY_LIMIT_BYTES = cfg.max_model_reply_bytes
    return session


def is_global_aiohttp_client_setup() -> bool:
    """Tell whether the running event loop has a session."""
    try:
        session = _SESSIONS.get(asyncio.get_running_loop())
    except RuntimeError:
        return False
    return session is not None and not session.closed


def is_global_aiohttp_client_request_debug_enabled() -> bool:
    """Tell whether every call is logged."""
    return _REQUEST_DEBUG


def find_model_client(session: aiohttp.ClientSession) -> Http1Client | None:
    """Return the client for calls to models beside `session`; None if that is somebody else's."""
    return _MODEL_CLIENTS.get(session)


def bound_model_reply(response: aiohttp.ClientResponse) -> None:
    """Let no more of `response` be read than a model's reply may have."""
    if isinstance(response, BoundedResponse):
        response.bound_model_reply(_MODEL_REPLY_LIMIT_BYTES)


async def close_global_aiohttp_client() -> None:
    """Close the session of the running event loop, if there is one."""
    session = _SESSIONS.pop(asyncio.get_running_loop(), None)
    if session is not None:
        if (client := _MODEL_CLIENTS.pop(session, None)) is not None:
            client.close()
        await session.close()


def global_aiohttp_client_exit() -> None:
    """Close what is left of the sessions at exit, when their loops no longer run."""
    for session in list(_SESSIONS.values()):
        if not session.closed and session.connector is not None:
            session.connector._close()  # the loop is gone: nothing can be awaited
            session.detach()
    _SESSIONS.clear()


atexit.register(global_aiohttp_client_exit)
