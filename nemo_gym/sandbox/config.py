# SPDX-License-Identifier: Apache-2.0
"""From what a server's config says about its sandbox to `{provider: settings}`.

A config names a provider, or a block of the loaded config that describes one, or carries the description itself.
Whether the provider exists and accepts the settings is checked when it is created.
"""

from collections.abc import Mapping
from typing import Any

from nemo_gym.sandbox.providers.base import SandboxConfigError, SandboxConfigTypeError
from nemo_gym.sandbox.providers.registry import list_providers, suggest_nearest

METADATA_KEYS = ("default_metadata", "metadata")

ProviderRef = str | Mapping[str, Any]


def resolve_provider_config(
    provider: ProviderRef, named_configs: Mapping[str, Any] | None = None
) -> dict[str, dict[str, Any]]:
    """Return `{provider name: settings}` for a name in `named_configs`, a provider's name, or such a mapping itself."""
    block, origin = _find_block(provider, named_configs)
    return _read_provider(block, origin)


def resolve_provider_metadata(provider: ProviderRef, named_configs: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the metadata (`default_metadata`, or `metadata`) that stands beside the provider in its config."""
    block, origin = _find_block(provider, named_configs)
    _read_provider(block, origin)
    metadata: dict[str, Any] = {}
    for key in reversed(METADATA_KEYS):
        value = block.get(key)
        if value is not None and not isinstance(value, Mapping):
            raise SandboxConfigTypeError(f"{key!r} of {origin} must be a mapping, not {type(value).__name__}")
        metadata.update(value or {})
    return metadata


def _find_block(provider: ProviderRef, named_configs: Mapping[str, Any] | None) -> tuple[dict[str, Any], str]:
    """Return the mapping that describes the provider, and words for where it stands."""
    if isinstance(provider, Mapping):
        return _to_plain(provider), "the sandbox provider config"
    if not isinstance(provider, str) or not provider.strip():
        mistake = SandboxConfigError if isinstance(provider, str) else SandboxConfigTypeError
        raise mistake(
            f"a sandbox provider is a non-empty string or a mapping with one provider in it, not {provider!r}\n"
            "hint: e.g. `docker`, or `{docker: {create: {network: none}}}`"
        )
    named = named_configs if named_configs is not None else {}
    if provider in named:
        entry = named[provider]
        if not isinstance(entry, Mapping):
            raise SandboxConfigTypeError(f"sandbox config {provider!r} must be a mapping, not {type(entry).__name__}")
        return _to_plain(entry), f"sandbox config {provider!r}"
    if provider in list_providers():
        return {provider: {}}, f"sandbox provider {provider!r}"
    raise SandboxConfigError(
        f"{provider!r} is neither a sandbox config nor a sandbox provider.\n"
        f"sandbox providers: {', '.join(list_providers())}"
        + suggest_nearest(provider, [*(name for name in named if isinstance(name, str)), *list_providers()])
    )


def _read_provider(block: Mapping[str, Any], origin: str) -> dict[str, dict[str, Any]]:
    names = [key for key in block if key not in METADATA_KEYS]
    if len(names) != 1:
        found = ", ".join(map(repr, names)) or "none"
        raise SandboxConfigError(
            f"{origin} must name exactly one provider, found: {found}\n"
            f"hint: `{{docker: {{...}}}}`; sandbox providers: {', '.join(list_providers())}"
        )
    settings = block[names[0]]
    if settings is not None and not isinstance(settings, Mapping):
        raise SandboxConfigTypeError(
            f"the settings of provider {names[0]!r} in {origin} must be a mapping, not {type(settings).__name__}"
        )
    return {names[0]: dict(settings or {})}


def _to_plain(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return `config` as built-in containers, interpolations resolved if it came out of OmegaConf."""
    if type(config).__module__.startswith("omegaconf"):
        from omegaconf import OmegaConf

        config = OmegaConf.to_container(config, resolve=True)  # type: ignore[assignment]
    return dict(config)
