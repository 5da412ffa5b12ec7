# SPDX-License-Identifier: Apache-2.0
"""The pictures of a message that can be shown without asking anybody: raster images inside the row itself.

Links to elsewhere are not followed, and SVG is left out, for it may hold scripts.
"""

import re
from typing import Any

_SAFE = re.compile(r"data:image/(?:png|jpeg|jpg|gif|webp);base64,[A-Za-z0-9+/=]+")


def safe_images(content: Any) -> tuple[str, ...]:
    """The data URLs of the pictures in a list of content parts."""
    if not isinstance(content, list):
        return ()
    urls = (_url(part) for part in content if isinstance(part, dict))
    return tuple(url for url in urls if isinstance(url, str) and _SAFE.fullmatch(url))


def _url(part: dict[str, Any]) -> Any:
    url = part.get("image_url")
    return url.get("url") if isinstance(url, dict) else url
