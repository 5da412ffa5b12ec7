# SPDX-License-Identifier: Apache-2.0
"""Base classes of agent servers: the loop that runs a model in an environment. `POST /run` is one rollout."""

import asyncio
import functools
import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from fastapi import Body as Body, FastAPI, Request

from nemo_gym._servers.policy_versions.announcing import VersionCell
from nemo_gym._servers.policy_versions.of_this_server import add_version_routes, open_version_cell
from nemo_gym._transport.stand_ins import find_config, find_path, find_path_parameters
from nemo_gym._util.row_keys import NG_POLICY_VERSIONS_KEY
from nemo_gym._util.signatures import resolve_signature
from nemo_gym.base_resources_server import BaseRunRequest, BaseVerifyResponse
from nemo_gym.config_types import (
    ROLLOUT_PATH_PREFIX,
    TOKEN_CAPTURE_PATH_SEGMENT,
    AggregateMetrics,
    AggregateMetricsRequest,
    BaseRunServerInstanceConfig,
)
from nemo_gym.global_config import get_first_server_config_dict
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.reward_profile import AggregateMetricsMixin, compute_aggregate_metrics
from nemo_gym.rollout_correlation import maybe_rollout_id_from_run_body, rollout_context
from nemo_gym.server_utils import BaseServer, SimpleServer, apply_rollout_prefix, rollout_path_prefix, takes_models


class BaseResponsesAPIAgentConfig(BaseRunServerInstanceConfig):
    """Config of an agent server."""

    skip_verification: bool = False
    """Collect responses without scoring them."""
    skip_verification_reward: float = 0.0
    """The reward recorded for an unscored rollout."""
    token_id_capture: bool = False
    """Record the token ids of this agent's model calls if the run captures them."""


class BaseResponsesAPIAgent(BaseServer):
    """Any server of type `responses_api_agents`."""

    config: BaseResponsesAPIAgentConfig


