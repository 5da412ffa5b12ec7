# SPDX-License-Identifier: Apache-2.0
"""Rewrite image names, and remove folders that untrusted code wrote to. Pulling images is left to the engine."""

from collections.abc import Iterable, Mapping

from nemo_gym._execution.inside.containment import remove_folder
from nemo_gym.sandbox.providers.base import SandboxConfigError

__all__ = ["remove_folder", "rewrite_image"]


def rewrite_image(image: str | None, rules: Iterable[Mapping[str, str]] | None) -> str | None:
    """Replace the prefix of `image` by the first matching rule, e.g. to use a mirror.

    A rule is `{"from": "docker.io/", "to": "mirror/"}`. Without a match, the image is returned unchanged.
    """
    for rule in rules or ():
        if not isinstance(rule, Mapping) or not {"from", "to"} <= set(rule):
            raise SandboxConfigError(
                f"an image rule needs `from` and `to`, but this one is {rule!r}\n"
                "hint: e.g. {'from': 'docker.io/', 'to': 'mirror.example/'}"
            )
        if image is not None and image.startswith(rule["from"]):
            return rule["to"] + image.removeprefix(rule["from"])
    return image
