# SPDX-License-Identifier: Apache-2.0
"""Virtual environments for servers whose requirements the running environment does not meet.

`plan_venv` says which interpreter a server runs with, `build_all` builds what is missing. An environment lives in a
folder named by the hash of all it is built from, so servers with equal requirements share it and a change of
requirements is a new environment. It is built in its final place, because scripts hold absolute paths, and counts only
once `complete.json`, written last, is there. Old environments are not removed.

Each environment holds nemo-gym (see `own_wheel`) and its dependencies in full, resolved together with the server's own
lines. Lending it the parent's site-packages instead would save a fraction of a second of hard-linking, and pay with
what isolation is for: a package of the parent that nobody declared, built for other versions of what the server pins
(math-verify alone would bring an antlr4 that omegaconf cannot use), and no way to use another Python.
"""

import asyncio
import hashlib
import json
import platform
import re
import sys
import sysconfig
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from nemo_gym._config.defaults import running_head_server_deps
from nemo_gym._servers.installing.imported_packages import add_upstream_packages
from nemo_gym._servers.installing.installers import find_uv, run_tool
from nemo_gym._servers.installing.own_wheel import OwnPackage, find_running_package, write_wheel
from nemo_gym._servers.installing.requirements import (
    RequirementLine,
    ServerRequirements,
    add_lines,
    find_unmet,
    read_requirements,
)
from nemo_gym._servers.installing.venv_store import (
    discard,
    find_running_venv,
    is_complete,
    is_usable,
    leads_to,
    link,
    lock_venv,
    mark_complete,
    python_in,
)
from nemo_gym._util.search_root_finder import split_server_folder
from nemo_gym.errors import GymError

PARALLEL_BUILDS = 4
KEY_LENGTH = 20

_MADE_BY_TOOLS = re.compile(r"(^|/)(\.[^/]*|__pycache__|build|[^/]*\.egg-info)(/|$)")

Stage = Literal["waiting", "building", "output", "ready", "failed"]


@dataclass(frozen=True)
class VenvSettings:
    """Where and how environments are built."""

    cache_dir: Path
    uv_cache_dir: Path | None = None
    """uv's own cache; None leaves it to uv."""
    uv_venv_dir: Path | None = None
    """Keep environments here, as `<type>/<impl>/.venv`; None: in the cache, and `.venv` in the server's folder."""
    python_version: str = field(default_factory=platform.python_version)
    verbose: bool = False
    skip_if_present: bool = False
    """Use a `.venv` that is there as it is, whatever the requirements say."""
    extra_requirements: tuple[str, ...] = ()
    """Installed into every environment: `head_server_deps`."""
    timeout_s: float = 3600
    """Longest time for one step of a build, and for waiting while another process builds."""
    uv: Path | None = None
    own: OwnPackage = field(default_factory=find_running_package)

    @property
    def store(self) -> Path:
        """The folder of all environments. Under `uv_venv_dir` it moves with the links that lead into it."""
        if self.uv_venv_dir:
            return (self.uv_venv_dir / ".venvs").absolute()
        return (self.cache_dir / "venvs").absolute()


@dataclass(frozen=True)
class Recipe:
    """An environment in the store and what it is built from."""

    venv: Path
    place: Path
    """Where a user looks for it: the link."""
    requirements: ServerRequirements
    own_extras: tuple[str, ...]
    """The extras of nemo-gym to install."""
    venv_with_tests: Path
    """The environment that has what the test suite needs, too; it may be the same."""


@dataclass(frozen=True)
class VenvPlan:
    """How a server gets its interpreter."""

    folder: Path
    python: Path
    """The interpreter to run the server with, once the plan is built."""
    why: str
    """Why this interpreter, for a log."""
    built: bool = True
    """Nothing needs to be built before the server can start."""
    recipe: Recipe | None = None
    """None if no environment of ours is used."""
    place: Path | None = None
    """Where a user looks for the running environment, if the server uses that and it can be activated."""


@dataclass(frozen=True)
class VenvProgress:
    """One thing that happened while building; `servers` are the folders that share the environment."""

    servers: tuple[Path, ...]
    stage: Stage
    text: str


OnProgress = Callable[[VenvProgress], None]


class VenvBuildError(GymError):
    """Some environments could not be built."""


