# SPDX-License-Identifier: Apache-2.0
"""From the overrides of a command to its config and its settings; whatever is missing or wrong is reported at once.

Whatever a command line says must have an effect, before anything is started: `CheckedParser` sees to that. Programs
that parse a config themselves (`GlobalConfigDictParser`) may pass whatever they like.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Literal, TypeVar

from omegaconf import DictConfig, OmegaConf
from pydantic import BaseModel, Field, ValidationError

from nemo_gym import component_search_roots
from nemo_gym._config import ports
from nemo_gym._config.overrides import parse_overrides
from nemo_gym._config.parse import Resolved
from nemo_gym._config.paths import KeyPath, has_path, join_path
from nemo_gym._config.problems import IS_MISSING, Problems, explain
from nemo_gym._config.server_code import ServerCode, check_types
from nemo_gym._config.unread_keys import check_command_line
from nemo_gym.cli import render
from nemo_gym.cli.commands import COMMANDS, GROUPS
from nemo_gym.cli.flags import Command, UsageError, load
from nemo_gym.config_types import BaseNeMoGymCLIConfig
from nemo_gym.errors import ConfigError
from nemo_gym.global_config import (
    DEFAULT_HEAD_SERVER_PORT,
    POLICY_API_KEY_KEY_NAME,
    POLICY_BASE_URL_KEY_NAME,
    POLICY_MODEL_NAME_KEY_NAME,
    PORT_RANGE_HIGH_KEY_NAME,
    PORT_RANGE_LOW_KEY_NAME,
    GlobalConfigDictParser,
    GlobalConfigDictParserConfig,
)

ConfigT = TypeVar("ConfigT", bound=BaseModel)


def split_off(overrides: Sequence[str], *keys: str) -> tuple[dict[str, Any], list[str]]:
    """Return the values of a command's own `keys`, and the overrides that are left for the config."""
    own = [token for token in overrides if token.lstrip("+").partition("=")[0] in keys]
    return parse_overrides(own).values, [token for token in overrides if token not in own]


def parse_config(
    overrides: list[str], parser: type[GlobalConfigDictParser] = GlobalConfigDictParser, *, needs_model: bool = True
) -> DictConfig:
    """Parse the config of a command that starts no server; a stand-in fills the place of a model it does not need."""
    stand_in = None if needs_model else GlobalConfigDictParserConfig.NO_MODEL_GLOBAL_CONFIG_DICT
    return parser().parse(
        GlobalConfigDictParserConfig(overrides=overrides, initial_global_config_dict=stand_in, offline=True)
    )


def read_settings(kind: type[ConfigT], config: DictConfig) -> ConfigT:
    """Read the settings of a command out of a whole config."""
    plain: Any = OmegaConf.to_container(config, resolve=True)
    return validate_settings(kind, plain)


