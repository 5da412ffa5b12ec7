# SPDX-License-Identifier: Apache-2.0
"""Where the servers of a config are reached."""

import os
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from omegaconf import DictConfig

from nemo_gym._servers.direct_calls.call import ServerAddress
from nemo_gym._servers.http.admission import AccessRules
from nemo_gym._servers.ray.replica_calls import is_placed_on_ray

MODEL_SERVER_NAME_ENV = "NEMO_GYM_MODEL_SERVER_NAME"
MODEL_SERVER_BASE_URL_ENV = "NEMO_GYM_MODEL_SERVER_BASE_URL"


def find_server_address(
    global_config_dict: DictConfig, server_name: str, block: DictConfig, build_base_url: Callable[[Any], str]
) -> ServerAddress:
    """Return where the server `server_name`, whose config is `block`, is reached and what calls to it carry.

    Whoever starts a process may send its calls to one model server elsewhere, by two environment variables.
    """
    moved_to = os.environ.get(MODEL_SERVER_BASE_URL_ENV)
    is_moved = bool(moved_to) and os.environ.get(MODEL_SERVER_NAME_ENV) == server_name
    url = moved_to.rstrip("/") if moved_to and is_moved else build_base_url(block)
    parts = urlsplit(url)
    return ServerAddress(
        server_type=str(next(iter(global_config_dict[server_name]), "")),
        host=parts.hostname or "",
        port=parts.port or (443 if parts.scheme == "https" else 80),
        base_url=url,
        is_observed=bool(global_config_dict.get("observability_enabled")),
        token=AccessRules.from_config(global_config_dict).token,
        is_replicated=not is_moved and is_placed_on_ray(global_config_dict, block),
    )
