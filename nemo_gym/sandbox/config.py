# SPDX-License-Identifier: Apache-2.0
"""Turn what a server's config says about its sandbox into `{provider: settings}`.

A config names a provider, names a block of the loaded config that describes one, or holds the description itself.
Whether the provider exists and accepts the settings is checked when it is created.
"""

from collections.abc import Mapping
from typing import Any

from nemo_gym._util.nearest import suggest
from nemo_gym.sandbox.providers.base import SandboxConfigError, SandboxConfigTypeError
from nemo_gym.sandbox.providers.registry import list_providers, read_provider

METADATA_KEYS = ("default_metadata", "metadata")

ProviderRef = str | Mapping[str, Any]


def resolve_provider_config(
    provider: ProviderRef, named_configs: Mapping[str, Any] | None = None
) -> dict[str, dict[str, Any]]:
    """Return `{provider name: settings}` for a name in `named_configs`, a provider's name, or such a mapping."""
    name, settings = read_provider(*_find_block(provider, named_configs), ignored=METADATA_KEYS)
    return {name: settings}


def resolve_provider_metadata(provider: ProviderRef, named_configs: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the metadata (`default_metadata` or `metadata`) next to the provider in its config."""
    block, origin = _find_block(provider, named_configs)
    read_provider(block, origin, ignored=METADATA_KEYS)
    metadata: dict[str, Any] = {}
    for key in reversed(METADATA_KEYS):
        value = block.get(key)
        if value is not None and not isinstance(value, Mapping):
            raise SandboxConfigTypeError(f"{key!r} of {origin} must be a mapping, not {type(value).__name__}")
        metadata.update(value or {})
    return metadata


def _find_block(provider: ProviderRef, named_configs: Mapping[str, Any] | None) -> tuple[dict[str, Any], str]:
    """Return the mapping that describes the provider, and what to call it in a message."""
    if isinstance(provider, Mapping):
        return _to_plain(provider), "the sandbox provider config"
    if not isinstance(provider, str) or not provider.strip():
        error_class = SandboxConfigError if isinstance(provider, str) else SandboxConfigTypeError
        raise error_class(
            "a sandbox provider must be a name reference (a non-empty string) or a mapping with one provider in it, "
            f"not {provider!r}\n"
            "hint: e.g. `docker`, or `{docker: {create: {network: none}}}`"
        )
    named = named_configs or {}
    if provider in named:
        entry = named[provider]
        if not isinstance(entry, Mapping):
            raise SandboxConfigTypeError(f"sandbox config {provider!r} must be a mapping, not {type(entry).__name__}")
        return _to_plain(entry), f"sandbox config {provider!r}"
    if provider in list_providers():
        return {provider: {}}, f"sandbox provider {provider!r}"
    described = [repr(str(name)) for name, block in named.items() if _describes_provider(block)]
    raise SandboxConfigError(
        f"sandbox config {provider!r} is not defined in the merged config, and no provider has that name."
        f"{suggest(provider, [*map(str, named), *list_providers()])}\n"
        f"config blocks that describe a provider: {', '.join(described) or 'none'}\n"
        f"sandbox providers: {', '.join(list_providers())}\n"
        "hint: name one of these, or add a config block that describes one"
    )


def _describes_provider(block: Any) -> bool:
    if not isinstance(block, Mapping):
        return False
    names = [key for key in block if key not in METADATA_KEYS]
    return len(names) == 1 and names[0] in list_providers()


def _to_plain(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return `config` as built-in containers, with interpolations resolved if it comes from OmegaConf."""
    if type(config).__module__.startswith("omegaconf"):
        from omegaconf import OmegaConf

        config = OmegaConf.to_container(config, resolve=True)  # type: ignore[assignment]
    return dict(config)
