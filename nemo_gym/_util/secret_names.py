# SPDX-License-Identifier: Apache-2.0
"""What is a secret: by the name it stands under, and by its place in a URL."""

import re
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import unquote

from nemo_gym._util.known_secrets import MASK

_SECRET_KEY = re.compile(
    r"""(^|_)(api_?keys?|private_keys?|access_keys?(_id)?|signing_keys?|encryption_keys?|token|auth_tokens|credentials?
         |authorization|auth|bearer|cookies?)$
        |password|passwd|passphrase|secret""",
    re.VERBOSE,
)
# Pieces of a tokenizer, not credentials.
_VOCABULARY_TOKEN = re.compile(r"(^|_)(eos|bos|pad|unk|sep|cls|mask|stop|image|think|max|min|num)_token$")
_HEADERS_KEY = re.compile(r"(^|_)headers$")
_SECRET_HEADER = re.compile(r"auth|key|token|cookie|secret|signature|credential|passw")
_SECRET_PARAMETER = re.compile(r"^(key|sig|code|pwd)$|signature$|credential$")

_URL = re.compile(r"""(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)(?P<place>[^\s?#"'<>]*)(?P<rest>[?#][^\s"'<>]*)?""")
_PARAMETER = re.compile(r"(?P<name>[^?&#;=]+)=(?P<value>[^&#;]+)")
# `name: value` in a mapping that an override writes out.
_ENTRY = re.compile(r"""(?P<name>[A-Za-z_][\w.-]*)['"]?\s*:\s*(?!//)""")
_VALUE = re.compile(r"""\{[^}]*\}?|"[^"]*"?|'[^']*'?|[^,}\]]+""")
_HOST = re.compile(r"([\w-]+(\.[\w-]+)*\.[A-Za-z]{2,}|localhost|[\d.]{7,}|\[[\da-fA-F:]+\]|[\w-]+(?=:\d))(:\d+)?(/|$)")
_PLAIN_AUTHORITY = re.compile(r"[^@:]*(?P<port>:\d{1,5})?|\[[\da-fA-F:]+\](:\d+)?")


def is_secret_key(key: Any) -> bool:
    """Whether a value under `key` is a secret: `policy_api_key` is, `max_output_tokens` is not."""
    name = _normalize(key)
    return bool(_SECRET_KEY.search(name)) and not _VOCABULARY_TOKEN.search(name)


def is_headers_key(key: Any) -> bool:
    """Whether the values under `key` are headers of a request, none of which is shown."""
    return bool(_HEADERS_KEY.search(_normalize(key)))


def is_secret_header(name: Any) -> bool:
    """Whether the value of the header `name` lets somebody in."""
    return bool(_SECRET_HEADER.search(_normalize(name)))


def mask_url_credentials(text: str) -> str:
    """Return `text` with the user, the password and the parameters that are keys masked in every URL."""
    return _URL.sub(_mask_url, text) if "://" in text else text


def read_url_credentials(text: str) -> Iterator[str]:
    """Yield the passwords of the URLs in `text`, and their parameters that are keys, as they are sent."""
    for url in _URL.finditer(text):
        credentials = url["place"][: max(0, _find_host(url["place"]) - 1)]
        user, _, password = credentials.partition(":")
        yield from (unquote(part) for part in (password or user,) if part)
        for parameter in _PARAMETER.finditer(url["rest"] or ""):
            if _is_secret_parameter(parameter["name"]):
                yield unquote(parameter["value"])


def mask_arguments(arguments: Sequence[str]) -> list[str]:
    """Return the words of a command line with their secrets masked, whether given by a flag or by an override."""
    masked, is_value = list[str](), False
    for word in arguments:
        masked.append(MASK if is_value and word else mask_argument(word))
        is_value = word.startswith("-") and "=" not in word and is_secret_key(word.lstrip("-"))
    return masked


def mask_argument(word: str) -> str:
    """Return one word of a command line, such as `+policy_api_key=…`, with its secrets masked."""
    name, equals, value = word.partition("=")
    keys = name.lstrip("+~-").split(".")
    if equals and value and any(is_secret_key(key) or is_headers_key(key) for key in keys):
        return f"{name}={MASK}"
    return mask_url_credentials(_mask_entries(word)) if equals else mask_url_credentials(word)


def _mask_entries(text: str) -> str:
    """Mask the secrets of a mapping that is written out."""
    masked, done = "", 0
    for entry in _ENTRY.finditer(text):
        value = _VALUE.match(text, entry.end())
        if entry.start() >= done and value and (is_secret_key(entry["name"]) or is_headers_key(entry["name"])):
            masked, done = f"{masked}{text[done : entry.end()]}{MASK}", value.end()
    return masked + text[done:]


def _normalize(key: Any) -> str:
    return re.sub(r"[-. ]", "_", str(key)).lower()


def _is_secret_parameter(name: str) -> bool:
    return is_secret_key(name) or bool(_SECRET_PARAMETER.search(_normalize(name)))


def _mask_url(url: re.Match[str]) -> str:
    place = url["place"]
    host = _find_host(place)
    shown = f"{MASK}@{place[host:]}" if host else place
    return url["scheme"] + shown + _PARAMETER.sub(_mask_parameter, url["rest"] or "")


def _mask_parameter(parameter: re.Match[str]) -> str:
    return f"{parameter['name']}={MASK}" if _is_secret_parameter(parameter["name"]) else parameter[0]


def _find_host(place: str) -> int:
    """Return where the host begins behind user and password, which may hold `/` and `@`; 0 if there are none."""
    ends = [match.end() for match in re.finditer("@", place)]
    hosts = [end for end in ends if _HOST.match(place, end)]
    plain = _PLAIN_AUTHORITY.fullmatch(place.partition("/")[0])
    if plain is None and ends:
        # A path may hold an `@` of its own, as in `repository@main`, so the last one counts that has a host behind it.
        return (hosts or ends)[-1]
    # What looks like a port may also be the beginning of a password with a slash in it.
    return hosts[-1] if hosts and plain is not None and plain["port"] else 0
