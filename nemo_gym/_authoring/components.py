# SPDX-License-Identifier: Apache-2.0
"""What the catalog knows of benchmarks, environments, agents, models and resources servers, and a search among them.

An earlier search root hides a component of the same name in a later one, as it does when the name is used.
"""

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nemo_gym._authoring.config_catalog import (
    Configs,
    ServerBlock,
    config_names,
    describe_hidden_folders,
    follow_references,
    iter_server_blocks,
    list_visible_servers,
)

_MODEL_KEYS = ("model", "openai_model", "model_name", "model_path")
_MODEL_FLAGS = {
    "policy_model_name": "--model",
    "policy_base_url": "--model-url",
    "policy_api_key": "--model-api-key",
}
"""The flags that give a model server its endpoint, by the keys that its config refers to."""
_MANIFEST_KEYS = ("version", "integration_profile", "modality")


@dataclass(frozen=True)
class Component:
    """One thing that can be named on the command line.

    `facts` are its further fields, in the order in which JSON shows them; `details` are what an inspection lists.
    """

    name: str
    type: str
    config: Path | None
    domain: str | None = None
    description: str | None = None
    value: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Listing:
    """Components by name, what could not be read on the way, and which folders hide others of the same name."""

    components: list[Component]
    warnings: list[str]
    hidden: list[str]


def list_components(noun: str, roots: Sequence[Path]) -> Listing:
    """Return all components of a type: benchmarks, environments, agents, models or resources-servers."""
    configs = Configs(roots)
    collection, read = _READERS[noun]
    found: dict[str, Component] = {}
    for component in read(configs):
        found.setdefault(component.name, component)
    hidden = describe_hidden_folders(collection, (name.partition("/")[0] for name in found), roots)
    return Listing(sorted(found.values(), key=lambda component: component.name), configs.warnings, hidden)


def _read_benchmarks(configs: Configs) -> Iterator[Component]:
    """Yield configs that run by themselves; one without a benchmark dataset has its first agent and one repeat."""
    for name, path in (item for root in configs.roots for item in config_names(root / "benchmarks").items()):
        own = list(iter_server_blocks(configs.read(path)))
        merged = configs.merge(path)
        blocks = list(iter_server_blocks(merged))
        owners = [(block, one) for block in [*own, *blocks] for one in block.datasets if one.get("type") == "benchmark"]
        agents = [block for block in blocks if block.type == "responses_api_agents" and "entrypoint" in block.settings]
        if not owners and not agents:
            continue
        agent, dataset = owners[0] if owners else (agents[0], {})
        dataset = {key: follow_references(value, merged) for key, value in dataset.items()}
        manifest = _read_manifest(path, configs)
        facts = {"agent_name": agent.instance, "num_repeats": dataset.get("num_repeats", 1)}
        details = {
            "Dataset": dataset.get("name"),
            "Data": dataset.get("jsonl_fpath"),
            "Prepare script": dataset.get("prepare_script"),
            "Prompt": dataset.get("prompt_config"),
            "Agent": agent.instance,
            "Resources server": _find_verifier(agent.instance, blocks),
            "Repeats": dataset.get("num_repeats", 1),
        }
        yield _describe(name, "benchmark", path, own, blocks, manifest, facts, details)


def _read_environments(configs: Configs) -> Iterator[Component]:
    for name, path in (item for root in configs.roots for item in config_names(root / "environments").items()):
        values = configs.read(path)
        own = list(iter_server_blocks(values))
        if not own and "config_paths" not in values:
            continue
        blocks = list(iter_server_blocks(configs.merge(path)))
        agents = [block.instance for block in blocks if block.type == "responses_api_agents"]
        details = {
            "Agents": agents,
            "Resources servers": [block.instance for block in blocks if block.type == "resources_servers"],
            "Datasets": _name_datasets(blocks),
        }
        yield _describe(name, "environment", path, own, blocks, _read_manifest(path, configs), {}, details)


