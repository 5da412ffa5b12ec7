# SPDX-License-Identifier: Apache-2.0
"""Wait for the endpoints that model servers point to: one that is still loading its model refuses connections."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import aiohttp

from nemo_gym.errors import ConfigError

_PAUSE_S = 1.0
_PROBE_TIMEOUT_S = 5.0


def endpoint_urls(config: Mapping[str, Any]) -> dict[str, str]:
    """Every model endpoint of a config, by URL, with the key that names it."""
    found: dict[str, str] = {}
    for name, block in config.items():
        if isinstance(block, Mapping) and isinstance(block.get("responses_api_models"), Mapping):
            for key, url in _base_urls(block["responses_api_models"], f"{name}.responses_api_models"):
                found.setdefault(url, key)
    return found


def _base_urls(value: Any, key: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _base_urls(inner, f"{key}.{name}")
    elif key.endswith("base_url"):
        urls = value if isinstance(value, list) else [value]
        yield from ((key, url) for url in urls if isinstance(url, str) and url.startswith(("http://", "https://")))


async def wait_for_endpoints(urls: Mapping[str, str], timeout_s: float, notice: Callable[[str], None]) -> None:
    """Return when every endpoint answers something; raise one error that lists those that did not in time."""
    if not urls or timeout_s <= 0:
        return
    timeout = aiohttp.ClientTimeout(total=_PROBE_TIMEOUT_S)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        answers = await asyncio.gather(*(_answers(session, url, timeout_s, notice) for url in urls))
    silent = [f"  {url} ({urls[url]})" for url, answered in zip(urls, answers, strict=True) if not answered]
    if silent:
        raise ConfigError(
            f"no answer within {timeout_s:g} s from the model endpoint:\n" + "\n".join(silent) + "\n"
            "hint: start it, correct its URL, or skip this check with "
            "`++model_endpoint_readiness_timeout_seconds=0`"
        )


async def _answers(session: aiohttp.ClientSession, url: str, timeout_s: float, notice: Callable[[str], None]) -> bool:
    probe = f"{url.rstrip('/')}/models" if url.rstrip("/").endswith("/v1") else url
    told = False
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                try:
                    async with session.get(probe):
                        return True  # any status is an answer
                except (aiohttp.ClientConnectorCertificateError, aiohttp.ClientConnectorSSLError):
                    return True  # somebody is there
                except aiohttp.ClientConnectorDNSError as error:
                    notice(f"the host of the model endpoint {url} is unknown ({error}); not waiting for it")
                    return True
                except (aiohttp.ClientConnectionError, TimeoutError):
                    if not told:
                        notice(f"waiting for the model endpoint {url}")
                        told = True
                await asyncio.sleep(_PAUSE_S)
    except TimeoutError:
        return False
