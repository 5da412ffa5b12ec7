# SPDX-License-Identifier: Apache-2.0
"""Calls of this process to servers that run as replicas on a Ray cluster, wherever those are at the moment."""

import logging
import os
import urllib.request
from collections.abc import Iterable, Mapping
from typing import Any

import aiohttp
import orjson
from fastapi import FastAPI
from omegaconf import DictConfig, OmegaConf

from nemo_gym._config.server_types import list_server_types
from nemo_gym._servers.direct_calls import running_apps as registry
from nemo_gym._servers.http_session import get_global_aiohttp_client, is_global_aiohttp_client_request_debug_enabled
from nemo_gym._servers.process_environment import run_token_header
from nemo_gym._servers.ray.replicas import REPLICA_ENV, AddressBook, ReplicaSessions
from nemo_gym._transport import http_calls as http
from nemo_gym._transport.retries import RetryPolicy
from nemo_gym._transport.stand_ins import read_address
from nemo_gym._util.trim_buffer import trim_buffer
from nemo_gym.config_types import BaseServerConfig
from nemo_gym.global_config import HEAD_SERVER_KEY_NAME, get_first_server_config_dict

LOG = logging.getLogger(__name__)
_ONCE = RetryPolicy(unsent=1, repeatable=1)
_HEAD_TIMEOUT_S = 30.0
_PROBE_TIMEOUT_S = 5.0
# Nodes that died do not even refuse: connecting to one takes as long as it may.
_CONNECT_TIMEOUT_S = 15.0

_books: dict[tuple[str, int], AddressBook] = {}


def is_placed_on_ray(config: Mapping[Any, Any], block: Mapping[Any, Any]) -> bool:
    """Tell whether the server with this block of `config` runs as actors of a Ray cluster."""
    if block.get("external"):
        return False
    return (block.get("placement") or config.get("default_placement")) == "ray"


def find_base_url(config: DictConfig, block: DictConfig) -> str:
    """Return the base URL of the server with this block of `config`; that of one replica, if Ray has placed it.

    For clients that keep to one address. Blocks for a moment where the head server has to be asked.
    """
    where = read_address(block)
    url = f"http://{where[0]}:{where[1]}"
    if not is_placed_on_ray(config, block):
        return url
    head = BaseServerConfig.model_validate(OmegaConf.to_container(config[HEAD_SERVER_KEY_NAME], resolve=True))
    for name in config:
        if list_server_types(config._get_node(name)):
            other = get_first_server_config_dict(config, str(name))
            if (other.get("host"), other.get("port")) == where:
                return find_replica_url(head, str(name)) or url
    return url


def guard_replica_sessions(app: FastAPI, server: str, has_affinity: bool) -> None:
    """Let `app` answer only the sessions of the replica that this process is, if it is one."""
    replica_id = os.environ.get(REPLICA_ENV)
    if replica_id and has_affinity:
        app.add_middleware(ReplicaSessions, server=server, replica_id=replica_id)


async def call_replica(
    head: BaseServerConfig, server: str, method: str, path: str, **kwargs: Any
) -> aiohttp.ClientResponse:
    """Call the replica of `server` that holds the session of this call; any, if it has none yet."""
    session = get_global_aiohttp_client()
    idempotent = kwargs.pop("_idempotent", None)
    if (body := kwargs.pop("json", None)) is not None:
        kwargs["data"] = trim_buffer(http.encode_json(body))  # held until the answer is there
        kwargs["headers"] = {"Content-Type": http.JSON_CONTENT_TYPE, **(kwargs.get("headers") or {})}
    kwargs.setdefault("timeout", aiohttp.ClientTimeout(session.timeout.total, sock_connect=_CONNECT_TIMEOUT_S))

    async def call_url(base_url: str) -> aiohttp.ClientResponse:
        if is_global_aiohttp_client_request_debug_enabled():
            LOG.info("%s %s%s", method, base_url, path)
        response: Any = await http.send(session, method, f"{base_url}{path}", policy=_ONCE, **kwargs)
        return response  # type: ignore[no-any-return]

    book = find_address_book(head)
    cookies = kwargs.get("cookies")
    return await book.call(server, method, cookies, call_url, is_alive=_is_alive, idempotent=idempotent)


def find_address_book(head: BaseServerConfig) -> AddressBook:
    """Return what this process knows of the replicas of the run whose head server is at `head`."""

    async def ask_head() -> Iterable[Mapping[str, Any]]:
        timeout = aiohttp.ClientTimeout(total=_HEAD_TIMEOUT_S)
        url = f"http://{head.host}:{head.port}/server_instances"
        reply = await http.send(
            get_global_aiohttp_client(),
            "GET",
            url,
            policy=RetryPolicy(),
            headers=run_token_header(head),
            timeout=timeout,
        )
        listed: list[dict[str, Any]] = []
        if reply.ok:
            listed = orjson.loads(await reply.read())
        return listed

    return _books.setdefault((head.host, head.port), AddressBook(ask_head))


def forget_address_book(head: BaseServerConfig) -> None:
    """Forget the replicas of a run that has ended."""
    _books.pop((head.host, head.port), None)


def find_replica_url(head: BaseServerConfig, server: str) -> str | None:
    """Return the URL of one replica of `server`; None while none is known to run."""
    book = find_address_book(head)
    # The head server of this very process would wait for itself, and tells this process without being asked.
    if not book.list_replicas(server) and not registry.is_in_this_process(head.host, head.port):
        url = f"http://{head.host}:{head.port}/server_instances"
        request = urllib.request.Request(url, headers=run_token_header(head))
        try:
            with urllib.request.urlopen(request, timeout=_PROBE_TIMEOUT_S) as response:
                book.note_instances(orjson.loads(response.read()))
        except (OSError, ValueError):
            return None
    return next((replica.url for replica in book.list_replicas(server)), None)


async def _is_alive(base_url: str) -> bool:
    timeout = aiohttp.ClientTimeout(total=_PROBE_TIMEOUT_S)
    try:
        async with get_global_aiohttp_client().get(f"{base_url}/", timeout=timeout):
            return True
    except aiohttp.ClientConnectorError:
        return False
    except (aiohttp.ClientError, TimeoutError):
        return True  # somebody is there, and busy
