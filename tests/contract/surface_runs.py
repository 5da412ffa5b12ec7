# SPDX-License-Identifier: Apache-2.0
"""The contract of what scores, records and collects rollouts, of sandboxes and of the package itself."""

from tests.contract.shapes import (
    OPTIONAL,
    Name,
    aliases,
    attribute,
    class_,
    constant,
    context,
    coroutine,
    dataclass_,
    each,
    enum,
    error,
    function,
    model,
    same,
)

ROLLOUT_CORRELATION = (
    function("maybe_rollout_id_from_run_body", "body"),
    function("current_rollout_id", ""),
    context("rollout_context", "rollout_id"),
    class_("RolloutContextMiddleware", "app"),
    class_("RolloutPathMiddleware", "app"),
)

JUDGE = (
    error("JudgeError", "Exception"),
    coroutine("call_judge", "server_client, *, server_name, url_path, json, response_model"),
    coroutine("reraise_judge_errors", "coro"),
    function("judge_failsafe", "fn"),
    model("JudgeEvaluation", "responses_create_params response"),
    coroutine("ask_judge", "server_client, *, server_name, messages, responses_create_params"),
    coroutine("ask_for_verdict", "server_client, *, server_name, messages, responses_create_params, labels"),
    error("NoVerdict", "JudgeError"),
    function("find_labels", "response, labels"),
    function("verdict_label", "response, labels"),
)

REWARD_PROFILE = (
    class_(
        "RewardProfiler",
        None,
        function("profile_from_data", "rows, results, allow_partial_rollouts=False"),
        function("write_to_disk", "group_level_metrics, agent_level_metrics, base_output_fpath"),
    ),
    model("RewardProfileConfig", "materialized_inputs_jsonl_fpath rollouts_jsonl_fpath", allow_partial_rollouts=False),
    function("compute_pass_majority_metrics", "tasks, score_fn=None, answer_key=None"),
    function("add_avg_sample_std_dev", "metrics, all_score_dicts, score_names, max_k"),
    function("compute_mean_rewards_by", "tasks, category_key"),
    function("compute_subset_metrics", "tasks, subset_key, score_fn=..., answer_key=..."),
    function("highest_k_metrics", "metrics, pattern, score_names=None, exclude_names=None"),
    class_(
        "AggregateMetricsMixin",
        None,
        function("compute_metrics", "tasks"),
        function("get_key_metrics", "agent_metrics"),
    ),
    function("compute_aggregate_metrics", "verify_responses, compute_metrics_fn=None, get_key_metrics_fn=None"),
)

ROLLOUT_COLLECTION = (
    constant("NG_NO_PERSIST_KEY", "_ng_no_persist"),
    constant("NG_FAILURE_CLASS_KEY", "_ng_failure_class"),
    constant("NG_TERMINAL_KEY", "_ng_failure_terminal"),
    model(
        "SharedRolloutCollectionConfig",
        "output_jsonl_fpath",
        num_samples_in_parallel=None,
        responses_create_params={},
        disable_aggregation=False,
        rollout_collection_driver=None,
        upload_rollouts=True,
    ),
    model(
        "E2ERolloutCollectionConfig",
        "output_jsonl_fpath split",
        reuse_existing_data_preparation=False,
        bases="SharedRolloutCollectionConfig",
    ),
    model(
        "RolloutCollectionConfig",
        "output_jsonl_fpath input_jsonl_fpath",
        attribute("materialized_jsonl_fpath"),
        agent_name=None,
        limit=None,
        num_repeats=1,
        num_repeats_add_seed=False,
        resume_from_cache=False,
        prompt_config=None,
        skills=None,
        bases="SharedRolloutCollectionConfig",
    ),
    model("SkillsConfig", "path"),
    model("RolloutAggregationConfig", "input_glob output_jsonl_fpath", merge_shards=True),
    same("RolloutReverificationConfig", "nemo_gym.rollout_reverification:RolloutReverificationConfig"),
    class_(
        "RolloutCollectionHelper",
        None,
        coroutine("run_from_config", "config"),
        function(
            "run_examples", "examples, head_server_config=None, semaphore=None, *, route_failures_to_sidecar=False"
        ),
        function("setup_server_client", "head_server_config=None"),
        function("_preprocess_rows_from_config", "config"),
        function("_load_from_cache", "config"),
        coroutine("_call_aggregate_metrics", "results, rows, output_fpath"),
    ),
    class_(
        "RolloutAggregationHelper",
        None,
        coroutine("run_from_config", "config"),
        function("setup_server_client", "head_server_config=None"),
        coroutine("_call_aggregate_metrics", "results, rows, output_fpath"),
    ),
    same("get_global_config_dict", "nemo_gym.global_config:get_global_config_dict"),
    function("_attach_trajectory_record", "row, result"),
    function("_get_max_rollout_attempts", ""),
    function("loads_jsonl_line", "raw, path, line"),
)

