# SPDX-License-Identifier: Apache-2.0
"""Skills: folders of instructions and files, each with a `SKILL.md`, that an agent may be given for a run.

A run records which skills it used and a hash of their content, so that its results can be told apart from those of an
edited copy. What an agent does with the staged files is up to the agent.
"""

import hashlib
import itertools
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, Field

from nemo_gym import _resolve_under_cwd_or_install
from nemo_gym.errors import ConfigError

SKILL_FILE = "SKILL.md"
_FENCE = "---"


class SkillError(ConfigError, ValueError):
    """A folder of skills cannot be used as it is."""


class SkillMetadata(BaseModel):
    """The front matter of a `SKILL.md`."""

    name: str = Field(description="The name of the skill; by default the name of its folder.")
    description: str | None = Field(default=None, description="What the skill is for.")
    version: str | None = Field(default=None, description="Its version, as its author numbers them.")


class Skill(SkillMetadata):
    """A skill and the folder that holds it."""

    folder: Path


class SkillsRef(BaseModel):
    """The skills a rollout was given; travels with its row as `skills_ref`."""

    path: str = Field(description="The folder of skills, as given.")
    hash: str = Field(description="The folder's hash, from `hash_skill_dir`.")
    skills: list[SkillMetadata] = Field(description="The skills in it, by name.")


def load_skill_directory(path: str | Path) -> SkillsRef:
    """Describe a folder that holds skills, or is one itself; it is looked up in the search roots."""
    skills = [SkillMetadata(**skill.model_dump(exclude={"folder"})) for skill in list_skills(path)]
    return SkillsRef(path=str(path), hash=hash_skill_dir(path), skills=skills)


def hash_skill_dir(path: str | Path) -> str:
    """Return 12 hex digits that change with the name or the content of any file below `path`."""
    root = _find_root(path)
    digest = hashlib.sha256()
    for file in sorted(root.rglob("*")):
        if file.is_file():
            digest.update(file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def parse_skill_md(path: str | Path) -> SkillMetadata:
    """Read the front matter of the file `path`, or of the `SKILL.md` in the folder `path`."""
    file = Path(path)
    if file.is_dir():
        file /= SKILL_FILE
    described = _read_front_matter(file)
    given = {key: str(described[key]) for key in ("name", "description", "version") if described.get(key) is not None}
    return SkillMetadata(**{"name": file.resolve().parent.name, **given})


def list_skills(path: str | Path) -> list[Skill]:
    """Return the skills in the folder `path`, sorted by name."""
    root = _find_root(path)
    if (root / SKILL_FILE).is_file():
        folders = [root]
    else:
        folders = sorted(file.parent for file in root.glob(f"*/{SKILL_FILE}"))
    if not folders:
        raise SkillError(
            f"{root} holds no skills.\n"
            f"hint: a skill is a folder with a file {SKILL_FILE!r} in it; give that folder or the one above"
        )
    skills = sorted((_read_skill(folder) for folder in folders), key=lambda skill: skill.name)
    repeated = {one.name for one, other in itertools.pairwise(skills) if one.name == other.name}
    if repeated:
        raise SkillError(f"{root} holds several skills of the same name: {', '.join(sorted(repeated))}")
    return skills


def stage_skills(path: str | Path | SkillsRef | Mapping[str, Any], dest: str | Path) -> None:
    """Copy the skills of a folder into `dest/<name>`, replacing older copies.

    Raise SkillError if the files have changed since a SkillsRef was made from them.
    """
    if isinstance(path, Mapping | SkillsRef):
        ref = SkillsRef.model_validate(path)
        path = ref.path
        if hash_skill_dir(path) != ref.hash:
            raise SkillError(
                f"the skills in {path!r} have changed since this run began.\n"
                "hint: start a new run, or restore the files"
            )
    for skill in list_skills(path):
        folder = Path(dest) / skill.name
        source = skill.folder.resolve()
        target = folder.resolve()
        if source in (target, *target.parents) or target in source.parents:
            raise SkillError(f"skill {skill.name!r} cannot be copied to {folder}: it overlaps its own folder {source}")
        if folder.exists():
            shutil.rmtree(folder)
        shutil.copytree(source, folder)


def _find_root(path: str | Path) -> Path:
    root = _resolve_under_cwd_or_install(path, validator=Path.is_dir)
    if not root.is_dir():
        what = "it is a file" if root.exists() else "nothing is there"
        raise SkillError(
            f"the folder of skills {str(path)!r} is not a directory: looked for it as {root}, {what}.\n"
            f"hint: give a folder that has a file {SKILL_FILE!r}, or folders with one, in it"
        )
    return root


def _read_skill(folder: Path) -> Skill:
    skill = Skill(**parse_skill_md(folder).model_dump(), folder=folder)
    if skill.name in (".", "..") or Path(skill.name).name != skill.name:
        raise SkillError(
            f"{folder / SKILL_FILE}: {skill.name!r} cannot be a skill's name, because it cannot name a folder"
        )
    return skill


def _read_front_matter(file: Path) -> dict[str, Any]:
    """Return the YAML between two `---` lines at the top of `file`, if any."""
    lines = file.read_text(encoding="utf-8").splitlines()
    if not lines or lines[0].rstrip() != _FENCE or _FENCE not in (line.rstrip() for line in lines[1:]):
        return {}
    end = next(number for number, line in enumerate(lines[1:], 1) if line.rstrip() == _FENCE)
    try:
        described = yaml.safe_load("\n".join(lines[1:end]))
    except yaml.YAMLError as error:
        raise SkillError(f"{file}: the front matter is not valid YAML: {error}") from error
    return described if isinstance(described, dict) else {}
