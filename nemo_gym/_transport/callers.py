# SPDX-License-Identifier: Apache-2.0
"""Who calls a server: our own client, which reads failures from a header, or any other program, such as an SDK."""

from collections.abc import Mapping
from typing import Any

OWN_CALL_HEADER = "x-nemo-gym-call"
"""Sent by our own client to servers in other processes."""
IN_PROCESS = "nemo_gym.in_process"
"""Scope key of a call by our own client within this process."""
_OWN_CALL = OWN_CALL_HEADER.encode()


def mark_own_call(headers: Mapping[str, str] | None) -> dict[str, str]:
    """Return `headers` with the one that tells a server who calls."""
    return {OWN_CALL_HEADER: "1", **(headers or {})}


def is_own_call(scope: Mapping[str, Any]) -> bool:
    """Return whether the request of an ASGI scope comes from our own client."""
    return IN_PROCESS in scope or any(name == _OWN_CALL for name, _ in scope["headers"])
