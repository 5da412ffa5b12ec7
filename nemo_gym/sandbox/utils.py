# SPDX-License-Identifier: Apache-2.0
"""Small things around images. Pulling and caching them is the engine's business."""

from collections.abc import Mapping


def rewrite_image(image: str, rules: Mapping[str, str] | None) -> str:
    """`image` with the longest prefix that `rules` names replaced, e.g. by a mirror: {"docker.io/": "mirror/"}.

    One rule is applied, once: a replacement is not rewritten again. Without a matching rule the image stays as it is.
    """
    matching = [prefix for prefix in rules or {} if image.startswith(prefix)]
    if not rules or not matching:
        return image
    prefix = max(matching, key=len)
    return rules[prefix] + image[len(prefix) :]
