# SPDX-License-Identifier: Apache-2.0
"""The public contract as a table: every name that other people's servers, tests and scripts import, and its shape.

What is stated is what the specification states, no more: a model may have further fields and a function further
parameters as long as they have defaults. Names that the package does not have yet are not listed.
"""

from tests.contract import (
    surface_adapters,
    surface_config,
    surface_integrations,
    surface_runs,
    surface_servers,
    surface_tokens,
    surface_trainers,
    surface_wire,
)
from tests.contract.shapes import Name

SURFACE: dict[str, tuple[Name, ...]] = {
    "nemo_gym": surface_runs.PACKAGE,
    "nemo_gym.config_types": surface_config.CONFIG_TYPES,
    "nemo_gym.global_config": surface_config.GLOBAL_CONFIG,
    "nemo_gym.server_utils": surface_servers.SERVER_UTILS,
    "nemo_gym.base_resources_server": surface_servers.BASE_RESOURCES_SERVER,
    "nemo_gym.base_responses_api_agent": surface_servers.BASE_AGENT,
    "nemo_gym.base_responses_api_model": surface_servers.BASE_MODEL,
    "nemo_gym.openai_utils": surface_wire.OPENAI_UTILS,
    "nemo_gym.responses_converter": surface_wire.RESPONSES_CONVERTER,
    "nemo_gym.responses_streaming": surface_wire.RESPONSES_STREAMING,
    "nemo_gym.chat_streaming": surface_wire.CHAT_STREAMING,
    "nemo_gym.judge": surface_runs.JUDGE,
    "nemo_gym.reward_profile": surface_runs.REWARD_PROFILE,
    "nemo_gym.rollout_collection": surface_runs.ROLLOUT_COLLECTION,
    "nemo_gym.rollout_correlation": surface_runs.ROLLOUT_CORRELATION,
    "nemo_gym.rollout_reverification": surface_runs.ROLLOUT_REVERIFICATION,
    "nemo_gym.rollout_observability": surface_runs.ROLLOUT_OBSERVABILITY,
    "nemo_gym.token_id_capture": surface_tokens.TOKEN_ID_CAPTURE,
    "nemo_gym.token_id_capture.config": surface_tokens.TOKEN_ID_CAPTURE[:1],
    "nemo_gym.token_id_capture.protocols": surface_tokens.TOKEN_PROTOCOLS,
    "nemo_gym.token_id_capture.records": surface_tokens.TOKEN_RECORDS,
    "nemo_gym.token_id_capture.store": surface_tokens.TOKEN_STORE,
    "nemo_gym.token_id_capture.delivery": surface_tokens.TOKEN_DELIVERY,
    "nemo_gym.trajectories": surface_tokens.TRAJECTORIES,
    "nemo_gym.policy_versions": surface_tokens.POLICY_VERSIONS,
    "nemo_gym.integrations.lent_models": surface_integrations.LENT_MODELS,
    "nemo_gym.integrations.playing": surface_integrations.PLAYING,
    "nemo_gym.integrations.trl": surface_integrations.TRL,
    "nemo_gym.integrations.trl_async": surface_integrations.TRL_ASYNC,
    "nemo_gym.token_engine": surface_trainers.TOKEN_ENGINE,
    "nemo_gym.integrations.live": surface_trainers.LIVE,
    "nemo_gym.integrations.scoring": surface_trainers.SCORING,
    "nemo_gym.integrations.episodes": surface_trainers.EPISODES,
    "nemo_gym.integrations.gymnasium_env": surface_trainers.GYMNASIUM_ENV,
    "nemo_gym.integrations.openenv": surface_trainers.OPENENV,
    "nemo_gym.integrations.verl": surface_trainers.VERL,
    "nemo_gym.integrations.openrlhf": surface_trainers.OPENRLHF,
    "nemo_gym.integrations.art": surface_trainers.ART,
    "nemo_gym.session_gateway": surface_tokens.SESSION_GATEWAY,
    "nemo_gym.session_client": surface_tokens.SESSION_CLIENT,
    "nemo_gym.prompt": surface_runs.PROMPT,
    "nemo_gym.skills": surface_runs.SKILLS,
    "nemo_gym.exporters": surface_runs.EXPORTERS,
    "nemo_gym.sandbox": surface_runs.SANDBOX,
    "nemo_gym.step_environments": surface_adapters.STEP_ENVIRONMENTS,
    "resources_servers.gymnasium": surface_adapters.GYMNASIUM,
    "nemo_gym.adapters": surface_adapters.ADAPTERS,
    **surface_runs.SMALL_MODULES,
}
