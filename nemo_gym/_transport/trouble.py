# SPDX-License-Identifier: Apache-2.0
"""Why no connection came about, in words for people, and what they can do about it."""

import errno
from dataclasses import dataclass
from typing import Literal

import aiohttp

from nemo_gym._util.secret_names import mask_url_credentials

TroubleKind = Literal["refused", "unknown host", "TLS", "not HTTP", "redirect", "unreachable", "no answer", "broken"]


@dataclass(frozen=True)
class Trouble:
    """What kept a call from getting an answer."""

    kind: TroubleKind
    text: str
    hint: str


_REASON_SHOWN = 200

NO_TLS_THERE = Trouble("TLS", "it speaks plain HTTP, not TLS", "write `http://` instead of `https://` in the URL")
_REDIRECT_HINT = "check the path of the URL; if it has moved, write the new URL into the config"
REDIRECTS_IN_A_CIRCLE = Trouble("redirect", "it redirects in a circle", _REDIRECT_HINT)
ONLY_TLS_THERE = Trouble("TLS", "it speaks TLS, not plain HTTP", "write `https://` instead of `http://` in the URL")


def describe_trouble(error: BaseException) -> Trouble:
    """Return what `error`, which a connection or a call over it raised, says to a person."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        text = f"its certificate is not accepted ({error.certificate_error})"
        return Trouble("TLS", text, "give the host its certificate names, or let SSL_CERT_FILE name its authority")
    if isinstance(error, aiohttp.ClientSSLError):
        if "WRONG_VERSION_NUMBER" in str(error):
            return NO_TLS_THERE
        return Trouble("TLS", f"the TLS handshake failed ({error})", "check `http://` or `https://` in the URL")
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return Trouble("unknown host", f"the name {error.host!r} does not resolve", "check the host name in the URL")
    if isinstance(error, aiohttp.ClientConnectorError):
        cause = error.os_error
        if cause.errno == errno.ECONNREFUSED:
            hint = "check host and port of the URL, and that the server runs and listens there"
            return Trouble("refused", "connection refused", hint)
        return Trouble("unreachable", str(cause.strerror or cause), "check the host in the URL, and the network")
    if isinstance(error, aiohttp.TooManyRedirects):
        return REDIRECTS_IN_A_CIRCLE
    if isinstance(error, aiohttp.InvalidURL):
        return Trouble(
            "redirect", f"{mask_url_credentials(str(error.url))} is no URL that can be called", _REDIRECT_HINT
        )
    if isinstance(error, aiohttp.ClientResponseError):
        reason = " ".join(error.message.split())[:_REASON_SHOWN] or type(error).__name__
        hint = "check host and port of the URL: another kind of server listens there"
        return Trouble("not HTTP", f"its answer is not HTTP that can be read ({reason})", hint)
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return Trouble("unreachable", "no connection in time", "check host and port of the URL, and any firewall")
    if isinstance(error, TimeoutError):
        return Trouble("no answer", "connected, but no answer in time", "look at the log of the server")
    text = f"the connection broke before an answer came ({str(error) or type(error).__name__})"
    return Trouble("broken", text, "look at the log of the server")


def describe_redirect(origin: str) -> Trouble:
    """Return what a redirect to another origin, which is not followed, says to a person."""
    text = f"it redirects to {origin}, where the key is not sent"
    return Trouble("redirect", text, "if you trust that server, write its URL into the config instead")
