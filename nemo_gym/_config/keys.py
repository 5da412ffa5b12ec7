# SPDX-License-Identifier: Apache-2.0
"""The top-level keys of a config that mean something to this package, and can therefore not name a server.

Their defaults are filled in by `defaults.py`.
"""

RESERVED_TOP_LEVEL_KEYS = frozenset(
    {
        "_copy",
        "_inherit_from",
        "allow_openai_version_skew",
        "cache_dir",
        "component_name",
        "config_paths",
        "default_host",
        "disallowed_ports",
        "dry_run",
        "entrypoint",
        "head_server",
        "head_server_deps",
        "hf_token",
        "json",
        "model_call_capture_dir",
        "model_endpoint_readiness_timeout_seconds",
        "nemo_gym_log_dir",
        "observability_enabled",
        "pip_install_verbose",
        "port_range_high",
        "port_range_low",
        "python_version",
        "query",
        "ray_head_node_address",
        "results_dir",
        "skip_venv_if_present",
        "skip_verification",
        "skip_verification_reward",
        "token_id_capture",
        "use_absolute_ip",
        "uv_cache_dir",
        "uv_pip_set_python",
        "uv_venv_dir",
        "verbose",
    }
)

DEFAULT_HOST = "127.0.0.1"
DEFAULT_HEAD_SERVER_PORT = 11000
DEFAULT_PORT_RANGE_LOW = 10001
DEFAULT_PORT_RANGE_HIGH = 20000
