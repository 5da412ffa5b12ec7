# SPDX-License-Identifier: Apache-2.0
"""Which sandbox providers there are, by name. A provider's module is imported when somebody asks for it."""

import difflib
import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from nemo_gym.sandbox.providers.base import SandboxConfigError, SandboxProvider, UnknownProviderError

_BUILT_IN = {
    "apptainer": ("nemo_gym.sandbox.providers.apptainer", "ApptainerProvider"),
    "docker": ("nemo_gym.sandbox.providers.docker", "DockerProvider"),
    "local": ("nemo_gym.sandbox.providers.local", "LocalProvider"),
}
# Names that configs written elsewhere may carry: each needs a service or an engine for which nothing is included here.
_NOT_INCLUDED = frozenset({"daytona", "ecs_fargate", "enroot", "opensandbox", "openshell"})

ProviderClass = Callable[..., SandboxProvider]

_registered: dict[str, ProviderClass] = {}


def register_provider(name: str, provider_class: ProviderClass) -> None:
    """Make `provider_class` available under `name`, in place of a provider that had the name before."""
    if not isinstance(name, str) or not name:
        raise SandboxConfigError(f"the name of a sandbox provider must be text, not {name!r}")
    _registered[name] = provider_class


def known_names() -> set[str]:
    """Names of the providers that are really there."""
    return {*_BUILT_IN, *_registered}


def list_providers() -> list[str]:
    """Names of the providers that are really there, sorted."""
    return sorted(known_names())


def get_provider_class(name: str) -> ProviderClass:
    """The class registered or built in under `name`."""
    if name in _registered:
        return _registered[name]
    if name not in _BUILT_IN:
        raise UnknownProviderError(_why_unknown(name))
    module, attribute = _BUILT_IN[name]
    found: ProviderClass = getattr(importlib.import_module(module), attribute)
    return found


def create_provider(config: Mapping[str, Mapping[str, Any] | None]) -> SandboxProvider:
    """The provider that `{name: {settings}}` describes."""
    if not isinstance(config, Mapping) or len(config) != 1:
        raise SandboxConfigError(
            f"a sandbox provider config is a mapping with one provider in it, not {config!r}\n"
            f"hint: e.g. {{'docker': {{}}}}; sandbox providers: {', '.join(list_providers())}"
        )
    ((name, settings),) = config.items()
    provider_class = get_provider_class(name)
    keywords = {str(key): value for key, value in (settings or {}).items()}
    try:
        inspect.signature(provider_class).bind(**keywords)
    except TypeError as error:
        accepted = ", ".join(inspect.signature(provider_class).parameters) or "none"
        raise SandboxConfigError(
            f"sandbox provider {name!r} cannot be made from these settings: {error}\nit accepts: {accepted}"
        ) from error
    return provider_class(**keywords)


def nearest(name: str, candidates: Iterable[str]) -> str:
    """A hint line with the names closest to `name`, or nothing."""
    close = difflib.get_close_matches(name, list(dict.fromkeys(candidates)), n=3)
    return f"\nhint: did you mean {' or '.join(map(repr, close))}?" if close else ""


def _why_unknown(name: str) -> str:
    there = f"available: {', '.join(list_providers())}"
    if name in _NOT_INCLUDED:
        return (
            f"the sandbox provider {name!r} is not included in this package: it needs a service or an engine of its "
            f"own.\n{there}\n"
            f"hint: use one of those, or register your own with "
            f'`nemo_gym.sandbox.register_provider("{name}", YourProvider)` before the sandbox is made'
        )
    guess = nearest(name, list_providers()) if isinstance(name, str) else ""
    return (
        f"there is no sandbox provider {name!r}.\n{there}{guess}\n"
        f"hint: register one with `nemo_gym.sandbox.register_provider({name!r}, YourProvider)`"
    )
