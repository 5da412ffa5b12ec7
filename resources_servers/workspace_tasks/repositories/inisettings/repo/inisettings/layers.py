# SPDX-License-Identifier: Apache-2.0
"""Settings from several files: later ones go before earlier ones."""

from inisettings.reader import Settings, read

YES, NO = ("yes", "true", "on", "1"), ("no", "false", "off", "0")


def merge(layers: list[Settings]) -> Settings:
    """Return one set of settings, without changing any layer. An empty value removes a setting."""
    merged: Settings = {}
    for layer in layers:
        for section, values in layer.items():
            target = merged.setdefault(section, {})
            for key, value in values.items():
                if value:
                    target[key] = value
                else:
                    target.pop(key, None)
    return merged


def load(texts: list[str]) -> Settings:
    """Read several texts and merge them."""
    return merge([read(text) for text in texts])


def get(settings: Settings, path: str, default: str | None = None) -> str:
    """Return the setting `section.key`; one that its section lacks is taken from the section `main`."""
    section, _, key = path.lower().rpartition(".")
    for place in (section or "main", "main"):
        if key in settings.get(place, {}):
            return settings[place][key]
    if default is None:
        raise LookupError(f"there is no setting {path!r}")
    return default


def get_flag(settings: Settings, path: str, default: bool = False) -> bool:
    """Return a setting that is yes or no."""
    value = get(settings, path, "yes" if default else "no").lower()
    if value not in YES + NO:
        raise ValueError(f"{path!r} must be yes or no, not {value!r}")
    return value in YES
