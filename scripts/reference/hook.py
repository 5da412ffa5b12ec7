# SPDX-License-Identifier: Apache-2.0
"""The hook of mkdocs that adds the reference to the site: its pages are made in memory and never committed."""

import re
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

from scripts.reference import commands, endpoints, python_api, server_configs, settings
from scripts.reference import files as file_formats

SERVER_PAGES = {
    "resources_servers": "resources-servers",
    "responses_api_agents": "agents",
    "responses_api_models": "models",
}
# Links may lead anywhere; what a page loads by itself may not.
LOADED_FROM_ELSEWHERE = re.compile(
    r"""<(?:script|img|iframe|video)\b[^>]*\ssrc=["']?(?:https?:)?//[^>]*>"""
    r"""|<link\b[^>]*\brel=["']?(?:stylesheet|preload|preconnect|icon)[^>]*\shref=["']?(?:https?:)?//[^>]*>"""
)
INDEX = """\
# Reference

Made from the code when the site is built.

| page | what |
| --- | --- |
| [Commands](commands.md) | every command with its flags and config keys |
| [Config keys](settings.md) | top-level keys, and those that every server has |
| [Resources servers](resources-servers.md) | every environment that is shipped, with its keys |
| [Agent servers](agents.md) | every agent, with its keys |
| [Model servers](models.md) | every model server, with its keys |
| [HTTP endpoints](endpoints.md) | what servers answer to |
| [File formats](files.md) | what a run writes |
| [Python API](python/index.md) | the modules that others import |
"""


def write_pages() -> dict[str, str]:
    """Write all pages of the reference, by their place in the site."""
    pages = {
        "index": INDEX,
        "commands": commands.write_page(),
        "settings": settings.write_page(),
        "endpoints": endpoints.write_page(),
        "files": file_formats.write_page(),
        "python/index": python_api.write_index(),
    }
    pages |= {name: server_configs.write_page(kind) for kind, name in SERVER_PAGES.items()}
    pages |= {f"python/{name}": python_api.write_module(name) for name in python_api.list_modules()}
    return {f"reference/{name}.md": text for name, text in pages.items()}


def on_config(config: Any) -> Any:
    """Put the modules of the Python API into the navigation."""
    modules = [{name: f"reference/python/{name}.md"} for name in python_api.list_modules()]
    (reference,) = (section["Reference"] for section in config.nav if "Reference" in section)
    reference.append({"Python API": ["reference/python/index.md", *modules]})
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages."""
    for place, text in write_pages().items():
        files.append(File.generated(config, place, content=text))
    return files


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Refuse a page that would ask another host for something."""
    if found := LOADED_FROM_ELSEWHERE.search(output):
        raise PluginError(f"{page.file.src_uri} loads something from another host: {found[0]}")
    return output
