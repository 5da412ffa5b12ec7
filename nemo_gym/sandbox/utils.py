# SPDX-License-Identifier: Apache-2.0
"""Small things around images. Pulling and caching them is the engine's business."""

from collections.abc import Iterable, Mapping

from nemo_gym.sandbox.providers.base import SandboxConfigError


def rewrite_image(image: str | None, rules: Iterable[Mapping[str, str]] | None) -> str | None:
    """Replace the prefix of `image` that the first matching rule names, e.g. by a mirror's.

    A rule is `{"from": "docker.io/", "to": "mirror/"}`. One rule is applied, once; without a match, the image stays.
    """
    for rule in rules or ():
        if not isinstance(rule, Mapping) or not {"from", "to"} <= set(rule):
            raise SandboxConfigError(
                f"a rule for images needs `from` and `to`, but this one is {rule!r}\n"
                "hint: e.g. {'from': 'docker.io/', 'to': 'mirror.example/'}"
            )
        if image is not None and image.startswith(rule["from"]):
            return rule["to"] + image.removeprefix(rule["from"])
    return image