ROLLOUT_REVERIFICATION = (
    model(
        "RolloutReverificationConfig",
        "rollouts_jsonl_fpath output_jsonl_fpath",
        materialized_inputs_jsonl_fpath=OPTIONAL,
        force=False,
        disable_aggregation=False,
        num_samples_in_parallel=None,
        limit=None,
        overwrite=False,
        resume_from_cache=False,
        judge_failed_only=False,
        append=False,
    ),
)

_OBSERVATION = "ObservationModel"

ROLLOUT_OBSERVABILITY = (
    model("ObservationModel"),
    model("ModelCallRef", bases=_OBSERVATION, **each("model_call_id model_ref response_id")),
    model(
        "AgentInvocation",
        "invocation_id",
        bases=_OBSERVATION,
        kind="agent_invocation",
        status="unknown",
        **each("parent_invocation_id spawned_by_tool_call_id duration_ms error_type"),
        **each("model_calls conversation", []),
    ),
    model(
        "ToolCallObservation",
        "invocation_id tool_call_id",
        bases=_OBSERVATION,
        kind="tool_call",
        status="unknown",
        **each("sandbox_id tool_name started_at completed_at duration_ms timing_source error_type"),
    ),
    model(
        "SandboxObservation",
        "role",
        bases=_OBSERVATION,
        kind="sandbox",
        outcome="unknown",
        **each("provider sandbox_id exit_code wall_time_s cpu_time_s peak_memory_mib resource_usage_source error_type"),
    ),
    model(
        "ContextCompactionObservation",
        "invocation_id",
        bases=_OBSERVATION,
        kind="context_compaction",
        outcome="unknown",
        model_calls=[],
        **each("observed_at trigger tokens_before tokens_after summary first_kept_item_id"),
        **each("before_model_call after_model_call"),
    ),
    model("ObservationGap", "code", bases=_OBSERVATION, **each("invocation_id detail")),
    *aliases("AgentObservationRecord"),
    model("AgentObservationBundle", "source", bases=_OBSERVATION, **each("records gaps", [])),
    dataclass_("AgentEpisode", "response observations"),
    model(
        "TrajectoryTokenStats",
        bases=_OBSERVATION,
        **each("prompt_tokens completion_tokens reasoning_tokens total_tokens cached_tokens"),
    ),
    model(
        "TrajectoryResponseMetadata",
        bases=_OBSERVATION,
        **each("response_id model_ref model dialect status_code response_status finish_reason error_category"),
        **each("latency_ttft_ms"),
    ),
    model(
        "TrajectoryModelCall",
        bases=_OBSERVATION,
        **each("model_call_id started_at completed_at duration_ms request response"),
        **each("response_metadata token_stats", OPTIONAL),
    ),
    model(
        "TrajectoryTurn",
        "invocation_id task_id rollout_id turn_no timestamp step_count",
        bases=_OBSERVATION,
        model_calls=[],
        **each("question answer reasoning_content resolved"),
    ),
    model("TrajectoryToolCall", "invocation_id tool_call_id", bases="ToolCallObservation", output=None),
    model(
        "TrajectoryRecord",
        "task_id rollout_id",
        bases=_OBSERVATION,
        schema_version="1.0",
        **each("invocations turns model_calls tool_calls gaps", []),
    ),
    function("join_model_call_observations", "bundle, calls"),
)