def plan_venv(
    folder: Path, settings: VenvSettings, *, extras: bool = False, of_instance: Sequence[str] = ()
) -> VenvPlan:
    """Decide which interpreter the server in `folder` runs with.

    `extras` adds what its test suite needs, `of_instance` what one instance of it asks for in its config.
    """
    folder = folder.absolute()
    place = _choose_place(folder, settings)
    if settings.skip_if_present and is_usable(place):
        return VenvPlan(folder, python_in(place), f"{place} is there and skip_venv_if_present is set")
    served, tested = (
        add_lines(add_upstream_packages(read_requirements(folder), settings.own, tests=tests), of_instance)
        for tests in (False, True)
    )
    requirements = tested if extras else served
    # Which versions the running environment has is no requirement that it could fail to meet.
    more = [text for text in settings.extra_requirements if text not in running_head_server_deps()]
    reason = _explain_other_python(settings.python_version) or find_unmet(requirements, dev=extras, more=more)
    if reason is None:
        why = "the running environment meets its requirements"
        can_test = is_usable(find_running_venv()) and find_spec("pytest") is not None
        return VenvPlan(folder, Path(sys.executable), why, place=place if can_test else None)
    with_tests = tuple(sorted(requirements.own_extras))
    if extras:
        own_extras = with_tests
    else:
        own_extras = tuple(name for name in with_tests if name != "dev")
    venv = settings.store / _hash_recipe(requirements, own_extras, settings)
    venv_with_tests = settings.store / _hash_recipe(tested, with_tests, settings)
    recipe = Recipe(venv, place, requirements, own_extras, venv_with_tests)
    return VenvPlan(folder, python_in(venv), reason, is_complete(venv), recipe)


async def build_all(plans: Sequence[VenvPlan], settings: VenvSettings, on_progress: OnProgress) -> None:
    """Build what `plans` lack: each environment once, different ones in parallel, all failures in one error."""
    for place in [plan.place for plan in plans if plan.place is not None]:
        await asyncio.to_thread(link, place, find_running_venv())
    sharing: dict[Path, list[Recipe]] = {}
    why = {plan.recipe.venv: plan.why for plan in plans if plan.recipe}
    for plan in plans:
        if plan.recipe is not None:
            sharing.setdefault(plan.recipe.venv, []).append(plan.recipe)
    slots = asyncio.Semaphore(PARALLEL_BUILDS)
    async with asyncio.TaskGroup() as group:
        builds = [
            group.create_task(_provide(recipes, why[venv], settings, slots, on_progress))
            for venv, recipes in sharing.items()
        ]
    failures = [failure for build in builds if (failure := build.result())]
    if failures:
        raise VenvBuildError("\n\n".join(failures))


async def _provide(
    recipes: Sequence[Recipe], why: str, settings: VenvSettings, slots: asyncio.Semaphore, on_progress: OnProgress
) -> str | None:
    """Have the environment that `recipes` share, built and linked; the failure as text if that does not work."""
    venv = recipes[0].venv
    servers = tuple(recipe.requirements.folder for recipe in recipes)

    def tell(stage: Stage, text: str) -> None:
        on_progress(VenvProgress(servers, stage, text))

    def tell_waiting() -> None:
        tell("waiting", f"waiting for another process that builds {venv}")

    try:
        if not is_complete(venv):
            async with lock_venv(venv, settings.timeout_s, tell_waiting) as lock_fd:
                if not is_complete(venv):
                    async with slots:
                        tell("building", why)
                        await _build(recipes[0], settings, lock_fd, lambda line: tell("output", line))
        tell("ready", str(venv))
    except (GymError, OSError) as error:
        tell("failed", str(error).splitlines()[0])
        names = ", ".join(repr(str(server)) for server in servers)
        return (
            f"the virtual environment of {names} could not be built ({why}).\n{error}\n"
            "hint: check the requirements, and the network if packages must be downloaded"
        )
    for recipe in recipes:
        # To run a server must not take the environment away in which its tests can be run.
        if not (is_complete(recipe.venv_with_tests) and leads_to(recipe.place, recipe.venv_with_tests)):
            await asyncio.to_thread(link, recipe.place, venv)
    return None


