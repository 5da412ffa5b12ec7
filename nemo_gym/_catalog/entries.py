# SPDX-License-Identifier: Apache-2.0
"""What the catalogue knows of a benchmark, an environment, an agent, a model or a resources server.

An earlier search root hides an entry of the same name in a later one, as it does when the name is used.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nemo_gym._catalog.configs import Configs, ServerBlock, server_blocks
from nemo_gym._catalog.files import config_names, server_configs

_DECLARES_BENCHMARK = re.compile(rb"""type["']?\s*:\s*["']?benchmark\b""")
_MODEL_KEYS = ("model", "openai_model", "model_name", "model_path")
_MANIFEST_KEYS = ("version", "integration_profile", "modality")


@dataclass(frozen=True)
class Entry:
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
    """Entries by name, and what could not be read on the way."""

    entries: list[Entry]
    warnings: list[str]


def list_entries(noun: str, roots: Sequence[Path]) -> Listing:
    """All entries of a type: benchmarks, environments, agents, models or resources-servers."""
    configs = Configs(roots)
    found: dict[str, Entry] = {}
    for root in roots:
        for entry in _READERS[noun](root, configs):
            found.setdefault(entry.name, entry)
    return Listing(sorted(found.values(), key=lambda entry: entry.name), configs.warnings)


def _benchmarks(root: Path, configs: Configs) -> Iterator[Entry]:
    for name, path in config_names(root / "benchmarks").items():
        if not _DECLARES_BENCHMARK.search(_bytes(path)):
            continue
        own = list(server_blocks(configs.read(path)))
        owners = [(block, one) for block in own for one in block.datasets if one.get("type") == "benchmark"]
        if not owners:
            continue
        agent, dataset = owners[0]
        blocks = list(server_blocks(configs.merged(path)))
        manifest = _manifest(path, configs)
        facts = {"agent_name": agent.instance, "num_repeats": dataset.get("num_repeats", 1)}
        details = {
            "Dataset": dataset.get("name"),
            "Data": dataset.get("jsonl_fpath"),
            "Prepare script": dataset.get("prepare_script"),
            "Prompt": dataset.get("prompt_config"),
            "Agent": agent.instance,
            "Resources server": _verifier(agent.instance, blocks),
            "Repeats": dataset.get("num_repeats", 1),
        }
        yield _described(name, "benchmark", path, own, blocks, manifest, facts, details)


def _environments(root: Path, configs: Configs) -> Iterator[Entry]:
    for name, path in config_names(root / "environments").items():
        values = configs.read(path)
        own = list(server_blocks(values))
        if not own and "config_paths" not in values:
            continue
        blocks = list(server_blocks(configs.merged(path)))
        agents = [block.instance for block in blocks if block.type == "responses_api_agents"]
        details = {
            "Agents": agents,
            "Resources servers": [block.instance for block in blocks if block.type == "resources_servers"],
            "Datasets": _datasets(blocks),
        }
        yield _described(name, "environment", path, own, blocks, _manifest(path, configs), {}, details)


def _described(
    name: str,
    kind: str,
    path: Path,
    own: Sequence[ServerBlock],
    blocks: Sequence[ServerBlock],
    manifest: dict[str, Any] | None,
    facts: dict[str, Any],
    details: dict[str, Any],
) -> Entry:
    """An entry of a collection; its manifest speaks first, then its own servers, then those it includes."""
    said = manifest or {}
    licences = [one.get("license") for block in blocks for one in block.datasets if one.get("license")]
    more = {
        "kind": kind,
        "status": said.get("status", "experimental") if manifest is not None else "no-manifest",
        **{key: said.get(key) for key in _MANIFEST_KEYS},
        "licensing": said.get("licensing") or (licences[0] if licences else None),
        "lifecycle": said.get("lifecycle", "active"),
    }
    return Entry(
        name,
        kind,
        path,
        domain=_text(said.get("domain")) or _first("domain", own, blocks),
        description=_text(said.get("description")) or _first("description", own, blocks) or _readme(path.parent),
        value=_first("value", own, blocks),
        facts={**facts, **more},
        details={
            **details,
            **{key.replace("_", " ").capitalize(): said[key] for key in _MANIFEST_KEYS if said.get(key)},
        },
    )


def _agents(root: Path, configs: Configs) -> Iterator[Entry]:
    for name, paths in server_configs(root / "responses_api_agents").items():
        blocks = [block for path in paths for block in _of_implementation(name, configs.read(path))]
        frameworks = [block for block in blocks if {"agent_framework", "anthropic_api_key"} & set(block.settings)]
        wired = any("resources_server" in block.settings for block in blocks)
        self_contained = bool(frameworks) or (bool(blocks) and not wired)
        facts = {
            "pattern": "B (self-contained)" if self_contained else "A (composable)",
            "self_contained": self_contained,
            "variants": [path.stem for path in paths],
        }
        folder = root / "responses_api_agents" / name
        yield Entry(
            name,
            "agent",
            _main_config(name, paths),
            description=_first("description", blocks) or _readme(folder),
            value=_first("value", blocks),
            facts=facts,
            details={"Composition": facts["pattern"], "Variants": facts["variants"]},
        )


def _models(root: Path, configs: Configs) -> Iterator[Entry]:
    servers = root / "responses_api_models"
    for group, paths in server_configs(servers).items():
        for path in paths:
            flavour = path.relative_to(servers / group / "configs").with_suffix("").as_posix()
            blocks = list(_of_implementation(group, configs.read(path)))
            named = next(
                (_text(block.settings.get(key)) for block in blocks for key in _MODEL_KEYS if key in block.settings),
                None,
            )
            model = named if named and "${" not in named and named != "???" else None
            yield Entry(
                group if flavour == group else f"{group}/{flavour}",
                "model",
                path,
                description=_first("description", blocks) or _readme(servers / group),
                facts={"model": model, "model_group": group},
                details={"Model": model, "Server": group},
            )


def _resources_servers(root: Path, configs: Configs) -> Iterator[Entry]:
    for name, paths in server_configs(root / "resources_servers").items():
        every = [block for path in paths for block in server_blocks(configs.read(path))]
        servers = [block for block in every if block.type == "resources_servers"]
        own = [block for block in servers if block.implementation == name] or servers
        yield Entry(
            name,
            "resources-server",
            _main_config(name, paths),
            domain=_first("domain", own),
            description=_first("description", own) or _readme(root / "resources_servers" / name),
            value=_first("value", own),
            details={
                "Configs": [path.stem for path in paths],
                "Agents": _unique(block.instance for block in every if block.type == "responses_api_agents"),
                "Datasets": _datasets(every),
            },
        )


_READERS: dict[str, Callable[[Path, Configs], Iterator[Entry]]] = {
    "benchmarks": _benchmarks,
    "environments": _environments,
    "agents": _agents,
    "models": _models,
    "resources-servers": _resources_servers,
}
NOUNS = tuple(_READERS)


def _of_implementation(name: str, values: dict[str, Any]) -> Iterator[ServerBlock]:
    return (block for block in server_blocks(values) if block.implementation == name)


def _verifier(agent: str, blocks: Iterable[ServerBlock]) -> str | None:
    for block in blocks:
        if block.instance == agent and isinstance(server := block.settings.get("resources_server"), dict):
            return _text(server.get("name"))
    return None


def _datasets(blocks: Iterable[ServerBlock]) -> list[str]:
    return _unique(f"{one.get('name')} ({one.get('type')})" for block in blocks for one in block.datasets)


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _first(key: str, *sources: Iterable[ServerBlock]) -> str | None:
    """The first value of `key` on any server block, of the earlier source first."""
    values = (_text(block.settings.get(key)) for source in sources for block in source)
    return next((value for value in values if value), None)


def _text(value: Any) -> str | None:
    return None if value is None or value == "???" else " ".join(str(value).split())


def _main_config(name: str, paths: Sequence[Path]) -> Path | None:
    return next((path for path in paths if path.stem == name), paths[0] if paths else None)


def _manifest(config: Path, configs: Configs) -> dict[str, Any] | None:
    manifest = config.parent / "manifest.yaml"
    return configs.read(manifest) if manifest.is_file() else None


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b"type: benchmark"  # so that whoever reads it properly reports what is wrong


def _readme(folder: Path) -> str | None:
    """The first sentence of a README."""
    try:
        text = (folder / "README.md").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    paragraphs = (" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n", text))
    prose = next((one for one in paragraphs if one and one[0] not in "#<![|-`>:*"), None)
    if prose is None:
        return None
    sentence = re.match(r".*?[.:](?=\s|$)", prose)
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", sentence[0] if sentence else prose).rstrip(".:")