PROMPT = (
    model("PromptConfig", "user", system=None),
    function("load_prompt_config", "path"),
    function("fill_prompt", "prompt_config, row"),
    function("apply_prompt_to_row", "prompt_config, row"),
    function("validate_prompt_compatibility", "rows"),
    function("materialize_prompts", "input_jsonl, prompt_config, output_jsonl"),
)

SKILLS = (
    model("SkillMetadata", "name", description=None, version=None),
    model("SkillsRef", "path hash skills"),
    function("load_skill_directory", "path"),
    function("hash_skill_dir", "path"),
    function("parse_skill_md", "path"),
    function("stage_skills", "path, dest"),
)

EXPORTERS = (
    function("setup_exporters", "cfg"),
    function("get_exporters", ""),
    function("export_metrics", "metrics, step=None"),
    function("export_rollouts", "rollouts"),
    function("teardown_exporters", ""),
)

_SANDBOX_METHODS = {
    "start": "spec=None",
    "exec": "command, *, cwd=None, env=None, timeout_s=180, user=None",
    "upload": "source_path, target_path",
    "download": "source_path, target_path",
    "status": "",
    "endpoint": "port",
    "stop": "",
    "serialize": "*, scope=None",
    "connect": "descriptor, *, provider",
}

SANDBOX = (
    class_(
        "AsyncSandbox",
        "provider, spec=None",
        *(coroutine(name, signature) for name, signature in _SANDBOX_METHODS.items()),
        coroutine("__aenter__", ""),
        coroutine("__aexit__", "*args"),
        attribute("pty"),
    ),
    class_(
        "Sandbox",
        "provider, spec=None",
        *(function(name, signature) for name, signature in _SANDBOX_METHODS.items()),
        function("__enter__", ""),
        function("__exit__", "*args"),
    ),
    dataclass_(
        "SandboxSpec",
        **each("image ttl_s ready_timeout_s workdir entrypoint"),
        **each("env files metadata provider_options", {}),
        resources=OPTIONAL,
        ports=(),
    ),
    dataclass_("SandboxResources", **each("cpu memory_mib disk_gib gpu gpu_type")),
    dataclass_("SandboxExecResult", "stdout stderr return_code", error_type=None),
    same("ExecResult", "nemo_gym.sandbox:SandboxExecResult"),
    dataclass_("SandboxEndpoint", "endpoint", headers={}),
    dataclass_("SandboxHandle", "sandbox_id", **each("provider_name raw", OPTIONAL)),
    dataclass_("SandboxPtySpec", **each("command cwd env user", OPTIONAL), rows=24, cols=80, pty=True),
    enum("SandboxStatus", "starting", "running", "stopped", "error", "unknown"),
    error("SandboxCreateError", "RuntimeError"),
    error("SandboxCreateVerificationError", "SandboxCreateError", "RuntimeError"),
    error("SandboxPtyError", "Exception"),
    class_("SandboxProvider"),
    class_("SupportsSandboxEndpoint", None, coroutine("endpoint", "handle, port")),
    class_("SupportsSandboxPty"),
    class_("SupportsSandboxPtyAttach"),
    class_(
        "ConnectableProvider",
        None,
        coroutine("serialize_handle", "handle, *, scope=None"),
        coroutine("connect", "descriptor"),
    ),
    function("resolve_provider_config", "provider, named_configs=..."),
    function("resolve_provider_metadata", "provider, named_configs=..."),
    function("register_provider", "name, cls, *, override=False"),
    function("create_provider", "config"),
    function("get_provider_class", "name"),
    function("list_providers", ""),
    function("rewrite_image", "image, rules"),
)
_RE_EXPORTED = (
    "ConnectableProvider ExecResult SandboxCreateError SandboxCreateVerificationError SandboxEndpoint "
    "SandboxExecResult SandboxHandle SandboxProvider SandboxPtyError SandboxPtySpec SandboxResources SandboxSpec "
    "SandboxStatus SupportsSandboxEndpoint SupportsSandboxPty SupportsSandboxPtyAttach"
)

