# SPDX-License-Identifier: Apache-2.0
"""Who may call a server: requests under the server's own name, from no foreign web page, with the token if one is set.

A browser runs the scripts of every page that its user visits, and it reaches loopback addresses. A page whose host name
is rebound to 127.0.0.1 is known by `Host`, one that posts to the server directly by `Origin`. This stands on sockets
only: calls between servers of one process do not pass here.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from nemo_gym._servers.http.api_errors import ErrorTranslator, find_api
from nemo_gym._servers.http.guard import json_reply
from nemo_gym._servers.processes.private_run_files import TOKEN_HEADER, same_token
from nemo_gym._util.reachable_addresses import is_loopback

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_TOKEN_HEADER = TOKEN_HEADER.lower().encode()
_PRIVATE_SUFFIXES = (".local", ".internal", ".svc")
"""No page of the internet has a name that ends like this."""
_MOST_REMEMBERED = 64
_UNAUTHORIZED = 401


@dataclass(frozen=True)
class AccessRules:
    """What a run's config says about who may call its servers."""

    allowed_hosts: tuple[str, ...] = ()
    """Names besides a server's own: it may be called by them, and from their pages. `*` stands for every name."""
    token: str | None = field(default=None, repr=False)
    """What every request has to carry, if anything."""
    allow_other_users: bool = False
    """Whether servers on loopback answer other users of this machine too."""

    @classmethod
    def from_config(cls, config: Mapping[Any, Any]) -> "AccessRules":
        """Read the keys `allowed_hosts`, `access_token` and `allow_other_users` of a global config."""
        hosts = config.get("allowed_hosts") or ()
        names = (hosts,) if isinstance(hosts, str) else hosts
        allow_other_users = bool(config.get("allow_other_users"))
        return cls(tuple(str(name).lower() for name in names), config.get("access_token"), allow_other_users)

    def asks_for_user(self, host: str) -> bool:
        """Whether it matters to a server that listens at `host` which user of this machine calls."""
        return is_loopback(host) and not self.allow_other_users


OWN_NAMES_ONLY = AccessRules()
"""What holds where a config says nothing."""


class Admission:
    """Passes on to `app` what may call a server that listens at `host`, and refuses the rest."""

    def __init__(self, app: ASGIApp, host: str, rules: AccessRules) -> None:
        self.app = app
        self._rules = rules
        self._is_local = is_loopback(host)
        self.asks_for_user = rules.asks_for_user(host)
        self._own_names = {"localhost", host.lower(), *rules.allowed_hosts}
        self._accepts_any_name = "*" in rules.allowed_hosts
        self._known_hosts = set[bytes]()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        refusal = await self.refuse(scope)
        if refusal is None:
            return await self.app(scope, receive, send)
        if scope["type"] == "websocket":
            return await send({"type": "websocket.close", "code": 1008})
        # An SDK without the token shall raise what it raises for a wrong key. Web pages are not SDKs.
        api = find_api(scope) if refusal.status_code == _UNAUTHORIZED else None
        return await refusal(scope, receive, send if api is None else ErrorTranslator(send, api))

    async def refuse(self, scope: Scope) -> Response | None:
        """Return the answer to a request that may not pass; None for one that may."""
        host = origin = site = given = None
        for name, value in scope["headers"]:
            if name == b"host":
                host = value if host is None else b"several hosts"
            elif name == b"origin":
                origin = value
            elif name == b"sec-fetch-site":
                site = value
            elif name == _TOKEN_HEADER or (name == b"authorization" and value[:7].lower() == b"bearer "):
                given = value.rpartition(b" ")[2]
        if host not in self._known_hosts and not await self._is_own_host(host, scope["http_version"]):
            return self.reply(421, _explain_foreign_host(host))
        is_from_page = origin is not None or site == b"cross-site"
        if is_from_page and scope.get("method") not in _SAFE_METHODS and not self._is_own_origin(origin, host):
            return self.reply(403, _explain_foreign_origin(origin))
        if self._rules.token is not None and not self.has_token(scope, given):
            return self.reply(_UNAUTHORIZED, _NO_TOKEN, {"www-authenticate": "Bearer"})
        return None

    def has_token(self, scope: Scope, given: bytes | None) -> bool:
        """Tell whether a request may pass that has `given` as its token."""
        return same_token(given.decode("latin-1") if given else None, self._rules.token or "")

    def reply(self, status: int, text: str, headers: Mapping[str, str] | None = None) -> Response:
        """Return the answer that says why a request was refused."""
        reply = json_reply(status, {"detail": text})
        reply.headers.update(headers or {})
        return reply

    async def _is_own_host(self, host: bytes | None, http_version: str) -> bool:
        if host is None:
            return http_version == "1.0"  # later versions require the header
        if not (self._accepts_any_name or await self._is_own_name(_read_host_name(host))):
            return False
        if len(self._known_hosts) < _MOST_REMEMBERED:
            self._known_hosts.add(host)
        return True

    async def _is_own_name(self, name: str) -> bool:
        if name in self._own_names:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            if self._is_local:
                return False
            # Names without a dot, and those of private networks, are no names of pages on the internet.
            if "." not in name or name.endswith(_PRIVATE_SUFFIXES):
                return True
            # The full name may have to be asked for, which takes as long as it takes.
            full_name = await asyncio.to_thread(socket.getfqdn)
            return name in (socket.gethostname().lower(), full_name.lower())
        return address.is_loopback or not self._is_local

    def _is_own_origin(self, origin: bytes | None, host: bytes | None) -> bool:
        authority = (origin or b"").partition(b"://")[2].lower()
        if authority and host and authority == host.lower():
            return True
        return self._accepts_any_name or (bool(authority) and _read_host_name(authority) in self._rules.allowed_hosts)


def _read_host_name(authority: bytes) -> str:
    """Return the host of `host:port`, without the brackets of an IPv6 address and the dot at the end of a full name."""
    text = authority.decode("latin-1").lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0].rstrip(".")


def _explain_foreign_host(host: bytes | None) -> str:
    named = repr(host.decode("latin-1")) if host is not None else "no host at all"
    return (
        f"the request was refused: it is addressed to {named}, which is not a name of this server.\n"
        "a web page could reach servers of this machine by a name of its own (DNS rebinding).\n"
        "hint: if the name is yours, add it to `allowed_hosts` in the config, as in `++allowed_hosts=[gym.example.com]`"
    )


def _explain_foreign_origin(origin: bytes | None) -> str:
    page = repr(origin.decode("latin-1")) if origin is not None else "another site"
    return (
        f"the request was refused: a web page of {page} has sent it, which is not a page of this server.\n"
        "any page that you visit could call servers of this machine that way.\n"
        "hint: if the page is yours, add its host to `allowed_hosts` in the config"
    )


_NO_TOKEN = (
    "the request was refused: it carries no access token, or a wrong one.\n"
    "the config of this run has an `access_token`, which every request needs.\n"
    f"hint: send it as the header `Authorization: Bearer TOKEN` or `{TOKEN_HEADER}: TOKEN`; "
    "`ServerClient` does so by itself where the environment has NEMO_GYM_RUN_TOKEN"
)
