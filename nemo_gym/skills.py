# SPDX-License-Identifier: Apache-2.0
"""Skills: folders of instructions and files, each with a `SKILL.md`, that an agent may be given for a run.

A run records which skills it used, and a hash of all their content, so that its result can be told apart from that of
an edited copy. What an agent does with the staged files is up to the agent.
"""

import hashlib
import itertools
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, Field

from nemo_gym import _resolve_under_cwd_or_install
from nemo_gym.errors import ConfigError, ConfigPathNotFoundError

SKILL_FILE = "SKILL.md"
_FENCE = "---"


class SkillError(ConfigError, ValueError):
    """A folder of skills cannot be used as it is."""


class SkillsRef(BaseModel):
    """Which skills a rollout was given; travels with its row as `skills_ref`."""

    path: str = Field(description="The folder of skills, as it was given.")
    hash: str = Field(description="SHA-256 over the relative paths and contents of all files.")
    skills: list[str] = Field(description="The names of the skills, sorted.")


class Skill(BaseModel):
    """One skill, as its `SKILL.md` describes it."""

    name: str
    description: str = ""
    folder: Path


def load_skill_directory(path: str | Path) -> SkillsRef:
    """What is in a folder that holds skills, or that is one itself; looked up in the search roots."""
    root = _root(path)
    return SkillsRef(path=str(path), hash=_hash(root), skills=sorted(skill.name for skill in list_skills(path)))


def list_skills(path: str | Path) -> list[Skill]:
    """The skills in the folder `path`, in order of their names."""
    root = _root(path)
    folders = [root] if (root / SKILL_FILE).is_file() else sorted(file.parent for file in root.glob(f"*/{SKILL_FILE}"))
    if not folders:
        raise SkillError(
            f"{root} holds no skills.\n"
            f"hint: a skill is a folder with a file {SKILL_FILE!r} in it; give that folder or the one above"
        )
    skills = sorted((_skill(folder) for folder in folders), key=lambda skill: skill.name)
    repeated = {one.name for one, other in itertools.pairwise(skills) if one.name == other.name}
    if repeated:
        raise SkillError(f"{root} holds several skills of the same name: {', '.join(sorted(repeated))}")
    return skills


def stage_skills(skills_ref: SkillsRef | Mapping[str, Any] | str | Path, target_dir: str | Path) -> list[Path]:
    """Copy the skills into `target_dir/<name>`, in place of older copies; returns the folders.

    SkillError if the files have changed since a SkillsRef was made from them.
    """
    ref = SkillsRef.model_validate(skills_ref) if isinstance(skills_ref, Mapping) else skills_ref
    path = ref.path if isinstance(ref, SkillsRef) else ref
    if isinstance(ref, SkillsRef) and _hash(_root(path)) != ref.hash:
        raise SkillError(
            f"the skills in {path!r} have changed since this run began.\nhint: start a new run, or restore the files"
        )
    return [_stage(skill, Path(target_dir) / skill.name) for skill in list_skills(path)]


def _stage(skill: Skill, folder: Path) -> Path:
    source, target = skill.folder.resolve(), folder.resolve()
    if source in (target, *target.parents) or target in source.parents:
        raise SkillError(f"skill {skill.name!r} cannot be copied to {folder}, which overlaps its own folder {source}")
    if folder.exists():
        shutil.rmtree(folder)
    shutil.copytree(source, folder)
    return folder


def _root(path: str | Path) -> Path:
    root = _resolve_under_cwd_or_install(path, validator=Path.is_dir)
    if not root.is_dir():
        raise ConfigPathNotFoundError(f"the folder of skills {str(path)!r} was not found, at last looked for as {root}")
    return root


def _files(root: Path) -> Iterator[Path]:
    return (file for file in sorted(root.rglob("*")) if file.is_file())


def _hash(root: Path) -> str:
    digest = hashlib.sha256()
    for file in _files(root):
        content = file.read_bytes()
        # Lengths keep the border between a name and a content from moving.
        name = file.relative_to(root).as_posix().encode()
        digest.update(b"%d:%d:" % (len(name), len(content)) + name + content)
    return digest.hexdigest()


def _skill(folder: Path) -> Skill:
    described = _front_matter(folder / SKILL_FILE)
    name = str(described.get("name") or folder.resolve().name)
    if name in (".", "..") or Path(name).name != name:
        raise SkillError(f"{folder / SKILL_FILE}: {name!r} cannot be a skill's name, because it cannot name a folder")
    return Skill(name=name, description=str(described.get("description") or ""), folder=folder)


def _front_matter(file: Path) -> dict[str, Any]:
    """The YAML between two lines of `---` at the top of `file`, if there is any."""
    lines = file.read_text(encoding="utf-8").splitlines()
    if not lines or lines[0].rstrip() != _FENCE or _FENCE not in (line.rstrip() for line in lines[1:]):
        return {}
    end = next(number for number, line in enumerate(lines[1:], 1) if line.rstrip() == _FENCE)
    try:
        described = yaml.safe_load("\n".join(lines[1:end]))
    except yaml.YAMLError as error:
        raise SkillError(f"{file}: the front matter is not valid YAML: {error}") from error
    return described if isinstance(described, dict) else {}