_PROBE = {**each("command expected_stdout", OPTIONAL), "timeout_s": 30, "deadline_s": None}
_PROBE |= {"stable_count": 1, "stable_delay_s": 0}
_DOCKER_CONFIGS = (
    dataclass_(
        "DockerCreateConfig",
        keepalive_shell="/bin/sh",
        keepalive_cmd=OPTIONAL,
        start_timeout_s=600,
        use_init=True,
        network=None,
        read_only=False,
        cap_drop=[],
        security_opt=[],
        pids_limit=None,
        extra_run_args=[],
        apply_resource_limits=True,
        publish_host="127.0.0.1",
    ),
    dataclass_("DockerExecConfig", default_timeout_s=180, extra_exec_args=[], concurrency=32, exec_shell=None),
    dataclass_("DockerProbeConfig", **_PROBE),
)
_APPTAINER_CONFIGS = (
    dataclass_(
        "ApptainerCreateConfig",
        mount_point="/sandbox",
        start_timeout_s=600,
        extra_start_args=[],
        apply_resource_limits=True,
    ),
    dataclass_(
        "ApptainerExecConfig",
        default_timeout_s=180,
        fakeroot_for_root=True,
        default_binds=[],
        extra_exec_args=[],
        concurrency=32,
    ),
    dataclass_("ApptainerProbeConfig", **_PROBE),
)

PACKAGE_EXPORTS = {
    "nemo_gym.base_resources_server": "BaseResourcesServerConfig SimpleResourcesServer BaseRunRequest "
    "BaseVerifyRequest BaseVerifyResponse BaseMultiRewardVerifyResponse BaseSeedSessionRequest "
    "BaseSeedSessionResponse ReverifyMode",
    "nemo_gym.base_responses_api_agent": "BaseResponsesAPIAgentConfig SimpleResponsesAPIAgent",
    "nemo_gym.base_responses_api_model": "BaseResponsesAPIModelConfig SimpleResponsesAPIModel",
    "nemo_gym.server_utils": "ServerClient raise_for_status get_response_json SESSION_ID_KEY",
    "nemo_gym.config_types": "BaseServerConfig BaseRunServerInstanceConfig Domain AggregateMetrics "
    "AggregateMetricsRequest ModelServerRef",
    "nemo_gym.openai_utils": "NeMoGymAsyncOpenAI NeMoGymResponse NeMoGymResponseCreateParamsNonStreaming "
    "NeMoGymChatCompletion NeMoGymChatCompletionCreateParamsNonStreaming",
}

PACKAGE = (
    *(same(name, f"{module}:{name}") for module, names in PACKAGE_EXPORTS.items() for name in names.split()),
    constant("ROOT_DIR"),
    constant("PARENT_DIR"),
    constant("WORKING_DIR"),
    constant("CACHE_DIR"),
    constant("RESULTS_DIR"),
    constant("NEMO_GYM_EXTRA_ROOTS_ENV_VAR_NAME", "NEMO_GYM_EXTRA_ROOTS"),
    constant("__version__"),
    constant("__package_name__", "nemo_gym"),
    function("component_search_roots", "*, sys_path=None"),
    function("_resolve_under_cwd_or_install", "rel, *, validator=None"),
)


def _commands(names: str) -> tuple[Name, ...]:
    """Commands as functions that take their words from the arguments of the process."""
    return tuple(function(name, "") for name in names.split())