def validate_settings(kind: type[ConfigT], values: dict[str, Any]) -> ConfigT:
    """Validate `values` as a `kind`."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise UsageError(_describe_mistakes(explain(error, values))) from error


def _describe_mistakes(mistakes: Mapping[KeyPath, str]) -> str:
    missing = [join_path(path) for path, text in mistakes.items() if text == IS_MISSING]
    wrong = [f"{join_path(path)} {text}" if path else text for path, text in mistakes.items() if text != IS_MISSING]
    lines = []
    if missing:
        lines.append(
            f"missing required configuration: {', '.join(missing)}. Provide each via its flag (see --help) or as a "
            f"+{missing[0]}=<value> override."
        )
    if wrong:
        lines.append(f"invalid configuration: {'; '.join(wrong)}")
    return "\n".join(lines)


# --- what would have no effect ----------------------------------------------------------------------------------------


class CheckedParser(GlobalConfigDictParser):
    """Parses the config of a command line and refuses what would have no effect."""

    def resolve(self, parse_config: GlobalConfigDictParserConfig) -> Resolved:
        resolved = super().resolve(parse_config)
        for note in resolved.notes:
            render.note(note)
        return resolved

    def further_problems(self, resolved: Resolved) -> Problems:
        given = resolved.provenance.layers[-1].values
        return check_command(resolved, only=lambda path: has_path(given, path))


def check_command(resolved: Resolved, only: Any = lambda path: True) -> Problems:
    """Return what is wrong with the command line, and with the types of those settings of servers that `only` picks."""
    code = ServerCode(component_search_roots())
    problems = check_command_line(resolved, _flags_of_all_commands(), _settings_of_all_commands, code)
    problems.extend(check_types(resolved.servers, resolved.provenance, code, only))
    problems.extend(_check_settings(resolved.provenance.layers[-1].values))
    problems.extend(_check_urls(resolved))
    return problems


def _all_commands() -> list[Command]:
    return [*COMMANDS.values(), *(command for group in GROUPS.values() for command in group.values())]


@cache
def _flags_of_all_commands() -> frozenset[str]:
    return frozenset(flag.key.partition(".")[0] for command in _all_commands() for flag in command.flags)


@cache
def _settings_of_all_commands() -> frozenset[str]:
    """Return more than has a flag, at the price of importing what all commands need."""
    fields = [load(settings).model_fields for settings in {command.settings for command in _all_commands()}]
    return frozenset(name for of_one in fields for key, field in of_one.items() for name in (key, field.alias or key))


def _check_settings(given: dict[str, Any]) -> Problems:
    """Return settings of servers in general that have a wrong type, or no value where a shell variable was not set."""
    problems = Problems()
    for key in (POLICY_BASE_URL_KEY_NAME, POLICY_MODEL_NAME_KEY_NAME, POLICY_API_KEY_KEY_NAME):
        if given.get(key) == "":
            word = "; an endpoint without keys takes any word" if key == POLICY_API_KEY_KEY_NAME else ""
            problems.add(
                ConfigError,
                f"{key} (command line): it is empty.\nhint: set the shell variable that it is taken from{word}",
            )
    fields = RunConfig.model_fields
    numbers = {key: given[key] for key in given if key in fields and fields[key].annotation in (bool, float)}
    try:
        RunConfig.model_validate(numbers)
    except ValidationError as error:
        for path, text in explain(error, numbers).items():
            problems.add(ConfigError, f"{join_path(path)} (command line): {text}")
    return problems


def _check_urls(resolved: Resolved) -> Problems:
    """Return endpoints of models without a scheme, which no call can reach."""
    problems = Problems()
    plain = resolved.servers.values.plain
    shared = plain.get(POLICY_BASE_URL_KEY_NAME)
    urls: list[tuple[KeyPath, Any]] = [((POLICY_BASE_URL_KEY_NAME,), shared)]
    for name, block in plain.items():
        models = block.get("responses_api_models") if isinstance(block, dict) else None
        urls += [
            (path, url) for path, url in _find_base_urls(models, (str(name), "responses_api_models")) if url != shared
        ]
    for path, url in urls:
        if isinstance(url, str) and url and "://" not in url and path not in resolved.servers.values.holes:
            where = f"{join_path(path)}{resolved.provenance.locate(path)}"
            problems.add(ConfigError, f"{where}: {url!r} is no URL, as it has no scheme.\nhint: write 'http://{url}'")
    return problems


def _find_base_urls(value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _find_base_urls(inner, (*path, str(key)))
    elif path[-1].endswith("base_url"):
        for url in value if isinstance(value, list) else [value]:
            yield path, url


def reserve_head_port(config: DictConfig) -> None:
    """Reserve the port of the head server of `config`: the usual one, or another if a run that began earlier has it.

    A port that the user has chosen is left alone.
    """
    head = config.head_server
    if head.port != DEFAULT_HEAD_SERVER_PORT or ports.reserve(head.host, head.port):
        return
    low, high = config[PORT_RANGE_LOW_KEY_NAME], config[PORT_RANGE_HIGH_KEY_NAME]
    head.port = ports.reserve_port(head.host, low, high, list(config.disallowed_ports), tries=50)
    render.note(f"port {DEFAULT_HEAD_SERVER_PORT} is taken by another run; this one's head server uses {head.port}")


# --- keys of commands that read the config as a whole, or nothing of it -----------------------------------------------


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
    import_system: str | None = Field(
        default=None, description="With `list environments`: the other system whose environments to list."
    )


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
    serve_as: Literal["openenv", "mcp"] | None = Field(
        default=None, description="Serve the resources servers, without agents, to clients of this protocol."
    )
    openenv_port: int | None = Field(default=None, description="Where OpenEnv is served; by default a free port.")


class StatusConfig(BaseNeMoGymCLIConfig):
    """Show the servers that run, and whether they answer."""

    json_format: bool = Field(default=False, alias="json", description="Print JSON.")
    head_server: dict[str, Any] = Field(
        default={"host": "127.0.0.1", "port": 11000}, description="Where the head server listens."
    )
