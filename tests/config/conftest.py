# SPDX-License-Identifier: Apache-2.0
"""Helpers for config tests: files in a folder of their own, and a parse that sees nothing but what a test gives it."""

from collections.abc import Callable
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from nemo_gym._config.config_parser import Resolved, Sources, resolve
from nemo_gym._config.defaults import Machine
from nemo_gym._config.overrides import parse_overrides


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., list[str]]:
    """Writes files given as `name=text` (`__` stands for `/`) and returns their paths in that order."""

    def write_files(**texts: str) -> list[str]:
        names = []
        for name, text in texts.items():
            path = tmp_path / f"{name.replace('__', '/')}.yaml"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            names.append(str(path.relative_to(tmp_path)))
        return names

    return write_files


@pytest.fixture
def parse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Resolved]:
    """Resolves a config from override tokens, in a folder that holds the test's files."""
    monkeypatch.chdir(tmp_path)

    def parse_config(*tokens: str, paths: list[str] | None = None, initial: dict | None = None) -> Resolved:
        listed = [f"+config_paths=[{','.join(paths)}]"] if paths is not None else []
        overrides = parse_overrides([*listed, *tokens])
        dotenv = Path("env.yaml")
        return resolve(
            Sources(
                command_line=OmegaConf.create(overrides.values),
                deletions=overrides.deletions,
                initial=OmegaConf.create(initial or {}),
                dotenv_path=dotenv if dotenv.exists() else None,
                search_roots=[tmp_path],
            ),
            Machine(cache_dir=tmp_path / "cache", results_dir=tmp_path / "results", working_dir=tmp_path),
        )

    return parse_config
