# SPDX-License-Identifier: Apache-2.0
"""What an environment's parsed config says about its servers and datasets, for tables of environments."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nemo_gym._authoring.config_catalog import iter_server_blocks


@dataclass
class ServerMetadata:
    """An environment's row in a table; what its config does not say is None or empty."""

    domain: str | None = None
    description: str | None = None
    value: str | None = None
    verified: bool = False
    verified_url: str | None = None
    license: str | None = None
    """The license of the first dataset that names one: train before validation before others."""
    types: list[str] = field(default_factory=list)
    """The types of the datasets, such as `train`, without duplicates."""


def visit_resources_server(data: Mapping[str, Any]) -> ServerMetadata:
    """Return what a parsed config file says about its first resources server."""
    settings = next((block.settings for block in iter_server_blocks(data) if block.type == "resources_servers"), {})
    return _describe(settings)


def visit_agent_server(data: Mapping[str, Any]) -> ServerMetadata:
    """Return what a parsed config file says about its first agent, and about the datasets of all agents."""
    blocks = [block for block in iter_server_blocks(data) if block.type == "responses_api_agents"]
    described = _describe(blocks[0].settings if blocks else {})
    datasets = [dataset for block in blocks for dataset in block.datasets]
    by_use = sorted(datasets, key=lambda one: {"train": 0, "validation": 1}.get(str(one.get("type")), 2))
    described.license = next((str(one["license"]) for one in by_use if one.get("license")), None)
    described.types = list(dict.fromkeys(str(one["type"]) for one in datasets if one.get("type")))
    return described


def _describe(settings: Mapping[str, Any]) -> ServerMetadata:
    def text(key: str) -> str | None:
        return None if settings.get(key) is None else str(settings[key])

    return ServerMetadata(
        domain=text("domain"),
        description=text("description"),
        value=text("value"),
        verified=settings.get("verified") is True,
        verified_url=text("verified_url"),
    )
