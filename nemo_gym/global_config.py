# SPDX-License-Identifier: Apache-2.0
"""The process-wide config: read once from the command line, `env.yaml` and config files, then shared by everyone.

This is the only part of the config system that reads `sys.argv`, environment variables and the current folder.
The work itself is done by `nemo_gym._config`, with explicit arguments.
"""

import logging
import os
import re
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from omegaconf import DictConfig, OmegaConf
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from nemo_gym import CACHE_DIR, RESULTS_DIR, WORKING_DIR, component_search_roots
from nemo_gym._config import (
    config_files as files,
    interpolation,
    overrides,
    secret_lookup as secrets,
    server_blocks as servers,
)
from nemo_gym._config.config_parser import Resolved, Sources, resolve
from nemo_gym._config.defaults import Machine
from nemo_gym._config.port_reservation import find_free_port, reserve_port
from nemo_gym._config.problems import Problems
from nemo_gym._config.reserved_keys import *  # noqa: F403  the names of all settings are part of this contract
from nemo_gym._config.reserved_keys import (
    CONFIG_PATHS_KEY_NAME,
    DEFAULT_PORT_RANGE_HIGH,
    DEFAULT_PORT_RANGE_LOW,
    HF_TOKEN_KEY_NAME,
    PORT_RANGE_HIGH_KEY_NAME,
    PORT_RANGE_LOW_KEY_NAME,
    RESERVED_TOP_LEVEL_KEYS,
    UV_CACHE_DIR_KEY_NAME,
    VERBOSE_KEY_NAME,
)
from nemo_gym._config.server_types import SERVER_TYPES, list_server_types
from nemo_gym._util.known_secrets import KNOWN_SECRETS
from nemo_gym._util.nearest import suggest
from nemo_gym._util.process_list import hide_secret_arguments
from nemo_gym._util.row_keys import (
    AGENT_REF_KEY_NAME as AGENT_REF_KEY_NAME,
    ATTEMPT_INDEX_KEY_NAME as ATTEMPT_INDEX_KEY_NAME,
    NG_CUT_OFF_KEY as NG_CUT_OFF_KEY,
    NG_TOOL_ERRORS_KEY as NG_TOOL_ERRORS_KEY,
    RESPONSE_KEY_NAME as RESPONSE_KEY_NAME,
    RESPONSES_CREATE_PARAMS_KEY_NAME as RESPONSES_CREATE_PARAMS_KEY_NAME,
    ROLLOUT_ID_KEY_NAME as ROLLOUT_ID_KEY_NAME,
    ROLLOUT_INDEX_KEY_NAME as ROLLOUT_INDEX_KEY_NAME,
    SKILLS_REF_KEY_NAME as SKILLS_REF_KEY_NAME,
    TASK_INDEX_KEY_NAME as TASK_INDEX_KEY_NAME,
    TASK_SOURCE_KEY_NAME as TASK_SOURCE_KEY_NAME,
)
from nemo_gym.config_types import MLFlowConfig, ServerInstanceConfig, WANDBConfig
from nemo_gym.errors import ConfigError, NoServerInstancesError, UnknownServerError

logger = logging.getLogger(__name__)

NEMO_GYM_CONFIG_DICT_ENV_VAR_NAME = "NEMO_GYM_CONFIG_DICT"
NEMO_GYM_CONFIG_FILE_ENV_VAR_NAME = "NEMO_GYM_CONFIG_FILE"
NEMO_GYM_CONFIG_PATH_ENV_VAR_NAME = "NEMO_GYM_CONFIG_PATH"

NEMO_GYM_RESERVED_TOP_LEVEL_KEYS = RESERVED_TOP_LEVEL_KEYS

# Tests replace this, so every reader goes through the accessors below.
_GLOBAL_CONFIG_DICT: DictConfig | None = None


