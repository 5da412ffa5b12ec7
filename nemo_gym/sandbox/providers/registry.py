# SPDX-License-Identifier: Apache-2.0
"""Which sandbox providers there are, by name. A provider's module is imported when somebody asks for it.

A name is looked for among those that were registered, then among the built-in ones, then among the entry points of
installed packages. Of the built-in ones, some are only names that configs carry (see `services`): an installed package
goes before those.
"""

import difflib
import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from nemo_gym.sandbox.providers.base import (
    SandboxConfigError,
    SandboxConfigTypeError,
    SandboxProvider,
    UnknownProviderError,
)

ENTRY_POINT_GROUP = "nemo_gym.sandbox_providers"

_DRIVEN = {"apptainer": "ApptainerProvider", "docker": "DockerProvider", "local": "LocalProvider"}
_ONLY_NAMES = {
    "daytona": "DaytonaProvider",
    "ecs_fargate": "EcsFargateProvider",
    "enroot": "EnrootProvider",
    "opensandbox": "OpenSandboxProvider",
    "openshell": "OpenShellProvider",
}
_BUILT_IN = {**_DRIVEN, **_ONLY_NAMES}

ProviderClass = Callable[..., SandboxProvider]

_registered: dict[str, ProviderClass] = {}


def register_provider(name: str, cls: ProviderClass, *, override: bool = False) -> None:
    """Make `cls` available under `name`; `override` lets it take the place of a provider that has the name."""
    if not isinstance(name, str) or not name:
        raise SandboxConfigError(f"the name of a sandbox provider must be text, not {name!r}")
    if not override and (name in _registered or name in _BUILT_IN):
        raise SandboxConfigError(
            f"there is a sandbox provider {name!r} already\n"
            f"hint: `register_provider({name!r}, ..., override=True)` puts yours in its place"
        )
    _registered[name] = cls


def list_providers() -> list[str]:
    """Return the names of all providers, sorted."""
    return sorted({*_BUILT_IN, *_registered, *_find_entry_points()})


def get_provider_class(name: str) -> ProviderClass:
    """Return the class that stands under `name`; the service or engine behind it need not be there."""
    if name in _registered:
        return _registered[name]
    if name not in _DRIVEN:
        installed = _find_entry_points().get(name)
        if installed is not None:
            return _load(installed)
    if name not in _BUILT_IN:
        guess = suggest_nearest(name, list_providers()) if isinstance(name, str) else ""
        raise UnknownProviderError(
            f"there is no sandbox provider {name!r}.\navailable: {', '.join(list_providers())}{guess}\n"
            f"hint: register one with `nemo_gym.sandbox.register_provider({name!r}, YourProvider)`, or install a "
            f"package that offers it by an entry point of group {ENTRY_POINT_GROUP!r}"
        )
    module = importlib.import_module(f"nemo_gym.sandbox.providers.{name if name in _DRIVEN else 'services'}")
    found: ProviderClass = getattr(module, _BUILT_IN[name])
    return found


def create_provider(config: Mapping[str, Mapping[str, Any] | None]) -> SandboxProvider:
    """Return the provider that `{name: {settings}}` describes."""
    if not isinstance(config, Mapping) or len(config) != 1:
        raise SandboxConfigError(
            f"a sandbox provider config is a mapping with one provider in it, not {config!r}\n"
            f"hint: e.g. {{'docker': {{}}}}; sandbox providers: {', '.join(list_providers())}"
        )
    ((name, settings),) = config.items()
    if settings is not None and not isinstance(settings, Mapping):
        raise SandboxConfigTypeError(
            f"the settings of sandbox provider {name!r} must be a mapping, not {type(settings).__name__}\n"
            f"hint: e.g. {{{name!r}: {{}}}}"
        )
    provider_class = get_provider_class(name)
    keywords = {str(key): value for key, value in (settings or {}).items()}
    try:
        inspect.signature(provider_class).bind(**keywords)
    except TypeError as error:
        accepted = ", ".join(inspect.signature(provider_class).parameters) or "none"
        raise SandboxConfigTypeError(
            f"sandbox provider {name!r} cannot be made from these settings: {error}\nit accepts: {accepted}"
        ) from error
    return provider_class(**keywords)


def suggest_nearest(name: str, candidates: Iterable[str]) -> str:
    """Return a hint line with the names closest to `name`, or nothing."""
    close = difflib.get_close_matches(name, list(dict.fromkeys(candidates)), n=3)
    return f"\nhint: did you mean {' or '.join(map(repr, close))}?" if close else ""


def _find_entry_points() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=ENTRY_POINT_GROUP)}


def _load(entry: EntryPoint) -> ProviderClass:
    package = entry.dist.name if entry.dist is not None else "an installed package"
    try:
        found: ProviderClass = entry.load()
    except (ImportError, AttributeError) as error:
        raise SandboxConfigError(
            f"the sandbox provider {entry.name!r} of {package} cannot be loaded from {entry.value!r}: {error}\n"
            f"hint: install what {package} needs, or report this to its authors"
        ) from error
    return found
