# SPDX-License-Identifier: Apache-2.0
"""Turn a command's overrides into its config and settings, and report everything missing or wrong at once.

Every override on a command line must have an effect; `CheckedParser` checks that before anything starts. Programs that
parse a config themselves (`GlobalConfigDictParser`) may pass anything.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from omegaconf import DictConfig, OmegaConf
from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from nemo_gym import component_search_roots
from nemo_gym._authoring.foreign_systems import SYSTEMS
from nemo_gym._config import port_reservation as ports
from nemo_gym._config.command_flags import Flag, list_keys_of, list_settings_classes
from nemo_gym._config.config_parser import Resolved
from nemo_gym._config.config_paths import KeyPath, has_path, join_path
from nemo_gym._config.overrides import parse_overrides
from nemo_gym._config.problems import IS_MISSING, Problems, explain
from nemo_gym._config.secret_lookup import is_secret_key
from nemo_gym._config.server_code import ServerCode, check_types
from nemo_gym._config.unread_keys import SHARED_PREFIXES, check_command_line
from nemo_gym.cli import render
from nemo_gym.cli.command_table import list_commands
from nemo_gym.cli.flags import RUNNING
from nemo_gym.config_types import BaseNeMoGymCLIConfig
from nemo_gym.errors import CommandLineError, ConfigError
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
OneOrMany = Annotated[list[str], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)]
"""A list that may be given as its only member."""


def split_off(overrides: Sequence[str], *keys: str) -> tuple[dict[str, Any], list[str]]:
    """Return the values of a command's own `keys`, and the overrides that are left for the config."""
    own = [token for token in overrides if token.lstrip("+").partition("=")[0] in keys]
    return parse_overrides(own).values, [token for token in overrides if token not in own]


class CommandParser(GlobalConfigDictParser):
    """Parses the config of a command, and prints the notes about it."""

    def resolve(self, parse_config: GlobalConfigDictParserConfig) -> Resolved:
        resolved = super().resolve(parse_config)
        for note in resolved.notes:
            render.note(note)
        return resolved


def parse_config(overrides: list[str], kind: type[BaseModel] | None = None, *, needs_model: bool = True) -> DictConfig:
    """Parse the config of a command that starts no server, and that reads its settings as a `kind`.

    A stand-in replaces a model that it does not need.
    """
    stand_in = None if needs_model else GlobalConfigDictParserConfig.NO_MODEL_GLOBAL_CONFIG_DICT
    return make_parser(kind)().parse(
        GlobalConfigDictParserConfig(overrides=overrides, initial_global_config_dict=stand_in, offline=True)
    )


def read_settings(kind: type[ConfigT], config: DictConfig) -> ConfigT:
    """Read the settings of a command from a whole config."""
    plain: Any = OmegaConf.to_container(config, resolve=True)
    return validate_settings(kind, plain)


