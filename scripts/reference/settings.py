# SPDX-License-Identifier: Apache-2.0
"""The page of config keys that belong to no single server: the settings of a run, and the keys of every server."""

from collections.abc import Iterator
from dataclasses import replace

from nemo_gym._config.help import write_type
from nemo_gym._config.reserved_keys import SETTINGS
from nemo_gym._config.unread_keys import SERVER_KEYS
from nemo_gym.cli.flags import load
from scripts.reference.commands import describe_default, list_commands
from scripts.reference.markdown import write_code, write_table
from scripts.reference.server_configs import COMMON, Key, read_keys, write_keys

INTRODUCTION = """\
# Config keys

How files, `env.yaml` and the command line are merged is told in [Config](../concepts/config.md).

## Settings

Top-level keys of a config. `gym env start` and `gym eval run` take all of them; the last column names the commands that
list one among their own keys.
"""
SERVERS = """\
## Keys of every server

In the block of a server, beside those that its kind and its folder have.
"""
RAY = """\
## Keys of servers on Ray

In the block of a server with `placement: ray`; see [Scale out with Ray](../guides/scale-out-ray.md).
"""
CLASSES = (
    "nemo_gym._process.http_session.GlobalAIOHTTPAsyncClientConfig",
    "nemo_gym.model_call_capture.ModelCallCaptureConfig",
    "nemo_gym.config_types.WANDBConfig",
    "nemo_gym.config_types.MLFlowConfig",
)
IGNORED = "Accepted, so that configs written for NeMo Gym load; nothing depends on it here."
# Keys that are read from the config directly and have no class.
OTHER_SETTINGS = (
    Key("_copy", "str", "null", "Copies the block at this path; see [Config](../concepts/config.md)."),
    Key("_inherit_from", "str", "null", "Moves the block at this path here; see [Config](../concepts/config.md)."),
    Key("allow_openai_version_skew", "bool", "false", IGNORED),
    Key("allow_unknown_keys", "bool", "false", "Keep overrides that nothing reads."),
    Key("default_placement", "str | None", "null", "Where servers run that do not say it: `inline`, `process`, `ray`."),
    Key("disallowed_ports", "list[int]", "[]", "Ports that no server is given."),
    Key(
        "head_server_deps",
        "list[str]",
        "the installed ray and openai",
        "Packages that every environment of a server gets.",
    ),
    Key("pip_install_verbose", "bool", "false", "Show what the installer of a server's environment prints."),
    Key("python_version", "str", "the running one", "The Python of the environments of servers."),
    Key("server_startup_timeout_seconds", "float", "600", "How long servers have to start."),
    Key("skip_verification", "bool", "false", "For all agents: collect responses without scoring them."),
    Key("skip_verification_reward", "float", "0.0", "For all agents: the reward that an unscored rollout carries."),
    Key(
        "token_id_capture",
        "mapping",
        "null",
        "Record the token ids of model calls; see [Trainable rollouts](../concepts/trainable-rollouts.md).",
    ),
    Key("upload_rollouts_to_wandb", "bool", "null", "The older name of `upload_rollouts`."),
    Key("uv_pip_set_python", "bool", "false", IGNORED),
    Key("uvicorn_logging_show_200_ok", "bool", "false", IGNORED),
    Key("uvicorn_timeout_worker_healthcheck", "float", "null", IGNORED),
)
OTHER_SERVER_KEYS = (
    Key("checks_waived", "dict[str, str]", "{}", "Checks of `gym env check` that it need not pass, and why."),
    Key("datasets", "list", "null", "Rows of tasks that come with it; see [Data](../guides/prepare-data.md)."),
    Key("description", "str", "null", "What it is, for `gym list`."),
    Key("expose_tools_over_mcp", "bool", "false", "Offer the tools of a resources server over MCP as well."),
    Key("external", "bool", "false", "Somebody else runs it at `host` and `port`."),
    Key(
        "placement",
        "str",
        "null",
        "Where it runs: `inline`, `process`, `ray` or `external`; see [Servers](../concepts/servers.md).",
    ),
    Key("skip_verification", "bool", "false", "Agents: collect responses without scoring them."),
    Key("skip_verification_reward", "float", "0.0", "Agents: the reward that an unscored rollout carries."),
    Key("value", "str", "null", "What one trains for with it, for `gym list`."),
    Key("verified", "bool", "false", "Somebody has trained with it, for `gym list`."),
    Key("verified_url", "str", "null", "Where that is told."),
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
    """Return every top-level key that this package reads; KeyError if one of them is described nowhere."""
    known = {
        key.name: key for key in (*_read_command_keys(), *(k for c in CLASSES for k in read_keys(c)), *OTHER_SETTINGS)
    }
    return [known[name] for name in sorted(SETTINGS)]


def list_server_keys() -> list[Key]:
    """Return the keys that a block of any server may have; KeyError if one of them is described nowhere."""
    known = {key.name: key for key in (*OTHER_SERVER_KEYS, *read_keys(COMMON))}
    for name in ("host", "port"):  # a running server has them, its block need not
        known[name] = replace(known[name], default="null")
    elsewhere = {"name", *(key.name for key in read_keys(RAY_CLASS))}
    return [known[name] for name in sorted(SERVER_KEYS - elsewhere)]


def _read_command_keys() -> Iterator[Key]:
    """Yield the keys of all commands, those of the commands that serve last, as the last one counts."""
    meanings: dict[str, set[str]] = {}
    for command_name, command in sorted(list_commands(), key=lambda named: named[0] in ("env start", "eval run")):
        for name, field in load(command.settings).model_fields.items():
            key = field.alias or name
            about = field.description or ""
            meanings.setdefault(key, set()).add(about)
            if len(meanings[key]) > 1 and command_name not in ("env start", "eval run"):
                about = "What it is for depends on the command."
            yield Key(key, write_type(field.annotation), describe_default(field).strip("`"), about)


def _find_readers() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, command in list_commands():
        for key, field in load(command.settings).model_fields.items():
            anchor = f"gym-{name}".replace(" ", "-")
            found.setdefault(field.alias or key, []).append(f"[{name}](commands.md#{anchor})")
    return found
