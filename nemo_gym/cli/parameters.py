# SPDX-License-Identifier: Apache-2.0
"""The config keys of commands that read the config as a whole, or nothing of it; `+help=true` shows them."""

from typing import Any, Literal

from pydantic import Field

from nemo_gym.config_types import BaseNeMoGymCLIConfig


class VersionConfig(BaseNeMoGymCLIConfig):
    """Display the version of NeMo Gym and of what it runs on."""

    json_format: bool = Field(
        default=False, alias="json", description="Output in JSON format for programmatic use; given as `+json=true`."
    )


class ListConfig(BaseNeMoGymCLIConfig):
    """List what there is in the catalogue, or show all there is to know of one of its entries."""

    component_name: str | None = Field(default=None, description="The entry to show, by its name.")
    json_format: bool = Field(default=False, alias="json", description="Print JSON.")
    domain: str | None = Field(default=None, description="Only those of this domain.")
    catalog_kind: Literal["environment", "benchmark"] | None = Field(
        default=None, description="With `list environments`: what to list."
    )
    modality: str | None = Field(default=None, description="Only those of this modality.")
    licensing: str | None = Field(default=None, description="Only those under this licence.")
    status: Literal["experimental", "no-manifest"] | None = Field(
        default=None, description="Only those of this status."
    )
    lifecycle: Literal["active", "deprecated"] | None = Field(default=None, description="Only those at this stage.")


class SearchConfig(BaseNeMoGymCLIConfig):
    """Find what the catalogue holds by a part of a word, or by a word that is spelt alike."""

    query: str = Field(description="What to search for: in names, datasets, domains, agents, descriptions.")
    catalog_type: Literal["benchmarks", "environments", "agents", "models", "resources-servers"] | None = Field(
        default=None, description="What to search; by default benchmarks and environments."
    )
    json_format: bool = Field(default=False, alias="json", description="Print JSON.")


class RunConfig(BaseNeMoGymCLIConfig):
    """Start NeMo Gym servers for agents, models and resources: those that the configuration files define."""

    config_paths: list[str] = Field(
        default_factory=list, description='YAML configuration files, as in `+config_paths="[file1.yaml,file2.yaml]"`.'
    )
    policy_base_url: str | None = Field(default=None, description="Base URL of the model's endpoint.")
    policy_api_key: str | None = Field(default=None, description="API key of the model's endpoint.")
    policy_model_name: str | None = Field(default=None, description="Name of the model.")
    error_on_almost_servers: bool = Field(
        default=True, description="Refuse a block that was meant as a server but is not valid, rather than warn."
    )
    verbose: bool = Field(default=False, description="Log everything, here and in the servers.")
    dry_run: bool = Field(default=False, description="Build the servers and stop before they serve.")
    default_host: str = Field(default="127.0.0.1", description="Where servers listen that name no host.")
    use_absolute_ip: bool = Field(default=False, description="Let servers listen on the address of this machine.")
    allowed_hosts: list[str] = Field(
        default_factory=list, description="Host names besides their own that servers answer to; `*` for all."
    )
    access_token: str | None = Field(default=None, description="What every call of the servers has to carry.")
    head_server: dict[str, Any] = Field(
        default={"host": "127.0.0.1", "port": 11000}, description="Where the head server listens."
    )
    port_range_low: int = Field(default=10001, description="The lowest port for servers that name none.")
    port_range_high: int = Field(default=20000, description="The highest port for servers that name none.")
    skip_venv_if_present: bool = Field(default=False, description="Use an environment that is there as it is.")
    uv_venv_dir: str | None = Field(default=None, description="Where the environments of servers are kept.")
    uv_cache_dir: str | None = Field(default=None, description="Where uv keeps its downloads.")
    cache_dir: str | None = Field(default=None, description="Where caches go.")
    results_dir: str | None = Field(default=None, description="Where results go.")
    nemo_gym_log_dir: str | None = Field(default=None, description="Where servers write their logs.")
    model_endpoint_readiness_timeout_seconds: float = Field(
        default=600, description="How long to wait for the endpoints of models; 0 does not wait."
    )
    profiling_enabled: bool = Field(default=False, description="Profile the code of every server.")
    profiling_results_dirpath: str | None = Field(default=None, description="Where profiles go.")
    ray_head_node_address: str | None = Field(default=None, description="A Ray cluster to join.")


class StatusConfig(BaseNeMoGymCLIConfig):
    """Show the servers that run, and whether they answer."""

    json_format: bool = Field(default=False, alias="json", description="Print JSON.")
    head_server: dict[str, Any] = Field(
        default={"host": "127.0.0.1", "port": 11000}, description="Where the head server listens."
    )
