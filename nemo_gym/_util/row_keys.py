# SPDX-License-Identifier: Apache-2.0
"""The keys that the package itself reads and writes in dataset rows and result rows.

Every other key of a row belongs to its environment and is passed through unchanged.
"""

TASK_INDEX_KEY_NAME = "_ng_task_index"
ROLLOUT_INDEX_KEY_NAME = "_ng_rollout_index"
ATTEMPT_INDEX_KEY_NAME = "_ng_attempt_index"
ROLLOUT_ID_KEY_NAME = "_ng_rollout_id"
RESPONSES_CREATE_PARAMS_KEY_NAME = "responses_create_params"
RESPONSE_KEY_NAME = "response"
AGENT_REF_KEY_NAME = "agent_ref"
SKILLS_REF_KEY_NAME = "skills_ref"
TASK_SOURCE_KEY_NAME = "task_source"
PROMPT_CONFIG_USED_KEY_NAME = "prompt_config_used"
REWARD_KEY_NAME = "reward"

# How an agent or a resources server says where a result belongs.
NG_NO_PERSIST_KEY = "_ng_no_persist"
NG_FAILURE_CLASS_KEY = "_ng_failure_class"
NG_TERMINAL_KEY = "_ng_failure_terminal"
NG_FAILURE_JUDGE_ERROR_KEY = "_ng_failure_judge_error"

# What is known of a failure: its kind, boundary, message and so on.
FAILURE_KEY = "_ng_failure"

# What happened in a rollout that ended with a reward all the same. An agent puts them into its result, or on its
# response; a row in which nothing of the kind happened has neither.
NG_TOOL_ERRORS_KEY = "_ng_tool_errors"
"""The tools that crashed: a list of `{"tool": str, "status": int, "message": str}`."""
NG_CUT_OFF_KEY = "_ng_cut_off"
"""What ended the rollout before the model did: `"max_steps"` or `"length"`."""

NG_POLICY_VERSIONS_KEY = "_ng_policy_versions"
"""The versions of the policy's weights that a rollout saw: `{"start": int, "end": int, "straddles": bool}`."""

CARRIED_KEYS = (
    TASK_INDEX_KEY_NAME,
    ROLLOUT_INDEX_KEY_NAME,
    AGENT_REF_KEY_NAME,
    SKILLS_REF_KEY_NAME,
    ATTEMPT_INDEX_KEY_NAME,
    ROLLOUT_ID_KEY_NAME,
)
"""What a result takes over from the row that was played, in the order in which it is written."""

# Where a server finds the id of the session that a request belongs to.
SESSION_ID_KEY = "session_id"

# Keys that begin with this are bookkeeping, not measurements.
BOOKKEEPING_PREFIX = "_ng_"

MODEL_CALL_CAPTURE_KEY = "ng_model_call_capture"
AGENT_OBSERVATIONS_KEY = "ng_agent_observations"
TRAJECTORY_KEY = "ng_trajectory"
OBSERVED_KEYS = frozenset({MODEL_CALL_CAPTURE_KEY, AGENT_OBSERVATIONS_KEY, TRAJECTORY_KEY})
"""What was observed of a rollout. A result that holds one of these has a trajectory."""
TOKEN_CAPTURE_KEY = "_ng_token_capture"
TOKEN_DRIFT_KEY = "_ng_token_drift"
"""What was done to the tokens of a row so that they extend each other: `nemo_gym._training.handover`."""
MASK_SAMPLE_KEY = "mask_sample"
"""True in a row that must not be trained on; trainers read it."""
FAILURE_KIND_KEY = "failure_kind"
FAILURE_REASON_KEY = "failure_reason"
"""What a verifier says about a reward that is no measurement: a name of `nemo_gym.failure_kinds`, and a sentence."""
RESPONSE_FACTS = (TOKEN_CAPTURE_KEY, TOKEN_DRIFT_KEY, MASK_SAMPLE_KEY, NG_POLICY_VERSIONS_KEY)
"""What a row says of its response, whoever scores it: its tokens, and the weights that wrote it."""
ENDING_KEYS = frozenset(
    {
        NG_NO_PERSIST_KEY,
        NG_FAILURE_CLASS_KEY,
        NG_TERMINAL_KEY,
        NG_FAILURE_JUDGE_ERROR_KEY,
        FAILURE_KEY,
        NG_TOOL_ERRORS_KEY,
        NG_CUT_OFF_KEY,
        NG_POLICY_VERSIONS_KEY,
        TOKEN_CAPTURE_KEY,
        TOKEN_DRIFT_KEY,
    }
)
"""How a rollout ended and what it left; never taken over from a row."""
BULKY_KEYS = OBSERVED_KEYS | {
    TOKEN_CAPTURE_KEY,
    TOKEN_DRIFT_KEY,
    RESPONSE_KEY_NAME,
    RESPONSES_CREATE_PARAMS_KEY_NAME,
}
"""What may be as large as a whole conversation and is no measurement."""
PLAYER_KEYS = frozenset(
    {AGENT_REF_KEY_NAME, RESPONSES_CREATE_PARAMS_KEY_NAME, SKILLS_REF_KEY_NAME, PROMPT_CONFIG_USED_KEY_NAME}
)
"""Who plays a task and how it is asked; all other keys, save for bookkeeping, say which task it is."""
