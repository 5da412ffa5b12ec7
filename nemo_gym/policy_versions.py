# SPDX-License-Identifier: Apache-2.0
"""Policy versions for trainers: tell a run's servers about new weights, and bound how stale rollouts may get.

    from nemo_gym.policy_versions import StalenessGate, announce

    gate = StalenessGate(max_staleness=1, batch_size=64, version=0)
    for row in tasks:                        # beside the training loop
        await gate.admit()
        start_rollout(row)                   # gate.give_back() if it fails
    ...
    await announce(7, gate=gate)             # the inference engine has the new weights

`docs/concepts/policy-versions.md` describes what is guaranteed.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from nemo_gym._servers.policy_versions.announcing import VERSION_PATH, PolicyVersionRefused
from nemo_gym._servers.policy_versions.staleness import StalenessGate, StalenessTimeout
from nemo_gym._servers.process_environment import run_token_header
from nemo_gym._util.known_secrets import describe_error
from nemo_gym.config_types import BaseServerConfig
from nemo_gym.errors import GymError
from nemo_gym.server_utils import ServerClient

__all__ = [
    "PolicyVersionError",
    "PolicyVersionRefused",
    "StalenessGate",
    "StalenessTimeout",
    "announce",
    "follow",
    "read_policy_version",
]

_TIMEOUT_S = 30.0
_PAUSE_S = 1.0


class PolicyVersionError(GymError):
    """A policy version could not be announced to every server, or could not be read."""


async def announce(
    version: int,
    *,
    servers: Sequence[str] | None = None,
    restart: bool = False,
    gate: StalenessGate | None = None,
    head_server_config: BaseServerConfig | None = None,
    timeout_s: float = 120.0,
) -> None:
    """Tell the model and agent servers of a run, or only `servers`, that the policy has a new version.

    Call it when the inference engine has the new weights. Once it returns, every new call carries the version, in all
    replicas and workers; `gate` is told too. Raise PolicyVersionRefused for a version older than the one in force,
    unless `restart` says that the trainer has gone back to a checkpoint. Raise PolicyVersionError if a server could not
    be told; calling again is safe. The head server is that of this process's config, or `head_server_config`.
    """
    body = {"version": version, "restart": restart, "servers": None if servers is None else list(servers)}
    status, answer = await _ask_head("POST", head_server_config, timeout_s, json=body)
    if status == 409:
        raise PolicyVersionRefused(version, int(answer["version"]))
    if status != 200:
        raise PolicyVersionError(str(answer.get("detail", answer)))
    if gate is not None:
        gate.announce(version, restart)


async def read_policy_version(
    head_server_config: BaseServerConfig | None = None, *, timeout_s: float = 30.0
) -> int | None:
    """Return the version in force; None if none was announced. A restarted trainer continues from it."""
    status, answer = await _ask_head("GET", head_server_config, timeout_s)
    if status != 200:
        raise PolicyVersionError(f"the head server did not tell the policy version: {answer.get('detail', answer)}")
    version: int | None = answer.get("version")
    return version


@asynccontextmanager
async def follow(gate: StalenessGate, head_server_config: BaseServerConfig | None = None) -> AsyncIterator[None]:
    """Within the context, tell `gate` about every version that someone else announces to the servers of a run.

    A head server that does not answer is asked again; the gate keeps what it knows.
    """
    where = head_server_config or ServerClient.load_head_server_config()
    task = asyncio.create_task(_follow(gate, where))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _follow(gate: StalenessGate, where: BaseServerConfig) -> None:
    while True:
        known = gate.version
        # The head server answers once it has another version, or when it has waited long enough.
        wait = {"wait_s": _TIMEOUT_S}
        if known is not None:
            wait["other_than"] = known
        try:
            status, answer = await _ask_head("GET", where, _TIMEOUT_S, params=wait)
            version = answer.get("version")
            if status == 200 and version not in (None, known):
                # The head server accepted it, so the older version is intended.
                gate.announce(version, restart=True)
                continue
        except PolicyVersionError:
            status = 0
        if status != 200:
            await asyncio.sleep(_PAUSE_S)


async def _ask_head(
    method: str, where: BaseServerConfig | None, timeout_s: float, **call: Any
) -> tuple[int, Mapping[str, Any]]:
    """Return the status and body of the head server's answer."""
    import aiohttp

    where = where or ServerClient.load_head_server_config()
    url = f"http://{where.host}:{where.port}{VERSION_PATH}"
    timeout = aiohttp.ClientTimeout(total=timeout_s)
    try:
        async with (
            # A session of its own: trainers call this from whichever event loop they have.
            aiohttp.ClientSession(timeout=timeout, headers=run_token_header(where)) as session,
            session.request(method, url, **call) as reply,
        ):
            answer = await reply.json(content_type=None)
            return reply.status, answer if isinstance(answer, dict) else {"detail": answer}
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        raise PolicyVersionError(
            f"the head server at {where.host}:{where.port} could not be asked for the policy version: "
            f"{describe_error(error)}\nhint: are the servers of the run up? `gym env start` starts them"
        ) from error
