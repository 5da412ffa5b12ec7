# SPDX-License-Identifier: Apache-2.0
"""`gym list` and `gym search`: what can be evaluated, with what, and how one of them is used.

The catalogue itself is `nemo_gym._catalog`; here are its tables, its JSON, and the words for a name that is not in it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nemo_gym import component_search_roots
from nemo_gym._catalog.entries import NOUNS, Entry, list_entries
from nemo_gym._catalog.search import search as search_entries
from nemo_gym._util.nearest import did_you_mean
from nemo_gym.cli import render
from nemo_gym.cli.flags import UsageError
from nemo_gym.errors import GymError

_EVALUATED = ("benchmarks", "environments", "resources-servers")
_FILTERS = ("domain", "modality", "licensing", "status", "lifecycle")
_Column = tuple[str, Callable[[Entry], Any]]
_DESCRIPTION: _Column = ("Description", lambda entry: entry.description)
_DOMAIN: _Column = ("Domain", lambda entry: entry.domain)
_COLUMNS: dict[str, tuple[_Column, ...]] = {
    "benchmarks": (
        ("Benchmark name", lambda entry: entry.name),
        _DOMAIN,
        ("Agent name", lambda entry: entry.facts["agent_name"]),
        ("Num repeats", lambda entry: entry.facts["num_repeats"]),
        _DESCRIPTION,
    ),
    "environments": (("Environment", lambda entry: entry.name), _DOMAIN, _DESCRIPTION),
    "agents": (
        ("Agent", lambda entry: entry.name),
        ("Composition", lambda entry: entry.facts["pattern"]),
        ("Variants", lambda entry: ", ".join(entry.facts["variants"])),
        _DESCRIPTION,
    ),
    "models": (
        ("Model type", lambda entry: entry.name),
        ("Model", lambda entry: entry.facts["model"] or "given by --model"),
        ("Server", lambda entry: entry.facts["model_group"]),
        _DESCRIPTION,
    ),
    "resources-servers": (("Resources server", lambda entry: entry.name), _DOMAIN, _DESCRIPTION),
    "": (("Name", lambda entry: entry.name), ("Kind", lambda entry: entry.type), _DOMAIN, _DESCRIPTION),
}


def benchmarks(overrides: list[str]) -> int:
    """`gym list benchmarks`."""
    return _show("benchmarks", overrides)


def environments(overrides: list[str]) -> int:
    """`gym list environments`."""
    return _show("environments", overrides)


def agents(overrides: list[str]) -> int:
    """`gym list agents`."""
    return _show("agents", overrides)


def models(overrides: list[str]) -> int:
    """`gym list models`."""
    return _show("models", overrides)


def resources_servers(overrides: list[str]) -> int:
    """`gym list resources-servers`."""
    return _show("resources-servers", overrides)


def search(overrides: list[str]) -> int:
    """`gym search [TYPE] QUERY`: of one type, or of all that can be evaluated, one kind after the other."""
    given = _given(overrides)
    query = str(given.get("query") or "")
    if not query:
        raise UsageError("what to search for? `gym search QUERY`, or `gym search TYPE QUERY`")
    noun = str(given.get("catalog_type") or "")
    if noun and noun not in NOUNS:
        raise UsageError(f"there is no type {noun!r}. {did_you_mean(noun, NOUNS)}")
    found = [entry for one in ([noun] if noun else _EVALUATED) for entry in search_entries(_entries(one), query)]
    _print(noun, found, given, f"match {query!r}")
    return 0


def _show(noun: str, overrides: list[str]) -> int:
    given = _given(overrides)
    if noun == "environments" and given.get("catalog_kind") == "benchmark":
        noun = "benchmarks"
    entries = _entries(noun)
    if name := given.get("component_name"):
        return _show_one(noun, str(name), entries, as_json=bool(given.get("json")))
    wanted = {key: str(given[key]) for key in _FILTERS if given.get(key) is not None}
    kept = [entry for entry in entries if all(_has(entry, key, value) for key, value in wanted.items())]
    _print(noun, kept, given, f"match {', '.join(f'{key} {value}' for key, value in wanted.items())}" if wanted else "")
    return 0


def _given(overrides: list[str]) -> dict[str, Any]:
    if not overrides:
        return {}
    from nemo_gym._config.overrides import parse_overrides

    return parse_overrides(overrides).values


def _entries(noun: str) -> list[Entry]:
    listing = list_entries(noun, component_search_roots())
    for warning in listing.warnings:
        render.note(f"warning: {warning}")
    for note in listing.hidden:
        render.note(note)
    return listing.entries


def _has(entry: Entry, key: str, value: str) -> bool:
    held = entry.domain if key == "domain" else entry.facts.get(key)
    return value.lower() in [str(one).lower() for one in (held if isinstance(held, list) else [held])]


def _show_one(noun: str, name: str, entries: Sequence[Entry], *, as_json: bool) -> int:
    for entry in entries:
        if entry.name == name:
            _inspect(entry, as_json=as_json)
            return 0
    guess = did_you_mean(name, [entry.name for entry in entries])
    message = f"Unknown {_singular(noun)} {name!r}. {guess}\nhint: `gym list {noun}` shows what there is"
    if as_json:
        raise GymError(message)
    render.data(message)  # scripts look for it among the output
    return 1


def _print(noun: str, entries: Sequence[Entry], given: Mapping[str, Any], condition: str) -> None:
    plural = noun.replace("-", " ") or "benchmarks, environments or resources servers"
    if given.get("json"):
        render.json_data([{**({} if noun else {"type": entry.type}), **_row(entry)} for entry in entries])
    elif not entries:
        render.data(f"No {plural} {condition}." if condition else f"No {plural} found.")
    else:
        columns = _COLUMNS[noun]
        rows = [[_cell(read(entry)) for _, read in columns] for entry in entries]
        what = plural.replace(" or ", " and ").capitalize()
        title = f"{what}{f' that {condition}' if condition else ''} ({len(entries)})"
        render.table([[heading for heading, _ in columns], *rows], title=title)


def _row(entry: Entry) -> dict[str, Any]:
    has_domain = entry.type not in ("agent", "model")
    return {
        "name": entry.name,
        **({"domain": entry.domain} if has_domain else {}),
        "description": entry.description,
        **entry.facts,
        "config_path": str(entry.config) if entry.config else None,
    }


def _cell(value: Any) -> str:
    return "" if value is None else str(value)


# --- one of them ------------------------------------------------------------------------------------------------------


def _inspect(entry: Entry, *, as_json: bool) -> None:
    details = {"Config": str(entry.config) if entry.config else None, **entry.details}
    details = {key: value for key, value in details.items() if value not in (None, [], "")}
    if as_json:
        render.json_data(
            {
                "name": entry.name,
                "type": entry.type,
                "domain": entry.domain,
                "description": entry.description,
                "details": {**entry.facts, **{key.lower().replace(" ", "_"): value for key, value in details.items()}},
                "usage_example": usage_example(entry),
            }
        )
        return
    domain = f" (domain: {entry.domain})" if entry.domain else ""
    lines = [f"The {entry.name} {entry.type.replace('-', ' ')}{domain}", ""]
    lines += [text for text in (entry.description, f"Value: {entry.value}" if entry.value else None) if text]
    lines += ["", "Details:", *(f"  {key}: {_listed(value)}" for key, value in details.items())]
    lines += ["", "Usage example:", *(f"  {line}" for line in usage_example(entry).splitlines())]
    render.data("\n".join(lines))


def _listed(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def usage_example(entry: Entry) -> str:
    """Commands that use an entry, ready to be run."""
    model = "--model-type openai_model"
    if entry.type == "benchmark":
        run = f"gym eval run --benchmark {entry.name} {model} --output results/{entry.name}.jsonl"
        return f"gym eval prepare --benchmark {entry.name}\n{run}"
    if entry.type == "environment":
        return f"gym eval run --environment {entry.name} {model} --output results/{entry.name}.jsonl"
    if entry.type == "resources-server":
        return f"gym eval run --resources-server {entry.name} {model} --output results/{entry.name}.jsonl"
    if entry.type == "model":
        return f"gym env start --resources-server example_single_tool_call --model-type {entry.name} --model <name>"
    if entry.facts["self_contained"]:
        return f"gym env start --config {_below_root(entry)} {model}"
    return f"gym env start --config {_below_root(entry)} --resources-server example_single_tool_call {model}"


def _below_root(entry: Entry) -> str:
    """The config of an agent as it would be given: relative to its root."""
    if entry.config is None:
        return f"responses_api_agents/{entry.name}/configs/<config>.yaml"
    below = entry.config.parts[::-1].index("responses_api_agents") + 1
    return "/".join(entry.config.parts[-below:])


def _singular(noun: str) -> str:
    return noun.removesuffix("s").replace("-", " ")
