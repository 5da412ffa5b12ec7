# SPDX-License-Identifier: Apache-2.0
"""What tests of servers hand in instead of the real thing: the only module that knows of test doubles.

Some are mocks, which have every attribute; others have only a few. They are read as far as they go.
tests/contract/test_stand_ins.py says what must work.
"""

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import aiohttp
from omegaconf import DictConfig

from nemo_gym._transport.whole_response import WholeResponse


def is_stand_in(response: Any) -> bool:
    """Return whether a reply is a test double; a mock may claim any class."""
    return not isinstance(response, aiohttp.ClientResponse | WholeResponse) or hasattr(response, "_mock_name")


async def read_stand_in(response: Any) -> bytes | None:
    """Return the body of a double; None if it has only `json`."""
    for holder in (response, getattr(response, "content", None)):
        read = getattr(holder, "read", None)
        found = read() if read is not None else None
        if inspect.isawaitable(found):
            found = await found
        if isinstance(found, str):
            return found.encode()
        if isinstance(found, bytes | bytearray):
            return bytes(found)
    return None


def find_config(client: Any) -> Mapping[str, Any] | DictConfig | None:
    """Return the global config of a client; None if it is a double without one."""
    config: Any = getattr(client, "global_config_dict", None)
    return config if isinstance(config, Mapping | DictConfig) else None


def find_path_parameters(request: Any) -> Mapping[str, Any]:
    """Return the path parameters of a request, which may have none."""
    return getattr(request, "path_params", None) or {}


def find_path(request: Any) -> str:
    """Return the path of a request, which may have only path parameters."""
    return getattr(getattr(request, "url", None), "path", "")


def read_address(block: Any) -> tuple[Any, Any]:
    """Return the host and the port in a server's block of the config, which may have them as attributes only."""
    if isinstance(block, Mapping):
        return block["host"], block["port"]
    return block.host, block.port


@cache
def takes_request(handler: Callable[..., Any]) -> bool:
    """Return whether a handler has a parameter `request`. The mock of one may have no signature (Python < 3.11.4)."""
    try:
        return "request" in inspect.signature(handler).parameters
    except TypeError:
        return False
