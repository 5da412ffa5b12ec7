# SPDX-License-Identifier: Apache-2.0
"""Generate the pages of servers: what each one is, and every key of its config.

The code is parsed, not run, so that servers whose libraries are not installed are included.
"""

import ast
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import griffe

from scripts.reference.markdown import write_code, write_table

ROOT = Path(__file__).resolve().parents[2]
KINDS = {
    "resources_servers": (
        "Resources servers",
        "The environments: tools, session state and `verify`, which returns the reward.",
    ),
    "responses_api_agents": ("Agent servers", "Loops that play a model in an environment; `POST /run` is one rollout."),
    "responses_api_models": ("Model servers", "OpenAI Responses and Chat Completions for any model."),
}
PACKAGES = ("nemo_gym", *KINDS)
COMMON = "nemo_gym._config.server_types.BaseRunServerInstanceConfig"


@dataclass(frozen=True)
class Key:
    """A config key, as its class declares it."""

    name: str
    type: str
    default: str | None
    """None: the key is required."""
    about: str


class OwnModuleFinder(griffe.ModuleFinder):
    """Finds the modules of this project, but not those in virtual environments linked from its folders."""

    def _filter_py_modules(self, path: Path) -> Iterator[Path]:
        for place, folders, files in os.walk(path):
            folders[:] = [name for name in folders if name not in ("__pycache__", "tests") and not name.startswith(".")]
            yield from (Path(place, name) for name in files if name.endswith(".py"))


@cache
def load_code() -> griffe.ModulesCollection:
    """Parse the package and all servers."""
    loader = griffe.GriffeLoader(search_paths=[str(ROOT)])
    loader.finder = OwnModuleFinder([str(ROOT)])
    for package in PACKAGES:
        loader.load(package)
    loader.resolve_aliases(implicit=False, external=False)
    return loader.modules_collection


def list_servers(kind: str) -> list[str]:
    """Return the names of all included servers of a kind."""
    return sorted(path.parent.name for path in (ROOT / kind).glob("*/app.py"))


def write_page(kind: str) -> str:
    """Write the page of all servers of `kind`."""
    title, about = KINDS[kind]
    parts = [
        f"# {title}\n\n{about} A server's table has only its own keys; those that every server accepts are in "
        "[Keys of every server](settings.md#keys-of-every-server).\n"
    ]
    parts += [_write_server(kind, name) for name in list_servers(kind)]
    return "\n".join(parts)


def read_keys(config_class: str) -> list[Key]:
    """Return the keys that the class at this path declares or inherits; the most derived declaration counts."""
    found = load_code()[config_class]
    keys: dict[str, Key] = {}
    for parent in reversed([found, *found.mro()]):
        for attribute in _list_fields(parent):
            keys[attribute.name] = _read_key(attribute)
    return list(keys.values())


def list_own_keys(kind: str, name: str) -> list[Key]:
    """Return the keys that only this server has, or that have a different default in it."""
    common = read_keys(COMMON)
    return [key for key in read_keys(find_config_class(kind, name)) if key not in common]


def find_config_class(kind: str, name: str) -> str:
    """Return the path of a server's config class: the one of the server class that its `app.py` starts."""
    module = f"{kind}.{name}.app"
    tree = ast.parse((ROOT / kind / name / "app.py").read_text(encoding="utf-8"))
    started = [
        node.func.value.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "run_webserver"
        and isinstance(node.func.value, ast.Name)
    ]
    server = load_code()[f"{module}.{started[-1]}"]
    for owner in (server, *server.mro()):
        if "config" in owner.members and (annotation := owner.members["config"].annotation) is not None:
            return str(annotation.canonical_path)
    raise LookupError(f"no class of {module} declares its config class")


def _write_server(kind: str, name: str) -> str:
    module = ast.parse((ROOT / kind / name / "app.py").read_text(encoding="utf-8"))
    keys = list_own_keys(kind, name)
    configs = [write_code(path.relative_to(ROOT)) for path in sorted((ROOT / kind / name / "configs").glob("*.yaml"))]
    parts = [f"## {name}\n", f"{ast.get_docstring(module) or ''}\n"]
    parts += [f"Configs: {', '.join(configs)}.\n"] if configs else []
    parts.append(write_keys(keys) if keys else "No keys of its own.\n")
    return "\n".join(parts)


def write_keys(keys: list[Key]) -> str:
    """Write the table of `keys`."""
    rows = [
        (write_code(key.name), write_code(key.type), write_code(key.default) if key.default else "required", key.about)
        for key in keys
    ]
    return write_table(("key", "type", "default", "what"), rows)


def _list_fields(found: griffe.Object) -> Iterator[griffe.Attribute]:
    for name, member in found.members.items():
        is_key = name != "model_config" and not name.startswith("_") and not name.isupper()
        if is_key and isinstance(member, griffe.Attribute) and member.annotation is not None:
            yield member


def _read_key(attribute: griffe.Attribute) -> Key:
    about = attribute.docstring.value if attribute.docstring else ""
    value = str(attribute.value) if attribute.value is not None else None
    if value is None:
        return Key(attribute.name, str(attribute.annotation), None, about)
    call = ast.parse(value, mode="eval").body
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Field":
        given = {keyword.arg: keyword.value for keyword in call.keywords}
        default = call.args[0] if call.args else given.get("default", given.get("default_factory"))
        if "description" in given and not about:
            about = ast.literal_eval(given["description"])
        value = None if default is None or ast.unparse(default) == "..." else ast.unparse(default)
        value = {"list": "[]", "dict": "{}"}.get(value or "", value)
    return Key(attribute.name, str(attribute.annotation), value and _write_as_yaml(value), about)


def _write_as_yaml(value: str) -> str:
    """Return a default as it is written in YAML, if it is a plain value."""
    try:
        return json.dumps(ast.literal_eval(value), ensure_ascii=False)
    except ValueError:
        return value
