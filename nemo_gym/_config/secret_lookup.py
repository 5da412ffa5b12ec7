# SPDX-License-Identifier: Apache-2.0
"""Find and mask the secrets of a config, by what a key means rather than by the letters it contains.

Values under the name of a credential or under one that `secret_keys` lists, the values of all headers, the users,
passwords and keys in URLs, and whatever has the shape of a token are masked wherever they occur, and so is every
repetition of such a value under an innocent key.
"""

from base64 import b64decode
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from nemo_gym._config.reserved_keys import SECRET_KEYS_KEY_NAME
from nemo_gym._util.known_secrets import MASK as MASK, KnownSecrets
from nemo_gym._util.secret_names import (
    is_headers_key,
    is_secret_header,
    is_secret_key as is_secret_key,
    is_secret_value,
    mark_secret_keys,
    mask_url_credentials as mask_url_credentials,
    read_url_credentials,
)

_NOT_SET = (None, "", "???", MASK)


def hide_secrets(config: DictConfig | ListConfig | dict[Any, Any] | list[Any]) -> None:
    """Mask every secret of `config`, in place."""
    known = KnownSecrets()
    known.add(find_secrets(config))
    _hide(config, known, secret=False, headers=False)


def dump_masked(config: DictConfig) -> str:
    """Return `config` as YAML for a message or a listing, with its secrets masked."""
    copy = OmegaConf.create(OmegaConf.to_container(config))
    hide_secrets(copy)
    return OmegaConf.to_yaml(copy)


def find_secrets(config: Any) -> list[str]:
    """Return every secret in `config`, or in another mapping such as the environment."""
    if isinstance(config, DictConfig | ListConfig):
        try:
            config = OmegaConf.to_container(config, resolve=True)
        except OmegaConfBaseException:  # an interpolation cannot be resolved, which is reported elsewhere
            config = OmegaConf.to_container(config)
    if isinstance(config, Mapping):
        mark_secret_keys(config.get(SECRET_KEYS_KEY_NAME))
    return [value for value in _list_secrets(config, secret=False, headers=False) if not _is_file_name(value)]


def _list_secrets(node: Any, *, secret: bool, headers: bool, key: Any = "") -> Iterator[str]:
    if isinstance(node, Mapping):
        for name, value in node.items():
            by_key = secret or is_secret_key(name) or (headers and is_secret_header(name, value))
            yield from _list_secrets(value, secret=by_key, headers=headers or is_headers_key(name), key=name)
    elif isinstance(node, list | tuple):
        for value in node:
            yield from _list_secrets(value, secret=secret, headers=headers, key=key)
    elif secret and node not in _NOT_SET and not isinstance(node, bool):
        yield from _read_credentials(str(node))
    elif isinstance(node, str) and is_secret_value(key, node):
        yield node
    elif isinstance(node, str) and "://" in node:
        yield from read_url_credentials(node)


def _read_credentials(value: str) -> Iterator[str]:
    """Yield what is secret in the value of a key or a header: all of it but the name of the scheme."""
    scheme, _, rest = value.partition(" ")
    if scheme.lower() not in ("bearer", "basic", "token"):
        yield value
        return
    yield rest.strip()
    if scheme.lower() == "basic":
        with suppress(ValueError):
            yield b64decode(rest).decode().partition(":")[2]


def _is_file_name(value: str) -> bool:
    """Return whether `value` is the path of a file with a secret, or an interpolation, rather than a secret."""
    return value.startswith("${") or (value.startswith(("/", "~", "./")) and Path(value).expanduser().exists())


def _hide(node: Any, known: KnownSecrets, *, secret: bool, headers: bool, key: Any = "") -> None:
    if isinstance(node, DictConfig):
        places = list(node.keys()) if not (node._is_none() or node._is_missing() or node._is_interpolation()) else []
    elif isinstance(node, dict):
        places = list(node)
    else:
        places = list(range(len(node)))
    is_mapping = isinstance(node, DictConfig | dict)
    for place in places:
        by_key = secret or (is_mapping and (headers or is_secret_key(place)))
        value = _read_raw(node, place)
        if isinstance(value, DictConfig | ListConfig | dict | list):
            within_headers = headers or (is_mapping and is_headers_key(place))
            _hide(value, known, secret=by_key, headers=within_headers, key=place if is_mapping else key)
            continue
        has_shape = isinstance(value, str) and is_secret_value(place if is_mapping else key, value)
        masked = _mask(value, known, secret=by_key or has_shape)
        if headers and not is_mapping and isinstance(value, str) and ":" in value:
            masked = f"{value.partition(':')[0]}: {MASK}"
        if masked != value:
            node[place] = masked


def _read_raw(node: Any, place: Any) -> Any:
    """Return the value as written: an interpolation stays one, since its target is masked where it is."""
    if not isinstance(node, DictConfig | ListConfig):
        return node[place]
    child: Any = node._get_node(place)
    special = child is None or child._is_none() or child._is_missing() or child._is_interpolation()
    return child._value() if child is not None and (special or not OmegaConf.is_config(child)) else child


def _mask(value: Any, known: KnownSecrets, *, secret: bool) -> Any:
    """Return `value` with its secrets masked; unset values and switches hold none, so they stay visible."""
    if secret and value not in _NOT_SET and not isinstance(value, bool):
        return MASK
    return known.mask(mask_url_credentials(value)) if isinstance(value, str) else value
