# SPDX-License-Identifier: Apache-2.0
"""Hides the secrets of a config before it is shown or stored.

What counts as a secret is decided in `nemo_gym._config.secrets`.
"""

from typing import Any

from omegaconf import DictConfig, ListConfig

from nemo_gym._config.secrets import hide_secrets


def recursively_hide_secrets(config: DictConfig | ListConfig | dict[Any, Any]) -> None:
    """Replace every secret of `config` by `****`, in place: keys, tokens, passwords, credentials in URLs."""
    hide_secrets(config)