class GlobalConfigDictParserConfig(BaseModel):
    """What a parse starts from."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    dotenv_path: Path | None = Field(
        default=None,
        description="env.yaml to read, if it exists; by default that of this folder, or of the project it is in.",
    )
    initial_global_config_dict: DictConfig | None = Field(
        default=None, description="Values that override files and env.yaml, and that the command line overrides."
    )
    overrides: list[str] | None = Field(
        default=None, description="Overrides such as `++key=value`; by default those on this process's command line."
    )
    skip_load_from_cli: bool = Field(default=False, description="Do not read the command line.")
    skip_load_from_dotenv: bool = Field(default=False, description="Do not read env.yaml.")
    hide_secrets: bool = Field(default=False, description="Mask keys, tokens and passwords in the result.")
    offline: bool = Field(
        default=False, description="Only resolve: no ports, no host lookup, no exporters, no environment variables."
    )

    NO_MODEL_GLOBAL_CONFIG_DICT: ClassVar[DictConfig] = OmegaConf.create(
        {
            "policy_base_url": "",
            "policy_api_key": "",
            "policy_model_name": "",
            "policy_model": {"responses_api_models": {"dummy_model": {"entrypoint": "app.py"}}},
        }
    )


class GlobalConfigDictParser(BaseModel):
    """Turns command line, `env.yaml` and config files into the global config."""

    def parse(self, parse_config: GlobalConfigDictParserConfig | None = None) -> DictConfig:
        """Return the complete, checked config, or raise all its problems at once."""
        parse_config = parse_config or GlobalConfigDictParserConfig()
        config = self.resolve(parse_config).config
        if not parse_config.offline:
            os.environ["UV_CACHE_DIR"] = config[UV_CACHE_DIR_KEY_NAME]
        if parse_config.hide_secrets:
            secrets.hide_secrets(config)
        if not parse_config.offline:
            _setup_exporters(config)
        return config

    def parse_no_environment(self, initial_global_config_dict: DictConfig | None = None) -> DictConfig:
        """Parse without reading the command line or `env.yaml`."""
        return self.parse(
            GlobalConfigDictParserConfig(
                initial_global_config_dict=initial_global_config_dict,
                skip_load_from_cli=True,
                skip_load_from_dotenv=True,
            )
        )

    def resolve(self, parse_config: GlobalConfigDictParserConfig) -> Resolved:
        """Return the config together with where each of its values came from, without any effect on the process."""
        return resolve(
            self.sources(parse_config), _describe_machine(offline=parse_config.offline), self.further_problems
        )

    def further_problems(self, resolved: Resolved) -> Problems:
        """Return what else is wrong with a config: nothing, unless a subclass is stricter."""
        return Problems()

    def sources(self, parse_config: GlobalConfigDictParserConfig) -> Sources:
        """Return everything that the config is made of."""
        roots = component_search_roots()
        from_cli = OmegaConf.create({})
        deletions = tuple[str, ...]()
        if parse_config.overrides is not None:
            given = overrides.parse_overrides(parse_config.overrides)
            from_cli = OmegaConf.create(given.values)
            deletions = given.deletions
        elif not parse_config.skip_load_from_cli:
            from_cli = self.parse_global_config_dict_from_cli()
        return Sources(
            command_line=from_cli,
            deletions=deletions,
            initial=parse_config.initial_global_config_dict or OmegaConf.create({}),
            dotenv_path=None if parse_config.skip_load_from_dotenv else _find_dotenv(parse_config),
            search_roots=roots,
        )

    def parse_global_config_dict_from_cli(self) -> DictConfig:
        """Return the overrides among the arguments of this process: `+key=value`, `++key=value`, `key=value`.

        `-h` and `--help` are `help: true`, at which a command's settings show their help instead of being read.
        """
        hide_secret_arguments()  # programs other than our command line come here first
        # A user's script has its own arguments, which are not ours.
        tokens = [token for token in sys.argv[1:] if _OVERRIDE.match(token) and overrides.is_override(token)]
        values = overrides.parse_overrides(tokens).values
        if {"-h", "--help"} & set(sys.argv[1:]):
            values["help"] = True
        return OmegaConf.create(values)

    def load_extra_config_paths(self, config_paths: Sequence[str]) -> tuple[list[str], list[DictConfig]]:
        """Load `config_paths` and what they include: all paths as loaded, and their configs in merge order."""
        loaded = files.load_includes(list(config_paths), component_search_roots())
        loaded.problems.raise_if_any()
        return loaded.paths, [file.config for file in loaded.merge_order]

    def filter_for_server_instance_configs(self, global_config_dict: DictConfig) -> list[ServerInstanceConfig]:
        return servers.find_servers(global_config_dict)

    def raise_on_no_server_instances(self, global_config_dict: DictConfig) -> None:
        if not servers.find_servers(global_config_dict):
            loaded = ", ".join(global_config_dict.get(CONFIG_PATHS_KEY_NAME) or []) or "none"
            raise NoServerInstancesError(
                "no environment was chosen: the config defines no server, so there is nothing to start.\n"
                f"loaded config files: {loaded}\n"
                "hint: `--resources-server NAME`, `--environment NAME` or `--benchmark NAME` chooses one, and "
                "`+config_paths=[resources_servers/<name>/configs/<name>.yaml]` does too; `gym list environments` "
                "shows what there is"
            )

    def raise_on_missing_values(self, global_config_dict: DictConfig) -> None:
        interpolation.check_missing_values(interpolation.read_values(global_config_dict)).raise_if_any()

    def detect_and_report_almost_servers(self, global_config_dict: DictConfig) -> None:
        """Report blocks that were meant as servers but are not valid; raises unless the config tolerates them."""
        servers.check_almost_servers(global_config_dict).raise_if_any()


def maybe_get_global_config_dict() -> DictConfig | None:
    """Return the config of this process, or the one its parent handed down, or None."""
    global _GLOBAL_CONFIG_DICT
    if _GLOBAL_CONFIG_DICT is None:
        handed_down = _read_handed_down_config()
        if handed_down is None:
            return None
        _use_config(handed_down)
    return _GLOBAL_CONFIG_DICT


def get_global_config_dict(
    global_config_dict_parser_config: GlobalConfigDictParserConfig | None = None,
    global_config_dict_parser_cls: type[GlobalConfigDictParser] = GlobalConfigDictParser,
) -> DictConfig:
    """Return the config of this process; parsed on first use, unless a parent process handed it down."""
    config = maybe_get_global_config_dict()
    if config is None:
        set_global_config_dict(global_config_dict_parser_config, global_config_dict_parser_cls)
        config = maybe_get_global_config_dict()
    assert config is not None
    return config


def set_global_config_dict(
    global_config_dict_parser_config: GlobalConfigDictParserConfig | None = None,
    global_config_dict_parser_cls: type[GlobalConfigDictParser] = GlobalConfigDictParser,
) -> None:
    """Parse the config and make it the config of this process."""
    _use_config(global_config_dict_parser_cls().parse(global_config_dict_parser_config))


def get_first_server_config_dict(global_config_dict: DictConfig, top_level_path: str) -> DictConfig:
    """Return the innermost block of a server: below its instance name, its type and its implementation."""
    try:
        by_type = next(iter(global_config_dict[top_level_path].values()))
        inner: DictConfig = next(iter(by_type.values()))
    except (KeyError, AttributeError, StopIteration) as error:
        raise _explain_unknown_server(global_config_dict, top_level_path) from error
    return inner


def _explain_unknown_server(config: DictConfig, name: str) -> UnknownServerError:
    defined = {str(key): types[0] for key in config if (types := list_server_types(config._get_node(key)))}
    listed = "".join(f"\n  {key} ({kind})" for key, kind in defined.items())
    servers = f"servers of the config:{listed}" if defined else "the config has no servers at all."
    return UnknownServerError(
        f"there is no server {name!r} in the config.{suggest(str(name), defined)}\n{servers}\n"
        "hint: a server is called by the name of its block in the config; `gym env status` lists those that run"
    )


def find_open_port(disallowed_ports: Sequence[int] | None = None, max_retries: int = 50) -> int:
    """Return a free port in the range of the config, outside `disallowed_ports`."""
    config = maybe_get_global_config_dict() or OmegaConf.create({})
    low = config.get(PORT_RANGE_LOW_KEY_NAME) or DEFAULT_PORT_RANGE_LOW
    high = config.get(PORT_RANGE_HIGH_KEY_NAME) or DEFAULT_PORT_RANGE_HIGH
    return find_free_port(low, high, disallowed_ports or (), max_retries)


def get_hf_token() -> str | None:
    """Return the Hugging Face token of the config, if it has one."""
    token: str | None = get_global_config_dict().get(HF_TOKEN_KEY_NAME)
    return token


def format_almost_server_warning(server_name: str, error: ValidationError) -> str:
    """Return why a block that was meant as a server is not valid, one line per mistake."""
    return servers.explain_almost_server(server_name, error)


def _use_config(config: DictConfig) -> None:
    global _GLOBAL_CONFIG_DICT
    _GLOBAL_CONFIG_DICT = config
    KNOWN_SECRETS.add(secrets.find_secrets(config))
    KNOWN_SECRETS.add(secrets.find_secrets(os.environ))
    if config.get(VERBOSE_KEY_NAME):
        logging.basicConfig(level=logging.DEBUG)
        logging.getLogger().setLevel(logging.DEBUG)


def _read_handed_down_config() -> DictConfig | None:
    """Return what the parent process passed on: as text, or in a file that no other user can read."""
    text = os.environ.get(NEMO_GYM_CONFIG_DICT_ENV_VAR_NAME)
    if text is None and (path := os.environ.get(NEMO_GYM_CONFIG_FILE_ENV_VAR_NAME)) is not None:
        try:
            text = Path(path).read_text()
        except OSError as error:
            raise ConfigError(
                f"{NEMO_GYM_CONFIG_FILE_ENV_VAR_NAME} names the config file {path!r}, which cannot be read: "
                f"{error.strerror}.\nhint: the process that wrote it has probably ended; start it again"
            ) from error
    if text is None:
        return None
    config = OmegaConf.create(text)
    if not isinstance(config, DictConfig):
        raise ConfigError("the config that the parent process handed down is not a mapping")
    return config


def _find_dotenv(parse_config: GlobalConfigDictParserConfig) -> Path | None:
    given = parse_config.dotenv_path
    if given is not None:
        # Training frameworks always name one, whether or not their user wrote it.
        return given if given.exists() else None
    if Path("env.yaml").is_file():
        return Path("env.yaml")
    # Those of other search roots are another project's: its endpoint, its key, its bill.
    project = _find_project_root(Path.cwd())
    return files.find_first("env.yaml", [project] if project else [])


def _find_project_root(folder: Path) -> Path | None:
    """Return the root of the project that `folder` lies in, if it lies in one."""
    folders = [folder, *folder.parents]
    # Servers may have a pyproject.toml of their own.
    for above in folders:
        if above.name in SERVER_TYPES:
            return above.parent
    marks = (".git", "pyproject.toml", *SERVER_TYPES)
    return next((above for above in folders if any((above / mark).exists() for mark in marks)), None)


_OVERRIDE = re.compile(r"\+{0,2}[A-Za-z_][\w.@/-]*=")


def _describe_machine(*, offline: bool) -> Machine:
    return Machine(
        cache_dir=CACHE_DIR,
        results_dir=RESULTS_DIR,
        working_dir=WORKING_DIR,
        own_ip=None if offline else _find_own_ip,
        open_port=None if offline else reserve_port,
    )


def _find_own_ip() -> str:
    name = socket.gethostname()
    try:
        return socket.gethostbyname(name)
    except OSError as error:
        raise ConfigError(
            f"`use_absolute_ip` is set, but the name of this machine, {name!r}, has no address: {error.strerror}.\n"
            "hint: set `++default_host=<address>` and leave `use_absolute_ip` out"
        ) from error


def _setup_exporters(config: DictConfig) -> None:
    wanted: dict[str, Any] = {
        str(key): config[key]
        for key in config
        if str(key).startswith(("wandb_", "mlflow_")) and config[key] is not None
    }
    if WANDBConfig(**wanted).is_available or MLFlowConfig(**wanted).is_available:
        from nemo_gym.exporters import setup_exporters

        setup_exporters(config)