def _describe(
    name: str,
    kind: str,
    path: Path,
    own: Sequence[ServerBlock],
    blocks: Sequence[ServerBlock],
    manifest: dict[str, Any] | None,
    facts: dict[str, Any],
    details: dict[str, Any],
) -> Component:
    """Return a component of a collection; its manifest speaks first, then its own servers, then those it includes."""
    said = manifest or {}
    licenses = [text for block in blocks for one in block.datasets if (text := _read_text(one.get("license")))]
    more = {
        "kind": kind,
        "status": said.get("status", "experimental") if manifest is not None else "no-manifest",
        **{key: said.get(key) for key in _MANIFEST_KEYS},
        "licensing": _read_text(said.get("licensing")) or next(iter(licenses), None),
        "lifecycle": said.get("lifecycle", "active"),
    }
    return Component(
        name,
        kind,
        path,
        domain=_read_text(said.get("domain")) or _find_first_text("domain", own, blocks),
        description=_read_text(said.get("description"))
        or _find_first_text("description", own, blocks)
        or _read_first_sentence(path.parent),
        value=_find_first_text("value", own, blocks),
        facts={**facts, **more},
        details={
            **details,
            **{key.replace("_", " ").capitalize(): said[key] for key in _MANIFEST_KEYS if said.get(key)},
        },
    )


def _read_agents(configs: Configs) -> Iterator[Component]:
    for server in list_visible_servers("responses_api_agents", configs.roots):
        name = server.folder.name
        paths = server.configs
        blocks = [block for path in paths for block in _select_implementation(name, configs.read(path))]
        frameworks = [block for block in blocks if {"agent_framework", "anthropic_api_key"} & set(block.settings)]
        wired = any("resources_server" in block.settings for block in blocks)
        self_contained = bool(frameworks) or (bool(blocks) and not wired)
        facts = {
            "pattern": "B (self-contained)" if self_contained else "A (composable)",
            "self_contained": self_contained,
            "variants": [path.stem for path in paths],
        }
        yield Component(
            name,
            "agent",
            paths[0] if paths else None,
            description=_find_first_text("description", blocks) or _read_first_sentence(server.folder),
            value=_find_first_text("value", blocks),
            facts=facts,
            details={"Composition": facts["pattern"], "Variants": facts["variants"]},
        )


def _read_models(configs: Configs) -> Iterator[Component]:
    for server in list_visible_servers("responses_api_models", configs.roots):
        group = server.folder.name
        for name, path in server.names.items():
            blocks = list(_select_implementation(group, configs.read(path)))
            named = next(
                (
                    _read_text(block.settings.get(key))
                    for block in blocks
                    for key in _MODEL_KEYS
                    if key in block.settings
                ),
                None,
            )
            model = named if named and "${" not in named else None
            written = repr([block.settings for block in blocks])
            needs = ", ".join(flag for key, flag in _MODEL_FLAGS.items() if f"${{{key}}}" in written)
            if not needs:
                needs = "nothing" if group == "local_model" else "see its README"
            yield Component(
                name,
                "model",
                path,
                description=_find_first_text("description", blocks) or _read_first_sentence(server.folder),
                facts={"model": model, "model_group": group},
                details={"Model": model, "Server": group, "Needs": needs},
            )


def _read_resources_servers(configs: Configs) -> Iterator[Component]:
    for server in list_visible_servers("resources_servers", configs.roots):
        folder = server.folder
        names = server.names
        for name, path in names.items():
            every = list(iter_server_blocks(configs.read(path)))
            servers = [block for block in every if block.type == "resources_servers"]
            own = [block for block in servers if block.implementation == folder.name] or servers
            # What a flavor leaves out, the first config of the server says.
            main = [
                block
                for block in iter_server_blocks(configs.read(server.configs[0]))
                if block.type == "resources_servers"
            ]
            yield Component(
                name,
                "resources-server",
                path,
                domain=_find_first_text("domain", own, main),
                description=_find_first_text("description", own, main) or _read_first_sentence(folder),
                value=_find_first_text("value", own, main),
                details={
                    "Configs": list(names),
                    "Agents": list(dict.fromkeys(one.instance for one in every if one.type == "responses_api_agents")),
                    "Datasets": _name_datasets(every),
                },
            )