async def _build(recipe: Recipe, settings: VenvSettings, lock_fd: int, on_line: Callable[[str], None]) -> None:
    """Build an environment from nothing, or leave nothing."""
    folder = recipe.requirements.folder
    venv = recipe.venv
    uv = settings.uv or find_uv()
    common: list[str | Path] = []
    if settings.uv_cache_dir:
        common = ["--cache-dir", settings.uv_cache_dir.absolute()]
    if settings.verbose:
        common.append("-v")
    # With the running interpreter itself, a Python that uv would not find by its version does as well.
    if _explain_other_python(settings.python_version):
        python = settings.python_version
    else:
        python = sys.executable

    async def call(*words: str | Path) -> None:
        await run_tool([uv, *words], cwd=folder, timeout_s=settings.timeout_s, inherited_fd=lock_fd, on_line=on_line)

    started = time.monotonic()
    await asyncio.to_thread(discard, venv)
    try:
        await call("venv", *common, "--no-project", "--seed", "--prompt", folder.name, "--python", python, venv)
        packages = await asyncio.to_thread(_list_packages, recipe, settings)
        await call("pip", "install", *common, "--python", python_in(venv), *packages)
        mark_complete(venv, {"server": str(folder), "seconds": round(time.monotonic() - started, 3)})
    except BaseException:
        await asyncio.to_thread(discard, venv)
        raise


def _list_packages(recipe: Recipe, settings: VenvSettings) -> list[str | Path]:
    """Return the server's files as they are, with the running nemo-gym in place of whatever they say about it."""
    name = settings.own.name
    requirements = recipe.requirements
    own = f"{name}[{','.join(recipe.own_extras)}]" if recipe.own_extras else name
    override = recipe.venv / "own.txt"
    override.write_text(f"{own} @ {write_wheel(settings.own, recipe.venv).as_uri()}\n", encoding="utf-8")
    words: list[str | Path] = ["--override", override]
    if requirements.overrides_file:
        words += ["--override", requirements.overrides_file]
    if requirements.package:
        words += ["-e", requirements.folder]
    elif requirements.source:
        words += ["-r", requirements.source]
    # An editable one is two words: `-e` and its path.
    implied = [word for line in requirements.implied for word in line.text.split(" ", line.text.startswith("-"))]
    return [*words, name, *implied, *_list_extras(requirements, settings)]


def _list_extras(requirements: ServerRequirements, settings: VenvSettings) -> list[str]:
    """Return what every environment gets, without the running version of a package that the server names itself."""
    lines = (*requirements.lines, *requirements.implied)
    named = {canonicalize_name(line.requirement.name) for line in lines if line.requirement}
    running = running_head_server_deps()
    extras = settings.extra_requirements
    return [text for text in extras if text not in running or canonicalize_name(Requirement(text).name) not in named]


def _choose_place(folder: Path, settings: VenvSettings) -> Path:
    if settings.uv_venv_dir is None:
        return folder / ".venv"
    _, names = split_server_folder(folder)
    return settings.uv_venv_dir.absolute().joinpath(*names, ".venv")


def _explain_other_python(asked: str) -> str | None:
    """Return why the running interpreter is not the one asked for; `3.11` is met by 3.11.7."""
    running = platform.python_version()
    if f"{running}.".startswith(f"{asked}."):
        return None
    return f"Python {asked} is asked for, this is {running}"


def _hash_recipe(requirements: ServerRequirements, own_extras: Sequence[str], settings: VenvSettings) -> str:
    """Return a name for everything the environment is built from."""
    python: Any = [sys.implementation.cache_tag, sys.version, sys.base_prefix]
    if _explain_other_python(settings.python_version):
        python = settings.python_version
    parts = {
        "requirements": requirements.texts,
        "local": [_describe_local(line) for line in (*requirements.lines, *requirements.implied) if line.local],
        "project": _describe_project(requirements),
        "extra": sorted(settings.extra_requirements),
        "own": [settings.own.fingerprint, list(own_extras)],
        "python": python,
        "platform": sysconfig.get_platform(),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:KEY_LENGTH]


def _describe_project(requirements: ServerRequirements) -> list[str]:
    source = requirements.source
    if source is None or source.suffix != ".toml":
        return []
    return [str(requirements.folder), source.read_text(encoding="utf-8")]


def _describe_local(line: RequirementLine) -> list[str]:
    """Return what tells one state of a local file or project from another."""
    path = line.local
    assert path is not None
    if path.is_file():
        return [str(path), hashlib.sha256(path.read_bytes()).hexdigest()]
    if line.text.startswith("-"):
        # Editable: its code is used where it lies, only what it depends on is installed.
        files = [path / name for name in ("pyproject.toml", "setup.cfg", "setup.py")]
    else:
        files = [file for file in path.rglob("*") if not _MADE_BY_TOOLS.search(str(file.relative_to(path)))]
    described = []
    for file in files:
        if file.is_file():
            status = file.stat()
            described.append(f"{file.relative_to(path)} {status.st_size} {status.st_mtime_ns}")
    return [str(path), *sorted(described)]