class SimpleResponsesAPIAgent(BaseResponsesAPIAgent, AggregateMetricsMixin, SimpleServer):
    """An agent server: override `responses` (the loop) and `run` (a whole rollout, including its reward)."""

    config: BaseResponsesAPIAgentConfig

    @functools.cached_property
    def _policy_version(self) -> VersionCell:
        # Not a pydantic private attribute: tests that replace `model_post_init` leave those unset.
        return open_version_cell()

    def setup_webserver(self) -> FastAPI:
        """Return the app with the endpoints of every agent."""
        app = self.new_app()
        self.setup_session_middleware(app)
        rollout = f"/{ROLLOUT_PATH_PREFIX}/{{rollout_id}}"
        for prefix in ("", rollout, f"{rollout}/{TOKEN_CAPTURE_PATH_SEGMENT}"):
            app.post(f"{prefix}/v1/responses")(self.responses)
        app.post("/run")(self._run_in_rollout_context())
        app.post("/aggregate_metrics")(self.aggregate_metrics)
        add_version_routes(app, self._policy_version)
        return app

    @abstractmethod
    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming = Body()) -> NeMoGymResponse:
        """Run the model until it is done, and return everything it wrote."""

    @abstractmethod
    async def run(self, body: BaseRunRequest = Body()) -> BaseVerifyResponse:
        """Run one rollout: seed the session, run the loop, verify."""

    async def aggregate_metrics(self, body: AggregateMetricsRequest = Body()) -> AggregateMetrics:
        """Return metrics over many rollouts of this agent."""
        if self.config.skip_verification:
            warnings.warn(
                f"agent {self.config.name!r} has skip_verification=True: its rollouts carry no scores to aggregate",
                RuntimeWarning,
                stacklevel=2,
            )
            return AggregateMetrics()
        return await asyncio.to_thread(
            compute_aggregate_metrics,
            body.verify_responses,
            compute_metrics_fn=self.compute_metrics,
            get_key_metrics_fn=self.get_key_metrics,
        )

    def _run_in_rollout_context(self) -> Callable[..., Any]:
        run = self.run
        version = self._policy_version

        @functools.wraps(run)
        async def run_in_context(*args: Any, **kwargs: Any) -> Any:
            body = next((value for value in (*args, *kwargs.values()) if isinstance(value, BaseRunRequest)), None)
            with rollout_context(maybe_rollout_id_from_run_body(body) if body is not None else None):
                began = version.get()
                result = await run(*args, **kwargs)
            if (ended := version.get()) is not None:
                _note_versions(result, began, ended)
            return result

        # FastAPI reads the signature through __wrapped__; pin it so that a mixin's wrapper cannot hide it.
        run_in_context.__signature__ = resolve_signature(run)  # type: ignore[attr-defined]
        return run_in_context

    # --- correlation of model calls with rollouts ---------------------------------------------------------------------

    def _global_settings(self) -> Mapping[str, Any]:
        return find_config(self.server_client) or {}

    def _capture_settings(self) -> Mapping[str, Any]:
        client = self.server_client
        if takes_models(client):
            return client._capture_settings()
        return self._global_settings()

    def _model_call_capture_enabled(self) -> bool:
        return self._capture_settings().get("observability_enabled") is True

    def _token_id_capture_enabled(self) -> bool:
        block = self._capture_settings().get("token_id_capture")
        if block is None or not hasattr(block, "get") or block.get("enabled") is not True:
            return False
        return self.config.token_id_capture or block.get("all_agents") is True

    def _capture_correlation_enabled(self) -> bool:
        return self._model_call_capture_enabled() or self._token_id_capture_enabled()

    def rollout_id_from_run(self, body: BaseRunRequest | Mapping[str, Any]) -> str | None:
        """Return the rollout id of a run request; None if nothing captures the rollout."""
        if self._capture_correlation_enabled():
            return maybe_rollout_id_from_run_body(body)
        return None

    def url_path_for_run(self, url_path: str, body: BaseRunRequest | Mapping[str, Any]) -> str:
        """Return `url_path` prefixed with the rollout that `body` asks for."""
        prefix = rollout_path_prefix(self.rollout_id_from_run(body), token_capture=self._token_id_capture_enabled())
        return f"{prefix}{url_path}"

    def url_path_for_request(self, url_path: str, request: Request) -> str:
        """Return `url_path` with the rollout prefix that `request` came in with."""
        rollout_id = find_path_parameters(request).get("rollout_id")
        if not isinstance(rollout_id, str):
            return url_path
        capture = f"/{rollout_id}/{TOKEN_CAPTURE_PATH_SEGMENT}/" in find_path(request)
        return f"{rollout_path_prefix(rollout_id, token_capture=capture)}{url_path}"

    def base_url_for_run(self, base_url: str, body: BaseRunRequest | Mapping[str, Any]) -> str:
        """Return `base_url` prefixed with the rollout that `body` asks for."""
        return apply_rollout_prefix(
            base_url, self.rollout_id_from_run(body), token_capture=self._token_id_capture_enabled()
        )

    def resolve_model_base_url(self, model_server_name: str, rollout_id: str | None = None) -> str:
        """Return the `/v1` URL of a model server, for OpenAI clients that do not go through ours."""
        known: Any = self._global_settings()
        config = get_first_server_config_dict(known, model_server_name)
        base_url = f"{self.server_client._build_server_base_url(config)}/v1"
        return apply_rollout_prefix(base_url, rollout_id, token_capture=self._token_id_capture_enabled())


def _note_versions(result: Any, began: int | None, ended: int) -> None:
    """Mark a rollout's response with the policy versions it saw; they end up in its row."""
    from nemo_gym._servers.policy_versions.marks import describe_versions  # only runs that train need it

    if isinstance(result, Mapping):
        response = result.get("response")
    else:
        response = getattr(result, "response", None)
    if isinstance(response, NeMoGymResponse):
        notes = response.model_extra
    else:
        notes = response
    if isinstance(notes, dict):
        notes[NG_POLICY_VERSIONS_KEY] = describe_versions(response, began, ended)
