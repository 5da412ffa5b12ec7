# SPDX-License-Identifier: Apache-2.0
"""The calls that a collection makes to servers: for rollouts, for observations of them, and for metrics."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from aiohttp import ClientError

from nemo_gym._rollouts.collect import CollectSettings, Run, collect
from nemo_gym._rollouts.control import RunControl
from nemo_gym._rollouts.limiter import AdaptiveLimit, FixedLimit, Limiter
from nemo_gym._rollouts.outcomes import Row
from nemo_gym._rollouts.play import HandOver, Observer, Player, PlaySettings, Post
from nemo_gym._transport.stand_ins import find_config
from nemo_gym.errors import GymError, ServerCallError
from nemo_gym.global_config import OBSERVABILITY_ENABLED_KEY_NAME
from nemo_gym.server_utils import ServerClient, get_response_json, raise_for_status

if TYPE_CHECKING:
    from nemo_gym._results.aggregate_files import Post as AskForMetrics
    from nemo_gym._servers.policy_versions.staleness import StalenessGate

LONGEST_ROLLOUT_S = 24 * 3600.0
"""How long a rollout may take if no deadline is given."""


def post_with(client: ServerClient, **call: Any) -> Post:
    """Return a function that asks agents for a rollout; `call` has more arguments of the call."""
    return lambda agent, row: client.post(agent, "/run", json=row, **call)


def make_player(
    client: ServerClient,
    settings: PlaySettings,
    *,
    observer: Observer | None = None,
    explain_lateness: Callable[[float], str | None] | None = None,
    **call: Any,
) -> Player:
    """Return a player that asks agents through `client`; `call` has more arguments of every call.

    What agents have observed becomes a trajectory, and tokens are handed over.
    """
    return Player(
        post_with(client, **call),
        timeout_s=settings.rollout_timeout_seconds,
        fail_on_tool_error=settings.fail_on_tool_error,
        observer=observer,
        attach_trajectory=attach_trajectory_record,
        hand_over=open_handover(client),
        explain_lateness=explain_lateness,
    )


async def collect_from_agents(
    run: Run,
    client: ServerClient,
    concurrency: int | None,
    gate: "StalenessGate | None",
    gate_timeout_s: float,
) -> None:
    """Run the rows of `run` with agents that are running, and record them; raise GymError if the run gives up."""
    observer = find_observer(client)
    control = RunControl()
    limit: Limiter = AdaptiveLimit()
    if concurrency:
        limit = FixedLimit(concurrency)
    async with bound_staleness(limit, gate, client, gate_timeout_s, control.abort) as limiter:
        with run.open_journal() as journal:
            await collect(
                run.rows,
                make_player(client, PlaySettings(), observer=observer).play,
                journal,
                limiter,
                control,
                CollectSettings(),
                lambda outcome: None,
                observer,
            )
    if control.abort_reason is not None:
        raise GymError(control.abort_reason)


def open_handover(client: ServerClient) -> HandOver:
    """Return a function that prepares the tokens of a rollout for a trainer."""
    from nemo_gym._training.handover_calls import hand_over_with

    return hand_over_with(client, find_config(client) or {})


def attach_trajectory_record(row: Mapping[str, Any], result: Row) -> Row:
    """Put `ng_trajectory` into the result of `row` if anything was observed; return the result."""
    from nemo_gym._rollouts.rollout_trajectory import attach_trajectory  # only rollouts with observations need it

    return attach_trajectory(row, result)


def find_observer(client: ServerClient) -> Observer | None:
    """Return the observer that puts observations of a rollout into its row; None if the config asks for none."""
    config = find_config(client)
    if config is None or not (config.get(OBSERVABILITY_ENABLED_KEY_NAME) or config.get("token_id_capture")):
        return None
    from nemo_gym._rollouts.rollout_observer import RolloutObserver

    return RolloutObserver.from_global_config(config)


@asynccontextmanager
async def bound_staleness(
    limiter: Limiter,
    gate: "StalenessGate | None",
    client: ServerClient,
    timeout_s: float,
    give_up: Callable[[str], None],
) -> AsyncIterator[Limiter]:
    """Yield `limiter`, which then also holds back what `gate` does not admit; the gate is told every version.

    `give_up` is called with the reason if everything was held back for `timeout_s`.
    """
    if gate is None:
        yield limiter
        return
    from nemo_gym._rollouts.limiter import StalenessLimit
    from nemo_gym.policy_versions import follow

    async with follow(gate, client.head_server_config):
        yield StalenessLimit(limiter, gate, timeout_s=timeout_s, give_up=give_up)


def metrics_from_servers(client: ServerClient, notice: Callable[[str], None]) -> "AskForMetrics":
    """Return a function that asks agents for the metrics of their rollouts; if one cannot answer, we compute them."""

    servers = find_config(client)

    async def ask(agent: str, rows: list[Row]) -> dict[str, Any] | None:
        if servers is not None and agent not in servers:
            return None  # it is not one of our servers
        try:
            response = await client.post(agent, "/aggregate_metrics", json={"verify_responses": rows})
            await raise_for_status(response)
            metrics: dict[str, Any] = await get_response_json(response)
            return metrics
        except (ServerCallError, ClientError) as error:
            notice(f"{agent!r} could not aggregate its rollouts itself, so they are aggregated here: {error}")
            return None

    return ask
