# SPDX-License-Identifier: Apache-2.0
"""The contract of trainers that play live."""

from tests.contract.shapes import OPTIONAL, class_, constant, context, coroutine, dataclass_, error, function

TOKEN_ENGINE = (
    class_("ChatFormat", "tokenizer, *, template_settings=None, parse_reply=None"),
    dataclass_("ParsedReply", "text", calls=[]),
    dataclass_("EngineReply", "token_ids log_probs", is_cut_off=False, policy_version=None),
    dataclass_("TokenSettings", "generate chat", max_length=None, max_response_length=None, model="policy"),
    context("open_token_rollout", "rollout_id, settings"),
    function("find_token_session", "rollout_id"),
    class_("TokenSession", "settings", coroutine("answer", "messages, tools, limit=None")),
    error("NoTokenRollout", "GymError"),
)

LIVE = (
    class_(
        "LiveGym",
        None,
        coroutine("play", "row, settings, *, attempts=3, timeout_s=None"),
        coroutine("run", "row"),
        coroutine("close", ""),
    ),
    dataclass_("PlayedRollout", "rollout result"),
    function("read_row", "carried, where"),
    function("write_row", "row"),
    constant("ROW_FIELD", "nemo_gym_row"),
    error("LiveGymError", "GymError"),
)

SCORING = (
    coroutine("connect", "head_server=None"),
    coroutine("score_reply", "client, row, text"),
)

VERL = (
    constant("VERL_VERSION", "0.9.1"),
    constant("AGENT_NAME", "nemo_gym"),
    function("build_agent_loop", ""),
    coroutine("compute_score", "data_source, solution_str, ground_truth, extra_info=None, *, head_server=None"),
    function("build_sample", "row, index"),
    function("write_dataset", "rows, output, agent=None"),
)

OPENRLHF = (
    constant("OPENRLHF_VERSION", "0.11.0"),
    function(
        "build_agent_executor", "config_paths, overrides=(), *, attempts=3, timeout_s=None, template_settings=None"
    ),
    function("build_reward_app", "head_server=None"),
)

ART = (
    constant("ART_VERSION", "0.5.23"),
    function("build_trajectory", "row, policy_versions=(None, None)"),
    function("build_groups", "rows, policy_versions=(None, None)"),
    function("read_groups", "*paths"),
    coroutine("gather", "model, rows, config_paths, overrides=(), *, repeats=1, parallel=None"),
)

EPISODES = (
    class_("EpisodeServer", "client, name", coroutine("begin", "row")),
    class_("ServerEpisode", "client, server, row", coroutine("act", "action"), coroutine("close", "")),
    class_("SteppedEpisode", "client, server, row", bases="ServerEpisode"),
    class_("VerifiedEpisode", "client, server, row", function("add_call", "call, output"), bases="ServerEpisode"),
    dataclass_("ToolUse", "name", arguments=OPTIONAL),
    dataclass_("EpisodeStart", "messages tools info"),
    dataclass_("EpisodeStep", "observation reward terminated truncated info"),
    class_("RowCursor", "rows, name='the dataset'", function("seek", "seed"), function("take", "")),
    function("read_action", "text, *, offers_tools"),
    function("render_messages", "messages"),
    error("EpisodeError", "GymError"),
)

GYMNASIUM_ENV = (
    constant("GYMNASIUM_VERSION", "1.4.0"),
    function("make_env", "server, rows=(), *, head_server=None, config_paths=(), overrides=()"),
    function("build_env_class", ""),
)

OPENENV = (
    constant("OPENENV_VERSION", "0.3.0"),
    function("serve_openenv", "client, rows, host, port"),
)
