# SPDX-License-Identifier: Apache-2.0
"""Masks the secrets of a config, by what a key means rather than by the letters it contains.

Credentials inside URLs are masked wherever they stand. Values that hold a secret under a key with an innocent name
cannot be told apart from others and stay visible.
"""

import re
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf

MASK = "****"

_SECRET_KEY = re.compile(
    r"""(^|_)(api_?keys?|private_keys?|access_keys?(_id)?|signing_keys?|encryption_keys?|token|auth_tokens|credentials?
         |authorization)$
        |password|passwd|passphrase|secret""",
    re.VERBOSE,
)
# Pieces of a tokenizer, not credentials.
_VOCABULARY_TOKEN = re.compile(r"(^|_)(eos|bos|pad|unk|sep|cls|mask|stop|image|think|max|min|num)_token$")
_URL_CREDENTIALS = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)[^\s/?#@]+@")


def is_secret_key(key: Any) -> bool:
    """Whether a value under `key` is a secret: `policy_api_key` is, `max_output_tokens` is not."""
    name = re.sub(r"[-. ]", "_", str(key)).lower()
    return bool(_SECRET_KEY.search(name)) and not _VOCABULARY_TOKEN.search(name)


def hide_secrets(config: DictConfig | ListConfig | dict[Any, Any] | list[Any]) -> None:
    """Mask every secret of `config`, in place."""
    _hide(config, secret=False)


def masked_yaml(config: DictConfig) -> str:
    """`config` as YAML for a message or a listing; the config itself keeps its values."""
    copy = OmegaConf.create(OmegaConf.to_container(config))
    hide_secrets(copy)
    return OmegaConf.to_yaml(copy)


def mask_url_credentials(text: str) -> str:
    """Return `text` with the user and password of every URL in it masked."""
    return _URL_CREDENTIALS.sub(rf"\g<scheme>{MASK}@", text)


def _hide(node: Any, *, secret: bool) -> None:
    if isinstance(node, DictConfig):
        places = list(node.keys()) if not (node._is_none() or node._is_missing() or node._is_interpolation()) else []
    elif isinstance(node, dict):
        places = list(node)
    else:
        places = list(range(len(node)))
    for place in places:
        by_key = secret or (isinstance(node, DictConfig | dict) and is_secret_key(place))
        value = _raw(node, place)
        if isinstance(value, DictConfig | ListConfig | dict | list):
            _hide(value, secret=by_key)
        elif (masked := _masked(value, secret=by_key)) != value:
            node[place] = masked


def _raw(node: Any, place: Any) -> Any:
    """The value as written: an interpolation stays one, since what it points to is masked in its own place."""
    if not isinstance(node, DictConfig | ListConfig):
        return node[place]
    child: Any = node._get_node(place)
    special = child is None or child._is_none() or child._is_missing() or child._is_interpolation()
    return child._value() if child is not None and (special or not OmegaConf.is_config(child)) else child


def _masked(value: Any, *, secret: bool) -> Any:
    """Nothing is hidden where there is nothing to hide: unset values and switches stay visible."""
    if secret and value not in (None, "", "???") and not isinstance(value, bool):
        return MASK
    return mask_url_credentials(value) if isinstance(value, str) else value