SMALL_MODULES = {
    "nemo_gym.adapters.rollout_runner": (
        class_("ModelEndpoint"),
        class_("RunnerResult"),
        class_("RolloutRunnerConfig"),
        class_("RolloutRunner", None, coroutine("play", "task, model")),
        function("read_sampling", "task"),
    ),
    "nemo_gym.item_forms": (
        function("make_form", "item"),
        function("is_from_model", "item"),
        function("is_silent", "shape"),
        function("describe_form", "shape"),
    ),
    "nemo_gym.cli": (
        class_("StatusCommand", None, function("discover_servers", ""), function("display_status", "servers")),
    ),
    "nemo_gym.cli.main": (function("main", "argv=None"),),
    "nemo_gym.cli.env": (
        class_("RunHelper"),
        *(model(name) for name in ("RunConfig", "TestConfig", "TestAllConfig", "PipListConfig")),
        *_commands("run test test_all init_resources_server dump_config status pip_list"),
    ),
    "nemo_gym.cli.eval": (
        model("PrepareBenchmarkConfig"),
        *_commands("list_benchmarks prepare_benchmark reward_profile collect_rollouts aggregate_rollouts"),
        *_commands("e2e_rollout_collection"),
    ),
    "nemo_gym.cli.dataset": _commands(
        "upload_jsonl_dataset_to_hf_cli upload_jsonl_dataset_to_hf_and_delete_gitlab_cli prepare_data "
        "download_jsonl_dataset_from_hf_cli delete_jsonl_dataset_from_gitlab_cli upload_jsonl_dataset_cli "
        "download_jsonl_dataset_cli materialize_prompts_cli"
    ),
    "nemo_gym.cli.dev": _commands("dev_test"),
    "nemo_gym.cli.general": (model("VersionConfig"), *_commands("version")),
    "nemo_gym.cli.setup_command": (
        function("run_command", "command, working_dir_path"),
        function("setup_env_command", "dir_path, global_config_dict, prefix"),
    ),
    "nemo_gym.discovery": (function("merge_by_name", "dicts"), function("read_config_metadata", "path")),
    "nemo_gym.server_metadata": (
        class_("ServerMetadata"),
        function("visit_resources_server", "data"),
        function("visit_agent_server", "data"),
    ),
    "nemo_gym.path_utils": (function("failures_path_for", "output_path"),),
    "nemo_gym.profiling": (class_("Profiler"),),
    "nemo_gym.secret_utils": (function("recursively_hide_secrets", "config"),),
    "nemo_gym.mcp_auto_exposure": (
        function("maybe_auto_expose", "server, app"),
        function("install_auto_exposure", "server, app"),
        function("bind_route", "route"),
        same("TOKEN_HEADER", "nemo_gym.base_resources_server:NEMO_GYM_MCP_SESSION_TOKEN_HEADER"),
    ),
    "nemo_gym.sandbox.config": (
        same("resolve_provider_config", "nemo_gym.sandbox:resolve_provider_config"),
        same("resolve_provider_metadata", "nemo_gym.sandbox:resolve_provider_metadata"),
    ),
    "nemo_gym.sandbox.utils": (same("rewrite_image", "nemo_gym.sandbox:rewrite_image"),),
    "nemo_gym.sandbox.providers.base": tuple(same(name, f"nemo_gym.sandbox:{name}") for name in _RE_EXPORTED.split()),
    "nemo_gym.sandbox.providers": tuple(
        same(name, f"nemo_gym.sandbox:{name}")
        for name in f"{_RE_EXPORTED} create_provider get_provider_class list_providers register_provider".split()
    ),
    "nemo_gym.sandbox.providers.apptainer": (
        class_("ApptainerProvider", "exec=None, create=None, probe=None, *, bin_path=None"),
        *_APPTAINER_CONFIGS,
    ),
    "nemo_gym.sandbox.providers.apptainer.provider": (
        same("ApptainerProvider", "nemo_gym.sandbox.providers.apptainer:ApptainerProvider"),
        function("_require_apptainer", "bin_path=None"),
    ),
    "nemo_gym.sandbox.providers.docker": (
        class_("DockerProvider", "exec=None, create=None, probe=None"),
        *_DOCKER_CONFIGS,
    ),
    "nemo_gym.sandbox.providers.docker.provider": (
        same("DockerProvider", "nemo_gym.sandbox.providers.docker:DockerProvider"),
        function("_require_docker", ""),
    ),
}
