# SPDX-License-Identifier: Apache-2.0
"""Ask the endpoints of model servers whether they answer, and wait for those that are still loading their model."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import aiohttp
from yarl import URL

from nemo_gym._config.secret_lookup import mask_url_credentials
from nemo_gym._transport.call_errors import NO_TLS_THERE, ONLY_TLS_THERE, Trouble, describe_trouble
from nemo_gym.errors import ConfigError

_PAUSE_S = 1.0
_PROBE_TIMEOUT_S = 5.0
_CONNECT_TIMEOUT_S = 3.0
_SKIP = "`++model_endpoint_readiness_timeout_seconds=0` skips this check"

Tell = Callable[[str], None]


def find_endpoint_urls(config: Mapping[str, Any]) -> dict[str, str]:
    """Every model endpoint of a config, by URL, with the key that names it."""
    found: dict[str, str] = {}
    for name, block in config.items():
        if isinstance(block, Mapping) and isinstance(block.get("responses_api_models"), Mapping):
            for key, url in _find_base_urls(block["responses_api_models"], f"{name}.responses_api_models"):
                found.setdefault(url, key)
    return found


def _find_base_urls(value: Any, key: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _find_base_urls(inner, f"{key}.{name}")
    elif key.endswith("base_url"):
        urls = value if isinstance(value, list) else [value]
        yield from ((key, url) for url in urls if isinstance(url, str) and url.startswith(("http://", "https://")))


async def wait_for_endpoints(
    urls: Mapping[str, str], timeout_s: float, notice: Tell, count: Tell, *, must_answer: bool = False
) -> None:
    """Return when every endpoint answers something; ConfigError lists those that did not within `timeout_s`.

    `count` is told every second how long it has been, and an empty text at the end. A host that is unknown and a URL
    that is wrong about TLS are told once as a `notice` and not waited for: servers do without a model until somebody
    calls it. `must_answer`: somebody is about to. Then TLS is an error at once, an unknown host is waited for as well,
    and with 0 seconds all that cannot be called is an error; who takes the connection and is silent is only busy.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()
    waiting = list(urls)
    timeout = aiohttp.ClientTimeout(total=_PROBE_TIMEOUT_S, sock_connect=_CONNECT_TIMEOUT_S)
    not_waited_for = ("TLS",) if must_answer else ("TLS", "unknown host")
    try:
        async with aiohttp.ClientSession(timeout=timeout) as session:
            while True:
                found = await asyncio.gather(*(_probe(session, url) for url in waiting))
                troubles = {url: trouble for url, trouble in zip(waiting, found, strict=True) if trouble is not None}
                if timeout_s == 0:
                    troubles = {url: one for url, one in troubles.items() if one.kind not in ("no answer", "broken")}
                lasting = {url: one for url, one in troubles.items() if one.kind in not_waited_for}
                if lasting and must_answer:
                    raise ConfigError(f"the model cannot be called:\n{_list_troubles(lasting, urls)}; {_SKIP}")
                if lasting:
                    notice(f"the model cannot be called, and is not waited for:\n{_list_troubles(lasting, urls)}")
                waiting = [url for url in troubles if url not in lasting]
                if not waiting:
                    return
                elapsed_s = loop.time() - began
                if elapsed_s >= timeout_s:
                    raise _build_no_answer_error({url: troubles[url] for url in waiting}, urls, timeout_s)
                more = f" and {len(waiting) - 1} more" if len(waiting) > 1 else ""
                where = f"{mask_url_credentials(waiting[0])}{more}"
                trouble = troubles[waiting[0]].text
                count(f"waiting for the model at {where}: {elapsed_s:.0f} s, {trouble}; Ctrl-C ends it")
                await asyncio.sleep(min(_PAUSE_S, timeout_s - elapsed_s))
    finally:
        count("")


async def _probe(session: aiohttp.ClientSession, url: str) -> Trouble | None:
    """Return what keeps `url` from answering; any HTTP status is an answer, unless it is one to the wrong scheme."""
    try:
        probe = URL(f"{url.rstrip('/')}/models" if url.rstrip("/").endswith("/v1") else url)
    except ValueError:
        return Trouble(
            "unknown host", "it is no URL that can be called", "write `/`, `@` and `:` of a password as %2F, %40, %3A"
        )
    try:
        async with session.get(probe, allow_redirects=False) as response:
            if response.status != 400 or probe.scheme == "https":
                return None
            trouble = None
    except (aiohttp.ClientError, TimeoutError) as error:
        trouble = describe_trouble(error)
        if trouble.kind in ("refused", "unknown host", "TLS"):
            return trouble
    # A server that is spoken to in the wrong scheme says 400, hangs up or waits for more: ask in the other one.
    is_https = probe.scheme == "https"
    try:
        async with session.get(
            probe.with_scheme("http" if is_https else "https"), ssl=False, allow_redirects=False
        ) as response:
            return NO_TLS_THERE if is_https else ONLY_TLS_THERE
    except (aiohttp.ClientError, TimeoutError):
        return trouble


def _build_no_answer_error(troubles: Mapping[str, Trouble], keys: Mapping[str, str], timeout_s: float) -> ConfigError:
    if timeout_s:
        return ConfigError(f"no model answers within {timeout_s:g} s:\n{_list_troubles(troubles, keys)}; {_SKIP}")
    longer = "`--wait-for-model SECONDS` waits for a model that is still loading"
    return ConfigError(f"no model answers:\n{_list_troubles(troubles, keys)}; {longer}; {_SKIP}")


def _list_troubles(troubles: Mapping[str, Trouble], keys: Mapping[str, str]) -> str:
    lines = [f"  {mask_url_credentials(url)} ({keys[url]}): {trouble.text}" for url, trouble in troubles.items()]
    hints = dict.fromkeys(trouble.hint for trouble in troubles.values())
    return "\n".join([*lines, f"hint: {'; '.join(hints)}"])
