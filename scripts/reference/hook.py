# SPDX-License-Identifier: Apache-2.0
"""The mkdocs hook that adds the reference to the site: its pages are generated in memory and never committed."""

import re
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

from scripts.reference import commands, endpoints, files as file_formats, python_api, server_configs, settings

SERVER_PAGES = {
    "resources_servers": "resources-servers",
    "responses_api_agents": "agents",
    "responses_api_models": "models",
}
# Links may lead anywhere, but a page may not load anything from another host.
LOADED_FROM_ELSEWHERE = re.compile(
    r"""<(?:script|img|iframe|video)\b[^>]*\ssrc=["']?(?:https?:)?//[^>]*>"""
    r"""|<link\b[^>]*\brel=["']?(?:stylesheet|preload|preconnect|icon)[^>]*\shref=["']?(?:https?:)?//[^>]*>"""
)
INDEX = """\
# Reference

Generated from the code when the site is built.

| page | what |
| --- | --- |
| [Commands](commands.md) | every command with its flags and config keys |
| [Config keys](settings.md) | top-level keys, and the keys of every server |
| [Resources servers](resources-servers.md) | every included environment, with its keys |
| [Agent servers](agents.md) | every agent, with its keys |
| [Model servers](models.md) | every model server, with its keys |
| [HTTP endpoints](endpoints.md) | the endpoints of every kind of server |
| [File formats](files.md) | the files that a run writes |
| [Python API](python/index.md) | the public modules |
"""


def write_pages() -> dict[str, str]:
    """Return all pages of the reference, by their path in the site."""
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
    """Add the modules of the Python API to the navigation."""
    modules = [{name: f"reference/python/{name}.md"} for name in python_api.list_modules()]
    (reference,) = (section["Reference"] for section in config.nav if "Reference" in section)
    reference.append({"Python API": ["reference/python/index.md", *modules]})
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the reference pages."""
    for path, text in write_pages().items():
        files.append(File.generated(config, path, content=text))
    return files


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Raise if a page loads anything from another host."""
    if found := LOADED_FROM_ELSEWHERE.search(output):
        raise PluginError(f"{page.file.src_uri} loads something from another host: {found[0]}")
    return output