def validate_settings(kind: type[ConfigT], values: dict[str, Any]) -> ConfigT:
    """Validate `values` as a `kind`."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise CommandLineError(_describe_mistakes(explain(error, values))) from error


def _describe_mistakes(mistakes: Mapping[KeyPath, str]) -> str:
    missing = [join_path(path) for path, text in mistakes.items() if text == IS_MISSING]
    names = _name_on_command_line()
    wrong = []
    for path, text in mistakes.items():
        if text != IS_MISSING:
            key = join_path(path)
            place = [key] if key else []
            if key in names and names[key].strip("-").replace("-", "_") != key:
                place.append(f"({names[key]})")
            wrong.append(" ".join([*place, text]))
    lines = []
    if missing:
        lines.append(f"missing required configuration: {', '.join(missing)}. {_explain_how_to_give(missing)}")
    if wrong:
        lines.append(f"invalid configuration: {'; '.join(wrong)}")
    return "\n".join(lines)


def _explain_how_to_give(keys: Sequence[str]) -> str:
    """Say where each of the missing `keys` belongs: into env.yaml, or on the command line, and under which name."""
    names = _name_on_command_line()
    personal = [key for key in keys if key.startswith(SHARED_PREFIXES) or is_secret_key(key)]
    others = [key for key in keys if key not in personal]
    sentences = []
    if others:
        typed = ", ".join(names[key] for key in others if key in names)
        via = f"its flag ({typed}; see --help)" if typed else "its flag (see --help)"
        if typed and not any(names[key].startswith("-") for key in others if key in names):
            via = f"its argument ({typed}; see --help)"
        sentences.append(f"Provide each via {via} or as a +{others[0]}=<value> override.")
    if personal:
        sentences.append(f"Put {', '.join(personal)} into env.yaml.")
    return " ".join(sentences)


def _name_on_command_line() -> dict[str, str]:
    """Return what sets each key of the running command: a flag, or the name of a positional."""
    command = RUNNING.get()
    if command is None:
        return {}
    names = {key: flag.name for flag in reversed(command.flags) for key in flag.sets}
    return names | {positional.key: positional.name for positional in command.positionals}


# --- what would have no effect ----------------------------------------------------------------------------------------


class CheckedParser(CommandParser):
    """Parses the config of a command line and refuses what would have no effect."""

    settings: ClassVar[type[BaseModel] | None] = None
    """What the command reads its own settings as."""
    needs_servers: ClassVar[bool] = False
    """Whether the command has nothing to do without a server."""

    def further_problems(self, resolved: Resolved) -> Problems:
        given = resolved.provenance.layers[-1].values
        problems = check_command(resolved, only=lambda path: has_path(given, path))
        servers = resolved.servers
        values = servers.values
        # A setting that is a hole is reported as one.
        if self.settings is not None and not any(path[0] in self.settings.model_fields for path in values.holes):
            with problems.catch():
                validate_settings(self.settings, values.plain)
        # A driver of the user's own may need no server.
        needs_servers = self.needs_servers and not values.plain.get("rollout_collection_driver")
        if needs_servers and not (servers.instances or servers.almost or servers.unknown_yet):
            with problems.catch():
                self.raise_on_no_server_instances(resolved.config)
        return problems


def make_parser(kind: type[BaseModel] | None, *, needs_servers: bool = False) -> type[CheckedParser]:
    """Return a parser that also reports what is wrong with the settings of a command, which are a `kind`."""

    class Parser(CheckedParser):
        settings = kind

    Parser.needs_servers = needs_servers
    return Parser


def check_command(resolved: Resolved, only: Any = lambda path: True) -> Problems:
    """Report what is wrong with the command line, and with the types of the server settings that `only` picks."""
    code = ServerCode(component_search_roots())
    problems = check_command_line(resolved, _flags_of_all_commands(), _settings_of_all_commands, code)
    problems.extend(check_types(resolved.servers, resolved.provenance, code, only))
    problems.extend(_check_settings(resolved.provenance.layers[-1].values))
    problems.extend(_check_urls(resolved))
    return problems


@cache
def _flags_of_all_commands() -> frozenset[str]:
    return frozenset(flag.key.partition(".")[0] for command in list_commands().values() for flag in command.flags)


@cache
def _settings_of_all_commands() -> frozenset[str]:
    """Return the settings of all commands, with and without a flag."""
    return frozenset(key for settings in list_settings_classes() for key in list_keys_of(settings))


def _check_settings(given: dict[str, Any]) -> Problems:
    """Report general server settings of the wrong type, or empty because a shell variable was not set."""
    problems = Problems()
    for key in (POLICY_BASE_URL_KEY_NAME, POLICY_MODEL_NAME_KEY_NAME, POLICY_API_KEY_KEY_NAME):
        if given.get(key) == "":
            word = "; an endpoint without keys accepts any value" if key == POLICY_API_KEY_KEY_NAME else ""
            problems.add(
                ConfigError,
                f"{key} (command line): it is empty.\nhint: set the shell variable it comes from{word}",
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
    """Report model endpoints whose URL has no scheme.

    The default of a shell variable that is not set is only warned of: the run may not need that endpoint.
    """
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
        if not isinstance(url, str) or not url or "://" in url or path in resolved.servers.values.holes:
            continue
        said = f"{join_path(path)}{resolved.provenance.locate(path)}: {url!r} is not a URL: it has no scheme."
        written = str(resolved.provenance.list_given(path)[-1].value)
        variable = re.search(r"\$\{\s*oc\.env:\s*(\w+)", written)
        if variable is None:
            problems.add(ConfigError, f"{said}\nhint: write 'http://{url}'")
            continue
        hint = f"hint: set the environment variable {variable[1]!r} to the URL of the endpoint"
        if variable[1] in os.environ:
            problems.add(ConfigError, f"{said}\n{hint}")
        else:
            render.note(f"warning: {said}\n{hint}, if this run calls it")
    return problems


def _find_base_urls(value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _find_base_urls(inner, (*path, str(key)))
    elif path[-1].endswith("base_url"):
        for url in value if isinstance(value, list) else [value]:
            yield path, url


def reserve_head_port(config: DictConfig) -> None:
    """Reserve the port of the head server of `config`: the default one, or another if an earlier run holds it.

    A port that the user chose is left alone.
    """
    head = config.head_server
    if head.port != DEFAULT_HEAD_SERVER_PORT or ports.reserve(head.host, head.port):
        return
    low = config[PORT_RANGE_LOW_KEY_NAME]
    high = config[PORT_RANGE_HIGH_KEY_NAME]
    head.port = ports.reserve_port(head.host, low, high, list(config.disallowed_ports), tries=50)
    render.note(f"port {DEFAULT_HEAD_SERVER_PORT} is taken by another run; this head server uses {head.port}")


# --- keys of commands that read the config as a whole, or nothing of it -----------------------------------------------


class VersionConfig(BaseNeMoGymCLIConfig):
    """Display the version of NeMo Gym and of the software it runs on."""

    json_format: Annotated[bool, Flag()] = Field(default=False, alias="json", description="Print JSON.")


class ListConfig(BaseNeMoGymCLIConfig):
    """List the catalog, or show everything known about one entry."""

    component_name: str | None = Field(default=None, description="Name of the entry to show.")
    json_format: Annotated[bool, Flag()] = Field(default=False, alias="json", description="Print JSON.")
    domain: Annotated[str | None, Flag()] = Field(
        default=None, description="Only entries of this domain, such as math."
    )
    catalog_kind: Annotated[Literal["environment", "benchmark"] | None, Flag("--kind")] = Field(
        default=None, description="Which kind of entry to list."
    )
    modality: Annotated[str | None, Flag()] = Field(default=None, description="Only entries of this modality.")
    licensing: Annotated[str | None, Flag()] = Field(default=None, description="Only entries under this license.")
    status: Annotated[Literal["experimental", "no-manifest"] | None, Flag()] = Field(
        default=None, description="Only entries of this status."
    )
    lifecycle: Annotated[Literal["active", "deprecated"] | None, Flag()] = Field(
        default=None, description="Only entries at this stage."
    )
    import_system: Annotated[str | None, Flag("--from", choices=tuple(SYSTEMS))] = Field(
        default=None, description="List the environments of this other system, for `gym import`."
    )


class SearchConfig(BaseNeMoGymCLIConfig):
    """Search the catalog for part of a word, or for a similar spelling."""

    query: str = Field(description="Text to find in names, datasets, domains, agents or descriptions.")
    catalog_type: Literal["benchmarks", "environments", "agents", "models", "resources-servers"] | None = Field(
        default=None, description="What to search; by default benchmarks and environments."
    )
    json_format: Annotated[bool, Flag()] = Field(default=False, alias="json", description="Print JSON.")


class RunConfig(BaseNeMoGymCLIConfig):
    """Start the agent, model and resources servers that the configuration files define."""

    config_paths: list[str] = Field(
        default_factory=list, description='YAML configuration files, as in `+config_paths="[file1.yaml,file2.yaml]"`.'
    )
    policy_base_url: Annotated[str | None, Flag("--model-url")] = Field(
        default=None, description="Base URL of the model's endpoint."
    )
    policy_api_key: Annotated[str | None, Flag("--model-api-key")] = Field(
        default=None, description="API key of the model's endpoint."
    )
    policy_model_name: Annotated[str | None, Flag("--model", short="-m")] = Field(
        default=None, description="Name of the model."
    )
    allow_unknown_keys: Annotated[bool, Flag()] = Field(
        default=False, description="Accept overrides that nothing reads."
    )
    error_on_almost_servers: bool = Field(
        default=True, description="Reject a block that looks like a server but is not valid, instead of warning."
    )
    verbose: bool = Field(default=False, description="Log everything, here and in the servers.")
    dry_run: bool = Field(default=False, description="Build the servers and stop before they serve.")
    default_host: str = Field(default="127.0.0.1", description="Host for servers that set none.")
    use_absolute_ip: bool = Field(default=False, description="Make servers listen on this machine's IP address.")
    allowed_hosts: list[str] = Field(
        default_factory=list, description="Additional host names that servers accept; `*` for all."
    )
    allow_other_users: bool = Field(
        default=False, description="Let other users of this machine call servers on loopback."
    )
    access_token: str | None = Field(default=None, description="Token that every call to the servers must carry.")
    secret_keys: list[str] = Field(
        default_factory=list, description="Further keys whose values are secrets: never shown, and masked in logs."
    )
    head_server: dict[str, Any] = Field(
        default={"host": "127.0.0.1", "port": 11000}, description="Where the head server listens."
    )
    port_range_low: int = Field(default=10001, description="Lowest port for servers that set none.")
    port_range_high: int = Field(default=20000, description="Highest port for servers that set none.")
    skip_venv_if_present: bool = Field(default=False, description="Use an existing virtual environment as is.")
    uv_venv_dir: str | None = Field(default=None, description="Folder for the virtual environments of servers.")
    uv_cache_dir: str | None = Field(default=None, description="Where uv keeps its downloads.")
    cache_dir: str | None = Field(default=None, description="Where caches go.")
    results_dir: str | None = Field(default=None, description="Where results go.")
    nemo_gym_log_dir: str | None = Field(default=None, description="Where servers write their logs.")
    model_endpoint_readiness_timeout_seconds: float = Field(
        default=600, description="Seconds to wait for model endpoints; 0 does not wait."
    )
    profiling_enabled: bool = Field(default=False, description="Profile the code of every server.")
    profiling_results_dirpath: str | None = Field(default=None, description="Where profiles go.")
    ray_head_node_address: str | None = Field(default=None, description="A Ray cluster to join.")
    serve_as: Annotated[Literal["openenv", "mcp"] | None, Flag("--as")] = Field(
        default=None, description="Serve resources servers over this protocol, without agents."
    )
    openenv_port: int | None = Field(default=None, description="Port for OpenEnv; by default a free one.")


class PrefetchConfig(RunConfig):
    """Build the virtual environments of servers without starting them."""

    json_format: Annotated[bool, Flag()] = Field(default=False, alias="json", description="Print JSON.")


class StatusConfig(BaseNeMoGymCLIConfig):
    """Show running servers and whether they answer."""

    json_format: Annotated[bool, Flag()] = Field(default=False, alias="json", description="Print JSON.")
    head_server: dict[str, Any] = Field(
        default={"host": "127.0.0.1", "port": 11000}, description="Where the head server listens."
    )
