# SPDX-License-Identifier: Apache-2.0
"""The names that a verify response may give as its `failure_kind`, and where in an episode a failure may happen.

A kind says what went wrong and nothing else: whether to retry, what to mask and what to print is decided elsewhere. A
server with a failure of its own names it `<server>:<what>`.
"""

import logging
import re
from typing import Literal

FailureStage = Literal["admission", "seed", "agent", "verification", "cleanup"]

TRANSPORT_UNREACHABLE = "transport_unreachable"
TRANSPORT_PEER_DROP = "transport_peer_drop"
TRANSPORT_TIMEOUT = "transport_timeout"
TRANSPORT_LOCAL_RESOURCE = "transport_local_resource"
AGENT_RUN_ERROR = "agent_run_error"
AGENT_REQUEST_FAILED = "agent_request_failed"
AGENT_TIMEOUT = "agent_timeout"
AGENT_COMMAND_NOT_ALLOWED = "agent_command_not_allowed"
JUDGE_FAILED = "judge_failed"
JUDGE_UNPARSEABLE = "judge_unparseable"
VERIFIER_ERROR = "verifier_error"
PROVIDER_UNAVAILABLE = "provider_unavailable"
PROVIDER_QUOTA_EXHAUSTED = "provider_quota_exhausted"
PROVIDER_OOM_KILLED = "provider_oom_killed"
SESSION_LOST = "session_lost"
SESSION_EXPIRED = "session_expired"
SESSION_RELEASE_FAILED = "session_release_failed"
CANCELLED = "cancelled"
KILL_SHAPED = "kill_shaped"
SHUTDOWN = "shutdown"
PERSISTENCE_FAILED = "persistence_failed"
COHORT_INCOMPLETE = "cohort_incomplete"

FAILURE_KINDS = frozenset(
    {
        TRANSPORT_UNREACHABLE,
        TRANSPORT_PEER_DROP,
        TRANSPORT_TIMEOUT,
        TRANSPORT_LOCAL_RESOURCE,
        AGENT_RUN_ERROR,
        AGENT_REQUEST_FAILED,
        AGENT_TIMEOUT,
        AGENT_COMMAND_NOT_ALLOWED,
        JUDGE_FAILED,
        JUDGE_UNPARSEABLE,
        VERIFIER_ERROR,
        PROVIDER_UNAVAILABLE,
        PROVIDER_QUOTA_EXHAUSTED,
        PROVIDER_OOM_KILLED,
        SESSION_LOST,
        SESSION_EXPIRED,
        SESSION_RELEASE_FAILED,
        CANCELLED,
        KILL_SHAPED,
        SHUTDOWN,
        PERSISTENCE_FAILED,
        COHORT_INCOMPLETE,
    }
)

LOG = logging.getLogger(__name__)
_NAMESPACED = re.compile(r"[a-z][a-z0-9_]*:[a-z][a-z0-9_]*")
_WARNED_UNKNOWN: set[str] = set()


def is_registered(name: str) -> bool:
    """Return whether `name` is one of the kinds above."""
    return name in FAILURE_KINDS


def is_namespaced(name: str) -> bool:
    """Return whether `name` is a server's own kind, such as `swebench:patch_too_large`."""
    return _NAMESPACED.fullmatch(name) is not None


def validate_failure_kind(name: str | None) -> str | None:
    """Return `name` unchanged, with one warning per name that is neither registered nor namespaced."""
    if name is None or is_registered(name) or is_namespaced(name) or name in _WARNED_UNKNOWN:
        return name
    _WARNED_UNKNOWN.add(name)
    LOG.warning("failure_kind %r is not a registered kind\nhint: a kind of your own is written <server>:<what>", name)
    return name
