# SPDX-License-Identifier: Apache-2.0
"""What a dataset and its collection are called on the Hugging Face Hub, from the config of its resources server."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from nemo_gym._config.files import load_file

_SERVERS = "resources_servers"


def repository_name(organization: str, prefix: str, domain: str, name: str) -> str:
    """`organization/prefix-domain-name`; what is empty takes its dash along."""
    return f"{organization}/{'-'.join(part for part in (prefix, domain, name) if part)}"


def collection_name(organization: str, title: str, slug: str) -> str:
    """`organization/title-in-lower-case-slug`, as in the URL of a collection."""
    return f"{organization}/{title.lower().replace(' ', '-')}-{slug}"


def server_of(config_path: str) -> str:
    """The server that a config belongs to: `a` of `resources_servers/a/configs/b.yaml`, wherever that folder lies."""
    parts = Path(config_path).parts
    if _SERVERS in parts[:-1]:
        return parts[len(parts) - parts[::-1].index(_SERVERS)]
    return parts[1] if len(parts) > 1 else ""


def domain_of(config_path: Path) -> str:
    """The domain of the first resources server in a config that has one, in lower case; empty if none has."""
    plain: Any = OmegaConf.to_container(load_file(config_path).config, resolve=False)
    return next((domain.lower() for domain in _domains(plain)), "")


def _domains(config: Mapping[str, Any]) -> Iterator[str]:
    for instance in config.values():
        servers = instance.get(_SERVERS) if isinstance(instance, Mapping) else None
        for server in servers.values() if isinstance(servers, Mapping) else ():
            domain = server.get("domain") if isinstance(server, Mapping) else None
            if isinstance(domain, str) and domain:
                yield domain
