# SPDX-License-Identifier: Apache-2.0
"""`gym list` and `gym search`: show what can be evaluated, with what, and how to use it.

The catalog itself is `nemo_gym._authoring`; this module prints its tables and JSON, and explains unknown names.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nemo_gym import component_search_roots
from nemo_gym._authoring.components import NOUNS, Component, list_components, search as search_components
from nemo_gym._authoring.foreign_systems import SYSTEMS
from nemo_gym._util.nearest import did_you_mean, suggest
from nemo_gym.cli import render
from nemo_gym.cli.flags import UsageError, require_choice
from nemo_gym.errors import GymError

_EVALUATED = ("benchmarks", "environments", "resources-servers")
_FILTERS = ("domain", "modality", "licensing", "status", "lifecycle")
_Column = tuple[str, Callable[[Component], Any]]
_DESCRIPTION: _Column = ("Description", lambda component: component.description)
_DOMAIN: _Column = ("Domain", lambda component: component.domain)
_COLUMNS: dict[str, tuple[_Column, ...]] = {
    "benchmarks": (
        ("Benchmark name", lambda component: component.name),
        _DOMAIN,
        ("Agent name", lambda component: component.facts["agent_name"]),
        ("Num repeats", lambda component: component.facts["num_repeats"]),
        _DESCRIPTION,
    ),
    "environments": (("Environment", lambda component: component.name), _DOMAIN, _DESCRIPTION),
    "agents": (
        ("Agent", lambda component: component.name),
        ("Composition", lambda component: component.facts["pattern"]),
        ("Variants", lambda component: ", ".join(component.facts["variants"])),
        _DESCRIPTION,
    ),
    "models": (
        ("Model type", lambda component: component.name),
        ("Needs", lambda component: component.details["Needs"]),
        ("Server", lambda component: component.facts["model_group"]),
        _DESCRIPTION,
    ),
    "resources-servers": (("Resources server", lambda component: component.name), _DOMAIN, _DESCRIPTION),
    "": (("Name", lambda component: component.name), ("Kind", lambda component: component.type), _DOMAIN, _DESCRIPTION),
}


def search(overrides: list[str]) -> int:
    """Run `gym search [TYPE] QUERY`: search one type, or every type that can be evaluated."""
    given = _read_overrides(overrides)
    query = str(given.get("query") or "")
    if not query:
        raise UsageError("what to search for? `gym search QUERY`, or `gym search TYPE QUERY`")
    noun = str(given.get("catalog_type") or "")
    if noun and noun not in NOUNS:
        raise UsageError(f"there is no type {noun!r}. {did_you_mean(noun, NOUNS)}")
    found = [
        component
        for one in ([noun] if noun else _EVALUATED)
        for component in search_components(_list_components(one), query)
    ]
    _print(noun, found, given, f"match {query!r}")
    return 0


def _show(noun: str, overrides: list[str]) -> int:
    """Run `gym list NOUN [NAME]`."""
    given = _read_overrides(overrides)
    if system := given.get("import_system"):
        return _show_system(str(system), given, overrides)
    if noun == "environments" and given.get("catalog_kind") == "benchmark":
        noun = "benchmarks"
    components = _list_components(noun)
    if name := given.get("component_name"):
        return _show_one(noun, str(name), components, as_json=bool(given.get("json")))
    wanted = {key: str(given[key]) for key in _FILTERS if given.get(key) is not None}
    kept = [one for one in components if all(_has(one, key, value) for key, value in wanted.items())]
    condition = ""
    if wanted:
        condition = f"match {', '.join(f'{key} {value}' for key, value in wanted.items())}"
    _print(noun, kept, given, condition)
    return 0


def _show_system(system: str, given: Mapping[str, Any], overrides: list[str]) -> int:
    """Run `gym list environments --from SYSTEM [ID]`."""
    from nemo_gym.cli.import_environments import list_environments  # loads what builds virtual environments

    require_choice("--from", system, tuple(SYSTEMS))
    if unused := [key for key in (*_FILTERS, "catalog_kind") if given.get(key) is not None]:
        raise UsageError(f"{', '.join(unused)}: not available for environments of other systems.\nhint: leave it out")
    found = list_environments(overrides, system)
    if (name := given.get("component_name")) is not None:
        known = [one["id"] for one in found]
        if name not in known:
            raise GymError(f"{system} offers no environment {name!r}. {did_you_mean(str(name), known)}")
        found = [one for one in found if one["id"] == name]
    if given.get("json"):
        render.json_data(found)
    else:
        rows = [["Environment", "Description"], *([one["id"], one["description"]] for one in found)]
        render.table(rows, title=f"Environments of {system} ({len(found)})")
        render.note(f"hint: gym import {system}:ENVIRONMENT --rows 100 --output-dir imported")
    return 0


benchmarks = functools.partial(_show, "benchmarks")
environments = functools.partial(_show, "environments")
agents = functools.partial(_show, "agents")
models = functools.partial(_show, "models")
resources_servers = functools.partial(_show, "resources-servers")


def _read_overrides(overrides: list[str]) -> dict[str, Any]:
    if not overrides:
        return {}
    from nemo_gym._config.overrides import parse_overrides
    from nemo_gym._config.reserved_keys import ALLOW_UNKNOWN_KEYS_KEY_NAME, SETTINGS

    given = parse_overrides(overrides).values
    known = {*SETTINGS, *_FILTERS, "catalog_kind", "catalog_type", "import_system"}
    unread = [key for key in given if key not in known]
    if unread and not given.get(ALLOW_UNKNOWN_KEYS_KEY_NAME):
        raise UsageError(
            "\n".join(f"{key} (command line): nothing reads {key!r}.{suggest(key, known)}" for key in unread)
            + f"\nhint: `+{ALLOW_UNKNOWN_KEYS_KEY_NAME}=true` accepts it"
        )
    return given


def _list_components(noun: str) -> list[Component]:
    listing = list_components(noun, component_search_roots())
    for warning in listing.warnings:
        render.note(f"warning: {warning}")
    for note in listing.hidden:
        render.note(note)
    return listing.components


def _has(component: Component, key: str, value: str) -> bool:
    held = {**component.facts, "domain": component.domain}.get(key)
    if not isinstance(held, list):
        held = [held]
    return value.lower() in [str(one).lower() for one in held]


def _show_one(noun: str, name: str, components: Sequence[Component], *, as_json: bool) -> int:
    for component in components:
        if component.name == name:
            _inspect(component, as_json=as_json)
            return 0
    guess = did_you_mean(name, [component.name for component in components])
    singular = noun.removesuffix("s").replace("-", " ")
    message = f"Unknown {singular} {name!r}. {guess}\nhint: `gym list {noun}` shows what there is"
    if as_json:
        raise GymError(message)
    render.data(message)  # scripts look for it on stdout
    return 1


def _print(noun: str, components: Sequence[Component], given: Mapping[str, Any], condition: str) -> None:
    plural = noun.replace("-", " ") or "benchmarks, environments or resources servers"
    if given.get("json"):
        rows = [{"type": component.type, **_to_row(component)} for component in components]
        if noun:
            for row in rows:
                del row["type"]
        render.json_data(rows)
    elif not components:
        render.data(f"No {plural} {condition or 'found'}.")
    else:
        columns = _COLUMNS[noun]
        table = [[heading for heading, _ in columns]]
        for component in components:
            values = [read(component) for _, read in columns]
            table.append(["" if value is None else str(value) for value in values])
        title = plural.replace(" or ", " and ").capitalize()
        if condition:
            title += f" that {condition}"
        render.table(table, title=f"{title} ({len(components)})")


def _to_row(component: Component) -> dict[str, Any]:
    has_domain = component.type not in ("agent", "model")
    return {
        "name": component.name,
        **({"domain": component.domain} if has_domain else {}),
        "description": component.description,
        **component.facts,
        "config_path": str(component.config) if component.config else None,
    }


# --- one of them ------------------------------------------------------------------------------------------------------


def _inspect(component: Component, *, as_json: bool) -> None:
    details = {"Config": str(component.config) if component.config else None, **component.details}
    details = {key: value for key, value in details.items() if value not in (None, [], "")}
    if as_json:
        render.json_data(
            {
                "name": component.name,
                "type": component.type,
                "domain": component.domain,
                "description": component.description,
                "details": {
                    **component.facts,
                    **{key.lower().replace(" ", "_"): value for key, value in details.items()},
                },
                "usage_example": make_usage_example(component),
            }
        )
        return
    domain = f" (domain: {component.domain})" if component.domain else ""
    lines = [f"The {component.name} {component.type.replace('-', ' ')}{domain}", ""]
    lines += filter(None, [component.description, component.value and f"Value: {component.value}"])
    texts = {key: ", ".join(map(str, value)) if isinstance(value, list) else value for key, value in details.items()}
    lines += ["", "Details:", *(f"  {key}: {text}" for key, text in texts.items())]
    lines += ["", "Usage example:", *(f"  {line}" for line in make_usage_example(component).splitlines())]
    render.data("\n".join(lines))


def make_usage_example(component: Component) -> str:
    """Return commands that use a component, ready to run."""
    name = component.name
    model = "--model-type openai_model"
    if component.type in ("benchmark", "environment", "resources-server"):
        run = f"gym eval run --{component.type} {name} {model} --output results/{name}.jsonl"
        if component.type == "benchmark":
            return f"gym eval prepare --benchmark {name}\n{run}"
        return run
    if component.type == "model":
        flags = " --model <name>" if "--model" in component.details["Needs"] else ""
        return f"gym env start --resources-server example_single_tool_call --model-type {name}{flags}"
    config = f"responses_api_agents/{name}/configs/<config>.yaml"
    if component.config is not None:  # relative to its root, as it would be given
        below = component.config.parts[::-1].index("responses_api_agents") + 1
        config = "/".join(component.config.parts[-below:])
    world = "" if component.facts["self_contained"] else " --resources-server example_single_tool_call"
    return f"gym env start --config {config}{world} {model}"
