# SPDX-License-Identifier: Apache-2.0
"""What is a secret: by the name it stands under, by its place in a URL, and by its shape."""

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import unquote

from nemo_gym._util.known_secrets import MASK

_SECRET_KEY = re.compile(
    r"""(^|_)(api_?keys?|private_keys?|access_keys?(_id)?|signing_keys?|encryption_keys?|token|auth_tokens|credentials?
         |authorization|auth|bearer|cookies?|pat|pwd|dsn|conn(ection)?_str(ing)?)$
        |password|passwd|passphrase|secret""",
    re.VERBOSE,
)
# Names that may stand for a secret or for something harmless: the value decides.
_TELLING_KEY = re.compile(
    r"(^|_)(keys?|tokens?|webhooks?(_urls?)?|hooks?|sas|signatures?|licen[sc]e|salt|seed_phrase)$"
)
_OWN_NAMES = frozenset({"secret_keys"})  # it lists names
_MARKED = set[str]()
# Pieces of a tokenizer, not credentials.
_VOCABULARY_TOKEN = re.compile(r"(^|_)(eos|bos|pad|unk|sep|cls|mask|stop|image|think|max|min|num)_token$")
_HEADERS_KEY = re.compile(r"(^|_)headers?$")
_SECRET_HEADER = re.compile(r"auth|key|token|cookie|secret|signature|credential|passw")
_SECRET_PARAMETER = re.compile(r"^(key|sig|code|pwd)$|signature$|credential$")

_TOKEN_SHAPE = re.compile(
    r"""(?<![A-Za-z0-9_-])(
        (sk|pk|rk)[-_][A-Za-z0-9_-]{16,}            # OpenAI, Anthropic, Stripe
        |(hf|api_org)_[A-Za-z0-9]{16,}              # Hugging Face
        |gh[opsru]_[A-Za-z0-9]{20,}|github_pat_\w{20,}
        |glpat-[\w-]{16,}|nvapi-[\w-]{16,}|xox[abeoprs]-[\w-]{10,}|xapp-[\w-]{10,}
        |A[KS]IA[0-9A-Z]{16}|AIza[\w-]{30,}|ya29\.[\w-]{16,}|npm_[A-Za-z0-9]{30,}|pypi-[\w-]{40,}|dop_v1_[0-9a-f]{40,}
        |eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{8,}      # JWT
        )(?![A-Za-z0-9_-])
        |-----BEGIN[ A-Z]*PRIVATE[ ]KEY-----""",
    re.VERBOSE,
)
_WORD = re.compile(r"[A-Za-z0-9_+=-]+")
_SHORTEST_RANDOM = 16
_BITS_PER_CHARACTER = 3.0

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
    if name in _MARKED:
        return True
    return bool(_SECRET_KEY.search(name)) and not _VOCABULARY_TOKEN.search(name) and name not in _OWN_NAMES


def mark_secret_keys(names: Any) -> None:
    """Take the values under `names` for secrets from now on; the check of the config refuses what is no list."""
    if isinstance(names, Sequence) and not isinstance(names, str):
        _MARKED.update(_normalize(name) for name in names)


def is_secret_value(key: Any, value: str) -> bool:
    """Whether `value` has the shape of a secret: a known kind of token, or random letters under a telling name."""
    if _TOKEN_SHAPE.search(value):
        return True
    return bool(_TELLING_KEY.search(_normalize(key))) and looks_random(value)


def looks_random(text: str) -> bool:
    """Whether `text` is one long word of letters and digits in no order: no path, sentence, number or name."""
    has_both = any(map(str.isdigit, text)) and any(map(str.isalpha, text))
    if len(text) < _SHORTEST_RANDOM or not has_both or not _WORD.fullmatch(text):
        return False
    shares = [text.count(character) / len(text) for character in set(text)]
    return -sum(share * math.log2(share) for share in shares) >= _BITS_PER_CHARACTER


def is_headers_key(key: Any) -> bool:
    """Whether the values under `key` are headers of a request, none of which is shown."""
    return bool(_HEADERS_KEY.search(_normalize(key)))


def is_secret_header(name: Any, value: Any) -> bool:
    """Whether `value`, of the header `name`, lets somebody in. No header is shown; those that do are masked in logs."""
    return bool(_SECRET_HEADER.search(_normalize(name))) or (isinstance(value, str) and looks_random(value))


def mask_url_credentials(text: str) -> str:
    """Return `text` with the user, the password and the parameters that are keys masked in every URL."""
    return _URL.sub(_mask_url, text) if "://" in text else text


def read_url_credentials(text: str) -> Iterator[str]:
    """Yield the passwords of the URLs in `text`, and their parameters that are keys, as they are sent."""
    for url in _URL.finditer(text):
        credentials = url["place"][: max(0, _find_host(url["place"]) - 1)]
        user, _, password = credentials.partition(":")
        yield from (unquote(part) for part in (password or user,) if part)
        yield from _find_hook_tokens(url["place"])
        for parameter in _PARAMETER.finditer(url["rest"] or ""):
            if _is_secret_parameter(parameter["name"]):
                yield unquote(parameter["value"])


def mask_arguments(arguments: Sequence[str]) -> list[str]:
    """Return the words of a command line with their secrets masked, whether given by a flag or by an override."""
    masked = list[str]()
    is_value = False
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
    masked = ""
    done = 0
    for entry in _ENTRY.finditer(text):
        value = _VALUE.match(text, entry.end())
        if entry.start() >= done and value and (is_secret_key(entry["name"]) or is_headers_key(entry["name"])):
            masked = f"{masked}{text[done : entry.end()]}{MASK}"
            done = value.end()
    return masked + text[done:]


def _normalize(key: Any) -> str:
    """Return a name in snake case, whatever case it is in."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", str(key))
    return re.sub(r"[-. _]+", "_", words).lower()


def _is_secret_parameter(name: str) -> bool:
    return is_secret_key(name) or bool(_SECRET_PARAMETER.search(_normalize(name)))


def _mask_url(url: re.Match[str]) -> str:
    place = url["place"]
    host = _find_host(place)
    shown = f"{MASK}@{place[host:]}" if host else place
    for token in _find_hook_tokens(place):
        shown = shown.replace(token, MASK)
    return url["scheme"] + shown + _PARAMETER.sub(_mask_parameter, url["rest"] or "")


def _find_hook_tokens(place: str) -> list[str]:
    """Return the parts of a webhook's path that let whoever knows them post there."""
    if "hook" not in place.lower():
        return []
    return [part for part in place.split("/")[1:] if looks_random(part)]


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