_READERS: dict[str, tuple[str, Callable[[Configs], Iterator[Component]]]] = {
    "benchmarks": ("benchmarks", _read_benchmarks),
    "environments": ("environments", _read_environments),
    "agents": ("responses_api_agents", _read_agents),
    "models": ("responses_api_models", _read_models),
    "resources-servers": ("resources_servers", _read_resources_servers),
}
NOUNS = tuple(_READERS)


def _select_implementation(name: str, values: dict[str, Any]) -> Iterator[ServerBlock]:
    return (block for block in iter_server_blocks(values) if block.implementation == name)


def _find_verifier(agent: str, blocks: Iterable[ServerBlock]) -> str | None:
    for block in blocks:
        if block.instance == agent and isinstance(server := block.settings.get("resources_server"), dict):
            return _read_text(server.get("name"))
    return None


def _name_datasets(blocks: Iterable[ServerBlock]) -> list[str]:
    return list(dict.fromkeys(f"{one.get('name')} ({one.get('type')})" for block in blocks for one in block.datasets))


def _find_first_text(key: str, *sources: Iterable[ServerBlock]) -> str | None:
    """Return the first value of `key` on any server block, of the earlier source first."""
    values = (_read_text(block.settings.get(key)) for source in sources for block in source)
    return next((value for value in values if value), None)


def _read_text(value: Any) -> str | None:
    """Return a text in one line; None for a number and whatever else YAML made of what somebody wrote."""
    return " ".join(value.split()) if isinstance(value, str) and value != "???" else None


def _read_manifest(config: Path, configs: Configs) -> dict[str, Any] | None:
    manifest = config.parent / "manifest.yaml"
    return configs.read(manifest) if manifest.is_file() else None


def _read_first_sentence(folder: Path) -> str | None:
    """Return the first sentence of a README; headings, lists, tables and code are skipped."""
    try:
        text = (folder / "README.md").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    text = re.sub(r"^(```|~~~).*?^\1", "", text, flags=re.DOTALL | re.MULTILINE)
    paragraphs = (" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n", text))
    prose = next((one for one in paragraphs if re.match(r"(?!\d+[.)]\s)[^#<!\[|`>:*+=-].*[^\W\d_]{2}", one)), None)
    if prose is None:
        return None
    sentence = re.match(r".*?[^\W\d_]{2}.*?[.:](?=\s|$)", prose)
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", sentence[0] if sentence else prose).rstrip(".:")


# --- search -----------------------------------------------------------------------------------------------------------


_ALIKE = 0.70
_SEARCHED = ("Dataset", "Agent", "Agents", "Resources server", "Resources servers", "Datasets")


def search(components: Iterable[Component], query: str) -> list[Component]:
    """Return the components in which a field holds or resembles `query`: names first, then others, then similar."""
    wanted = query.strip().lower()
    ranked = [(_rank(component, wanted), component) for component in components]
    return [component for rank, component in sorted(ranked, key=lambda one: (one[0], one[1].name)) if rank < _NO_MATCH]


_NO_MATCH = 3


def _rank(component: Component, wanted: str) -> int:
    fields = [field.lower() for field in _iter_fields(component)]
    if wanted in fields[0]:
        return 0
    if any(wanted in field for field in fields):
        return 1
    words = [word for field in fields if field for word in (field, *re.split(r"[\s_-]+", field))]
    return 2 if difflib.get_close_matches(wanted, words, 1, _ALIKE) else _NO_MATCH


def _iter_fields(component: Component) -> Iterator[str]:
    yield component.name
    yield component.domain or ""
    yield component.description or ""
    yield str(component.facts.get("agent_name") or "")
    for key in _SEARCHED:
        value = component.details.get(key)
        yield " ".join(map(str, value)) if isinstance(value, list) else str(value or "")
