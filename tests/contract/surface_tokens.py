# SPDX-License-Identifier: Apache-2.0
"""The contract of token-id capture."""

from tests.contract.shapes import OPTIONAL, attribute, class_, constant, coroutine, dataclass_, error, function, model

_SINK_METHODS = (
    coroutine("put", "entry"),
    coroutine("mark_incomplete", "rollout_id, model_call_id=''"),
    coroutine("close", ""),
)
_SOURCE_METHODS = (
    coroutine("freeze", "rollout_id"),
    coroutine("drop", "rollout_id, *, snapshot_id, version"),
    coroutine("close", ""),
)

TOKEN_PROTOCOLS = (class_("TokenSink", None, *_SINK_METHODS), class_("TokenSource", None, *_SOURCE_METHODS))

TOKEN_RECORDS = (
    constant("TOKEN_FIELDS", ("prompt_token_ids", "generation_token_ids", "generation_log_probs")),
    constant("TOKEN_ENTRY_RECORD_SCHEMA_VERSION", 1),
    model(
        "TokenEntry",
        "rollout_id model_call_id prompt_token_ids generation_token_ids generation_log_probs",
        schema_version=1,
        model="",
        routed_experts=None,
        output_items=[],
        token_item_index=None,
        created_at=0.0,
    ),
    dataclass_(
        "TokenCaptureSnapshot",
        "rollout_id",
        entries=OPTIONAL,
        incomplete=OPTIONAL,
        snapshot_id=OPTIONAL,
        version=OPTIONAL,
    ),
    function("extract_token_fields", "item"),
)

TOKEN_STORE = (
    class_(
        "TokenCaptureStore",
        "dir",
        coroutine("begin_call", "rollout_id, model_call_id"),
        *_SINK_METHODS,
        *_SOURCE_METHODS,
    ),
    function("clear_token_captures_for_rollouts", "rows, dirs"),
)

TOKEN_DELIVERY = (
    class_("CaptureContext", "sink, rollout_id, model_call_id"),
    function("set_token_sink", "sink, rollout_id=..., model_call_id=..."),
    function("reset_token_sink", "token"),
    function("current_capture_context", ""),
    coroutine("register_call_intent", ""),
    coroutine("capture_tokens", "answer"),
    coroutine("commit_entry", "entry"),
    function("install_token_sink", "sink"),
    function("installed_token_sink", ""),
    function("install_token_source", "source"),
    function("installed_token_source", ""),
)

TOKEN_ID_CAPTURE = (
    model(
        "TokenIdCaptureConfig",
        enabled=False,
        all_agents=False,
        dir=None,
        sink=None,
        sink_kwargs={},
        rebuild_response=True,
        max_mask_fraction=None,
        mask_fraction_min_samples=50,
    ),
    *TOKEN_PROTOCOLS,
    *TOKEN_RECORDS,
    *TOKEN_STORE,
    *TOKEN_DELIVERY,
)

TRAJECTORIES = (
    constant("SCHEMA", 1),
    dataclass_(
        "Turn",
        "prompt_ids generated_ids log_probs source",
        model=None,
        call_id=None,
        policy_version=None,
        policy_version_end=None,
    ),
    dataclass_(
        "Branch",
        "prompt_ids",
        completion_ids=OPTIONAL,
        mask=OPTIONAL,
        log_probs=OPTIONAL,
        turns=OPTIONAL,
        realigned_turns=OPTIONAL,
        parent=None,
        shared_ids=0,
    ),
    dataclass_(
        "TrainableRollout",
        "task_index rollout_index",
        agent=None,
        rollout_id=None,
        reward=None,
        reward_components=OPTIONAL,
        failure=None,
        invalid=None,
        cut_off=None,
        turns=OPTIONAL,
        branches=OPTIONAL,
    ),
    function("read_trainable_rollouts", "path, decode=None"),
)

POLICY_VERSIONS = (
    error("PolicyVersionError", "GymError"),
    error("PolicyVersionRefused", "GymError", "ValueError"),
    error("StalenessTimeout", "GymError", "TimeoutError"),
    coroutine("announce", "version, *, servers=None, restart=False, gate=None, head_server_config=None, timeout_s=..."),
    coroutine("read_policy_version", "head_server_config=None, *, timeout_s=..."),
    function("follow", "gate, head_server_config=None"),
    class_(
        "StalenessGate",
        "max_staleness, batch_size, version",
        attribute("version"),
        attribute("admitted"),
        attribute("free"),
        function("announce", "version, restart=False"),
        function("try_admit", "count=1"),
        coroutine("admit", "count=1, timeout_s=None"),
        function("give_back", "count=1"),
    ),
)

SESSION_GATEWAY = (
    model(
        "SessionGatewayConfig",
        enabled=True,
        max_sessions=OPTIONAL,
        max_memory_bytes=OPTIONAL,
        idle_timeout_s=OPTIONAL,
        max_duration_s=OPTIONAL,
        keep_ended_s=OPTIONAL,
    ),
    model("SessionRequest", id=None, task_index=0, rollout_index=0, agent=None, metadata=OPTIONAL),
    model("RewardRequest", "reward", components=OPTIONAL, final=True),
    model("SessionFailureRequest", message="", kind="agent"),
)

SESSION_CLIENT = (
    error("SessionRefused", "nemo_gym.errors:GymError"),
    class_(
        "SessionClient",
        "server='policy_model', client=None",
        function("url_for", "session_id"),
        coroutine("create", "session_id=None, *, task_index=0, rollout_index=0, agent=None, metadata=None"),
        coroutine("set_reward", "session_id, reward, components=None, *, final=True"),
        coroutine("fail", "session_id, message, kind='agent'"),
        coroutine("fetch", "session_id"),
        coroutine("fetch_rollout", "session_id"),
        coroutine("list_ended", "after=0, limit=100"),
        coroutine("delete", "session_id"),
    ),
)
