# SPDX-License-Identifier: Apache-2.0
"""Look up sandbox providers by name. A provider's module is imported only when it is used.

A name is looked up among the registered providers, then the built-in ones, then the entry points of installed packages.
Some built-in providers are only names that configs use (`ServiceProvider`); installed packages take precedence over
those.
"""

import importlib
import inspect
from collections.abc import Callable, Collection, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, ClassVar, NoReturn

from nemo_gym._util.nearest import suggest
from nemo_gym.sandbox.providers.base import (
    SandboxConfigError,
    SandboxConfigTypeError,
    SandboxCreateError,
    SandboxHandle,
    SandboxProvider,
    SandboxStatus,
    UnknownProviderError,
)

__all__ = ["create_provider", "get_provider_class", "list_providers", "register_provider"]

ENTRY_POINT_GROUP = "nemo_gym.sandbox_providers"
_IMPLEMENTED = {"apptainer": "ApptainerProvider", "docker": "DockerProvider", "local": "LocalProvider"}


class ServiceProvider:
    """A provider whose service or engine this package cannot drive.

    It accepts any settings, so that configs that name it can be read and checked. A provider that works comes from an
    installed package with an entry point of the same name, or from `register_provider(..., override=True)`.
    """

    name: ClassVar[str]
    service: ClassVar[str]
    """What the sandboxes run on."""
    client: ClassVar[str]
    """How to get the program or library that talks to it."""

    def __init__(self, **settings: Any) -> None:
        """Keep the settings, whatever they are."""
        self.settings: Mapping[str, Any] = settings

    async def create(self, *_: Any, **__: Any) -> NoReturn:
        """Raise an error that says what is missing."""
        raise SandboxCreateError(
            f"cannot create a sandbox with {self.name!r}: nemo-gym itself does not drive {self.service}, and no "
            f"installed package has a provider for it.\n"
            f"known: its client comes with {self.client}; a provider would use that\n"
            f"hint: install a package with the entry point {self.name!r} in group {ENTRY_POINT_GROUP!r}, or call "
            f"`nemo_gym.sandbox.register_provider({self.name!r}, YourProvider, override=True)`; docker, apptainer and "
            "local need neither"
        )

    exec = upload_file = download_file = create

    async def status(self, handle: SandboxHandle) -> SandboxStatus:
        """Return unknown: this package does not create these sandboxes."""
        return SandboxStatus.UNKNOWN

    async def close(self, handle: SandboxHandle) -> None:
        """Do nothing: there is nothing to end."""

    async def aclose(self) -> None:
        """Do nothing: the provider holds nothing."""


_SERVICES: dict[str, Any] = {
    name: type("ServiceProvider", (ServiceProvider,), {"name": name, "service": service, "client": client})
    for name, service, client in (
        ("daytona", "the Daytona service", "`pip install daytona`"),
        ("ecs_fargate", "AWS ECS with Fargate", "`pip install boto3`"),
        ("enroot", "the Enroot container engine", "the program `enroot` (github.com/NVIDIA/enroot)"),
        ("opensandbox", "the OpenSandbox service", "`pip install opensandbox`"),
        ("openshell", "the OpenShell service", "`pip install openshell`"),
    )
}
_BUILT_IN = {*_IMPLEMENTED, *_SERVICES}

ProviderClass = Callable[..., SandboxProvider]

_registered: dict[str, ProviderClass] = {}


def register_provider(name: str, cls: ProviderClass, *, override: bool = False) -> None:
    """Make `cls` available under `name`; with `override`, it may replace another provider of that name."""
    if not isinstance(name, str) or not name:
        raise SandboxConfigError(f"the name of a sandbox provider must be text, not {name!r}")
    if not override and (name in _registered or name in _BUILT_IN):
        raise SandboxConfigError(
            f"sandbox provider {name!r} already exists\n"
            f"hint: `register_provider({name!r}, ..., override=True)` replaces it"
        )
    _registered[name] = cls


def list_providers() -> list[str]:
    """Return the names of all providers, sorted."""
    return sorted({*_BUILT_IN, *_registered, *_find_entry_points()})


def get_provider_class(name: str) -> ProviderClass:
    """Return the class of the provider `name`; its service or engine need not be available."""
    if name in _registered:
        return _registered[name]
    if name in _IMPLEMENTED:
        module = importlib.import_module(f"nemo_gym.sandbox.providers.{name}")
        found: ProviderClass = getattr(module, _IMPLEMENTED[name])
        return found
    if (installed := _find_entry_points().get(name)) is not None:
        return _load(installed)
    if name not in _SERVICES:
        guess = suggest(str(name), list_providers())
        raise UnknownProviderError(
            f"there is no sandbox provider {name!r}.{guess}\navailable: {', '.join(list_providers())}\n"
            f"hint: register one with `nemo_gym.sandbox.register_provider({name!r}, YourProvider)`, or install a "
            f"package that provides it through an entry point in group {ENTRY_POINT_GROUP!r}"
        )
    service: ProviderClass = _SERVICES[name]
    return service


def read_provider(config: Any, origin: str, ignored: Collection[str] = ()) -> tuple[str, dict[str, Any]]:
    """Return the name and the settings in `{name: {settings}}`; `origin` names the config in messages."""
    names = []
    if isinstance(config, Mapping):
        names = [key for key in config if key not in ignored]
    if len(names) != 1:
        found = ", ".join(map(repr, names)) or "none"
        raise SandboxConfigError(
            f"{origin} must be a mapping with exactly one provider key, found: {found}\n"
            f"hint: e.g. {{'docker': {{}}}}; sandbox providers: {', '.join(list_providers())}"
        )
    name = names[0]
    settings = config[names[0]]
    if settings is not None and not isinstance(settings, Mapping):
        raise SandboxConfigTypeError(
            f"the settings of provider {name!r} in {origin} must be a mapping, not {type(settings).__name__}\n"
            f"hint: e.g. {{{name!r}: {{}}}}"
        )
    return name, dict(settings or {})


def create_provider(config: Mapping[str, Mapping[str, Any] | None]) -> SandboxProvider:
    """Return the provider that `{name: {settings}}` describes."""
    name, settings = read_provider(config, "the sandbox provider config")
    provider_class = get_provider_class(name)
    keywords = {str(key): value for key, value in settings.items()}
    try:
        inspect.signature(provider_class).bind(**keywords)
    except TypeError as error:
        accepted = ", ".join(inspect.signature(provider_class).parameters) or "none"
        raise SandboxConfigTypeError(
            f"sandbox provider {name!r} cannot be created from these settings: {error}\nit accepts: {accepted}"
        ) from error
    return provider_class(**keywords)


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
