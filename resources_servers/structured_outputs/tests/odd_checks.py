# SPDX-License-Identifier: Apache-2.0
"""A check that takes its process down on the reply `die`. Small, because worker processes import it."""

import os
from typing import Any

from resources_servers.structured_outputs import checking


def check_text(text: str, *arguments: Any) -> checking.Finding:
    if text == "die":
        os._exit(3)
    return checking.check_text(text, *arguments)
