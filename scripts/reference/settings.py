# SPDX-License-Identifier: Apache-2.0
"""Generate the page of config keys that belong to no particular server: run settings, and the keys of every server."""

from collections.abc import Iterator
from dataclasses import replace

from nemo_gym._config.config_help import write_type
from nemo_gym._config.reserved_keys import SETTINGS
from nemo_gym._config.unread_keys import SERVER_KEYS
from nemo_gym.cli.command_table import list_commands
from nemo_gym.cli.flags import load
from scripts.reference.commands import describe_default
from scripts.reference.markdown import write_code, write_table
from scripts.reference.server_configs import COMMON, Key, read_keys, write_keys

INTRODUCTION = """\
# Config keys

[Config](../concepts/config.md) explains how files, `env.yaml` and the command line are merged.

## Settings

Top-level keys of a config. `gym env start` and `gym eval run` accept all of them; the last column names the commands
that list a key as their own.
"""
SERVERS = """\
## Keys of every server

Keys for the block of any server, in addition to those of its kind and its own.
"""
RAY = """\
## Keys of servers on Ray

Keys for the block of a server with `placement: ray`; see [Scale out with Ray](../guides/scale-out-ray.md).
"""
CLASSES = (
    "nemo_gym._servers.http_session.GlobalAIOHTTPAsyncClientConfig",
    "nemo_gym.model_call_capture.ModelCallCaptureConfig",
    "nemo_gym.config_types.WANDBConfig",
    "nemo_gym.config_types.MLFlowConfig",
)
IGNORED = "Accepted so that configs written for NeMo Gym load; it has no effect."
# Keys that are read directly from the config and have no class.
OTHER_SETTINGS = (
    Key("_copy", "str", "null", "Copies the block at this path; see [Config](../concepts/config.md)."),
    Key("_inherit_from", "str", "null", "Moves the block at this path here; see [Config](../concepts/config.md)."),
    Key("allow_openai_version_skew", "bool", "false", IGNORED),
    Key("default_placement", "str | None", "null", "Where servers run by default: `inline`, `process`, `ray`."),
    Key("disallowed_ports", "list[int]", "[]", "Ports that no server may use."),
    Key(
        "head_server_deps",
        "list[str]",
        "the installed ray and openai",
        "Packages to install in every server's virtual environment.",
    ),
    Key("pip_install_verbose", "bool", "false", "Show the installer's output."),
    Key("python_version", "str", "the running one", "The Python version of servers' virtual environments."),
    Key("server_startup_timeout_seconds", "float", "600", "How long servers may take to start."),
    Key("skip_verification", "bool", "false", "For all agents: collect responses without scoring them."),
    Key("skip_verification_reward", "float", "0.0", "For all agents: the reward of an unscored rollout."),
    Key(
        "token_id_capture",
        "mapping",
        "null",
        "Record the token ids of model calls; see [Trainable rollouts](../concepts/trainable-rollouts.md).",
    ),
    Key("upload_rollouts_to_wandb", "bool", "null", "The old name of `upload_rollouts`."),
    Key("uv_pip_set_python", "bool", "false", IGNORED),
    Key("uvicorn_logging_show_200_ok", "bool", "false", IGNORED),
    Key("uvicorn_timeout_worker_healthcheck", "float", "null", IGNORED),
)
OTHER_SERVER_KEYS = (
    Key("checks_waived", "dict[str, str]", "{}", "Checks of `gym env check` that the server need not pass, and why."),
    Key("datasets", "list", "null", "The datasets that come with the server; see [Data](../guides/prepare-data.md)."),
    Key("description", "str", "null", "What the server is, for `gym list`."),
    Key("expose_tools_over_mcp", "bool", "false", "Also offer a resources server's tools over MCP."),
    Key("external", "bool", "false", "The server already runs at `host` and `port`; do not start it."),
    Key(
        "placement",
        "str",
        "null",
        "Where the server runs: `inline`, `process`, `ray` or `external`; see [Servers](../concepts/servers.md).",
    ),
    Key("skip_verification", "bool", "false", "Agents: collect responses without scoring them."),
    Key("skip_verification_reward", "float", "0.0", "Agents: the reward of an unscored rollout."),
    Key("value", "str", "null", "What the server is good for, for `gym list`."),
    Key("verified", "bool", "false", "Whether it has been used in training, for `gym list`."),
    Key("verified_url", "str", "null", "A link to the evidence."),
)
RAY_CLASS = "nemo_gym._config.server_types.RayPlacementConfig"


def write_page() -> str:
    """Write the page."""
    readers = _find_readers()
    rows = [
        (
            write_code(key.name),
            write_code(key.type),
            write_code(key.default),
            key.about,
            ", ".join(readers.get(key.name, [])),
        )
        for key in list_settings()
    ]
    settings = write_table(("key", "type", "default", "what", "read by"), rows)
    return "\n".join(
        [INTRODUCTION, settings, SERVERS, write_keys(list_server_keys()), RAY, write_keys(read_keys(RAY_CLASS))]
    )


def list_settings() -> list[Key]:
    """Return every top-level key that this package reads; raise KeyError if one is not described."""
    known = {
        key.name: key for key in (*_read_command_keys(), *(k for c in CLASSES for k in read_keys(c)), *OTHER_SETTINGS)
    }
    return [known[name] for name in sorted(SETTINGS)]


def list_server_keys() -> list[Key]:
    """Return the keys that any server's block may have; raise KeyError if one is not described."""
    known = {key.name: key for key in (*OTHER_SERVER_KEYS, *read_keys(COMMON))}
    for name in ("host", "port"):  # running servers have them, but their blocks need not
        known[name] = replace(known[name], default="null")
    elsewhere = {"name", *(key.name for key in read_keys(RAY_CLASS))}
    return [known[name] for name in sorted(SERVER_KEYS - elsewhere)]


def _read_command_keys() -> Iterator[Key]:
    """Yield the keys of all commands, ending with those of `env start` and `eval run`, since the last one counts."""
    meanings: dict[str, set[str]] = {}
    last = ("env start", "eval run")
    for command_name, command in sorted(list_commands().items(), key=lambda named: named[0] in last):
        for name, field in load(command.settings).model_fields.items():
            key = field.alias or name
            about = field.description or ""
            meanings.setdefault(key, set()).add(about)
            if len(meanings[key]) > 1 and command_name not in last:
                about = "Its meaning depends on the command."
            yield Key(key, write_type(field.annotation), describe_default(field).strip("`"), about)


def _find_readers() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, command in list_commands().items():
        for key, field in load(command.settings).model_fields.items():
            anchor = f"gym-{name}".replace(" ", "-")
            found.setdefault(field.alias or key, []).append(f"[{name}](commands.md#{anchor})")
    return found
