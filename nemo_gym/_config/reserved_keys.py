# SPDX-License-Identifier: Apache-2.0
"""The settings: top-level keys of a config that this package reads. The reserved ones cannot name a server.

`defaults.py` fills in their defaults, and `nemo_gym.global_config` exports the names.
"""

from nemo_gym._config import command_flags as _command_flags

CONFIG_PATHS_KEY_NAME = "config_paths"
ENTRYPOINT_KEY_NAME = "entrypoint"
DEFAULT_HOST_KEY_NAME = "default_host"
HEAD_SERVER_KEY_NAME = "head_server"
DISALLOWED_PORTS_KEY_NAME = "disallowed_ports"
HEAD_SERVER_DEPS_KEY_NAME = "head_server_deps"
PYTHON_VERSION_KEY_NAME = "python_version"
PIP_INSTALL_VERBOSE_KEY_NAME = "pip_install_verbose"
USE_ABSOLUTE_IP = "use_absolute_ip"
UV_PIP_SET_PYTHON_KEY_NAME = "uv_pip_set_python"
SKIP_VENV_IF_PRESENT_KEY_NAME = "skip_venv_if_present"
HF_TOKEN_KEY_NAME = "hf_token"
RAY_HEAD_NODE_ADDRESS_KEY_NAME = "ray_head_node_address"
PORT_RANGE_LOW_KEY_NAME = "port_range_low"
PORT_RANGE_HIGH_KEY_NAME = "port_range_high"
DRY_RUN_KEY_NAME = "dry_run"
MODEL_ENDPOINT_READINESS_TIMEOUT_SECONDS_KEY_NAME = "model_endpoint_readiness_timeout_seconds"
ALLOW_OPENAI_VERSION_SKEW_KEY_NAME = "allow_openai_version_skew"
UV_CACHE_DIR_KEY_NAME = "uv_cache_dir"
UV_VENV_DIR_KEY_NAME = "uv_venv_dir"
RESULTS_DIR_KEY_NAME = "results_dir"
CACHE_DIR_KEY_NAME = "cache_dir"
INHERIT_FROM_KEY_NAME = "_inherit_from"
COPY_KEY_NAME = "_copy"
DELETE_KEY_KEY_NAME = "_delete_key"
NEMO_GYM_LOG_DIR_KEY_NAME = "nemo_gym_log_dir"
VERBOSE_KEY_NAME = "verbose"
JSON_KEY_NAME = "json"
QUERY_KEY_NAME = "query"
OBSERVABILITY_ENABLED_KEY_NAME = "observability_enabled"
MODEL_CALL_CAPTURE_DIR_KEY_NAME = "model_call_capture_dir"
TOKEN_ID_CAPTURE_KEY_NAME = "token_id_capture"
TOKEN_ID_CAPTURE_BLOCK = TOKEN_ID_CAPTURE_KEY_NAME
COMPONENT_NAME_KEY_NAME = "component_name"
SKIP_VERIFICATION_KEY_NAME = "skip_verification"
SKIP_VERIFICATION_REWARD_KEY_NAME = "skip_verification_reward"
ERROR_ON_ALMOST_SERVERS_KEY_NAME = "error_on_almost_servers"
POLICY_BASE_URL_KEY_NAME = "policy_base_url"
POLICY_API_KEY_KEY_NAME = "policy_api_key"
POLICY_API_KEY_NAME = POLICY_API_KEY_KEY_NAME
POLICY_MODEL_NAME_KEY_NAME = "policy_model_name"
POLICY_MODEL_KEY_NAME = "policy_model"
ALLOW_UNKNOWN_KEYS_KEY_NAME = "allow_unknown_keys"
SECRET_KEYS_KEY_NAME = "secret_keys"

RESERVED_TOP_LEVEL_KEYS = frozenset(
    {
        COPY_KEY_NAME,
        INHERIT_FROM_KEY_NAME,
        "access_token",
        ALLOW_OPENAI_VERSION_SKEW_KEY_NAME,
        "allow_other_users",
        "allowed_hosts",
        CACHE_DIR_KEY_NAME,
        COMPONENT_NAME_KEY_NAME,
        CONFIG_PATHS_KEY_NAME,
        DEFAULT_HOST_KEY_NAME,
        DISALLOWED_PORTS_KEY_NAME,
        DRY_RUN_KEY_NAME,
        ENTRYPOINT_KEY_NAME,
        HEAD_SERVER_KEY_NAME,
        HEAD_SERVER_DEPS_KEY_NAME,
        HF_TOKEN_KEY_NAME,
        JSON_KEY_NAME,
        MODEL_CALL_CAPTURE_DIR_KEY_NAME,
        MODEL_ENDPOINT_READINESS_TIMEOUT_SECONDS_KEY_NAME,
        NEMO_GYM_LOG_DIR_KEY_NAME,
        OBSERVABILITY_ENABLED_KEY_NAME,
        PIP_INSTALL_VERBOSE_KEY_NAME,
        PORT_RANGE_HIGH_KEY_NAME,
        PORT_RANGE_LOW_KEY_NAME,
        PYTHON_VERSION_KEY_NAME,
        QUERY_KEY_NAME,
        RAY_HEAD_NODE_ADDRESS_KEY_NAME,
        RESULTS_DIR_KEY_NAME,
        SECRET_KEYS_KEY_NAME,
        SKIP_VENV_IF_PRESENT_KEY_NAME,
        SKIP_VERIFICATION_KEY_NAME,
        SKIP_VERIFICATION_REWARD_KEY_NAME,
        TOKEN_ID_CAPTURE_KEY_NAME,
        USE_ABSOLUTE_IP,
        UV_CACHE_DIR_KEY_NAME,
        UV_PIP_SET_PYTHON_KEY_NAME,
        UV_VENV_DIR_KEY_NAME,
        VERBOSE_KEY_NAME,
    }
)
SETTINGS = RESERVED_TOP_LEVEL_KEYS | {
    *_command_flags.list_keys_of("settings:RunConfig"),
    *_command_flags.list_keys_of("eval.run_settings:EvalRunConfig"),
    "default_placement",
    "global_aiohttp_client_request_debug",
    "global_aiohttp_connector_limit",
    "global_aiohttp_connector_limit_per_host",
    "global_aiohttp_tcp_keepalive_idle_seconds",
    "global_aiohttp_tcp_keepalive_interval_seconds",
    "global_aiohttp_tcp_keepalive_probes",
    "global_aiohttp_total_timeout_seconds",
    "max_model_reply_bytes",
    "max_server_reply_bytes",
    "mlflow_experiment_name",
    "mlflow_run_name",
    "mlflow_tracking_token",
    "mlflow_tracking_uri",
    "server_startup_timeout_seconds",
    "upload_rollouts_to_wandb",
    "uvicorn_logging_show_200_ok",
    "uvicorn_timeout_worker_healthcheck",
    "wandb_api_key",
    "wandb_name",
    "wandb_project",
}
"""The keys that `gym env start` and `gym eval run` read, and the servers that they start."""

DEFAULT_HOST = "127.0.0.1"
DEFAULT_HEAD_SERVER_PORT = 11000
DEFAULT_PORT_RANGE_LOW = 10001
DEFAULT_PORT_RANGE_HIGH = 20000
