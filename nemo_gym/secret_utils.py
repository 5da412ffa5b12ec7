# SPDX-License-Identifier: Apache-2.0
"""Hide the secrets of a config before it is shown or stored.

`nemo_gym._config.secret_lookup` decides what counts as a secret.
"""

from typing import Any

from omegaconf import DictConfig, ListConfig

from nemo_gym._config.secret_lookup import hide_secrets


def recursively_hide_secrets(config: DictConfig | ListConfig | dict[Any, Any]) -> None:
    """Replace every secret of `config` with `****`, in place: keys, tokens, passwords, credentials in URLs."""
    hide_secrets(config)
