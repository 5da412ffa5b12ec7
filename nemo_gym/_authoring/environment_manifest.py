# SPDX-License-Identifier: Apache-2.0
"""`manifest.yaml`: what an environment or a benchmark says about itself, for catalogs and reviewers."""

from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from nemo_gym._config.problems import Problems, explain
from nemo_gym._config.server_types import Domain
from nemo_gym._util.nearest import nearest
from nemo_gym.errors import ConfigError

Profile = Literal["custom-gym-verifier", "custom-gym-agent-loop", "external-agent-loop", "external-rollout-driver"]


class Reward(BaseModel):
    """Which rewards there are and which are better."""

    range: tuple[float, float] = (0.0, 1.0)
    higher_is_better: bool = True

    @model_validator(mode="after")
    def check_order(self) -> "Reward":
        if self.range[0] >= self.range[1]:
            raise ValueError(f"the range goes from low to high, not from {self.range[0]:g} to {self.range[1]:g}")
        return self

    @property
    def full(self) -> float:
        """What the best answer gets."""
        return self.range[1] if self.higher_is_better else self.range[0]

    @property
    def none(self) -> float:
        """What no answer gets."""
        return self.range[0] if self.higher_is_better else self.range[1]


class EnvironmentManifest(BaseModel):
    """The manifest; keys that are not listed here are kept for others."""

    model_config = ConfigDict(extra="allow")

    name: str
    version: str = "0.1.0"
    kind: Literal["environment", "benchmark"]
    integration_profile: Profile = "custom-gym-verifier"
    domain: Domain = Domain.OTHER
    description: str = ""
    modality: str | list[str] = "text"
    licensing: str | dict[str, Any] = "Apache 2.0"
    authors: list[str | dict[str, Any]] = Field(default_factory=list)
    reward: Reward = Field(default_factory=Reward)
    determinism: str | bool | dict[str, Any] = "deterministic"
    resources_server: str | dict[str, Any] | None = None
    agent_server: str | dict[str, Any] | None = None
    model_server: str | dict[str, Any] | None = None
    datasets: list[Any] = Field(default_factory=list)


def render_manifest(manifest: EnvironmentManifest) -> str:
    """Return the manifest as YAML."""
    return yaml.safe_dump(manifest.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def read_manifest(path: Path) -> tuple[EnvironmentManifest | None, Problems]:
    """Return the manifest in `path`, and everything that is wrong with it."""
    problems = Problems()
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        manifest = EnvironmentManifest.model_validate(content)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        problems.add(ConfigError, f"{path}: cannot be read: {' '.join(str(error).split())}")
        return None, problems
    except ValidationError as error:
        manifest = None
        for place, text in explain(error, content).items():
            problems.add(ConfigError, f"{path}: {'.'.join(place) or 'the file'}: {text}")
    for key in content if isinstance(content, dict) else ():
        known = [name for name in EnvironmentManifest.model_fields if name not in content]
        if key not in EnvironmentManifest.model_fields and (close := nearest(str(key), known, limit=1)):
            problems.add(ConfigError, f"{path}: {key!r} is no key of a manifest. Did you mean {close[0]!r}?")
    return manifest, problems
