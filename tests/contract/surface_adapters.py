# SPDX-License-Identifier: Apache-2.0
"""The contract of environments that are played by steps, and of those that somebody else wrote."""

from tests.contract.shapes import class_, coroutine, dataclass_, function, model, same

STEP_ENVIRONMENTS = (
    class_("GymnasiumServer", None, coroutine("close_session", "session_id")),
    model("EnvResetResponse", observation=None, tools=None),
    model("EnvStepResponse", observation=None, reward=0.0, terminated=False, truncated=False),
    function("extract_text", "response"),
    function("tool_output", "call, output"),
)
GYMNASIUM = tuple(same(entry.name, f"nemo_gym.step_environments:{entry.name}") for entry in STEP_ENVIRONMENTS)

ADAPTERS = (
    class_("ScoringServer", None, function("score", "answer, task"), coroutine("score_answer", "answer, task")),
    class_("TextStepServer", None, function("make_environment", "task"), function("extract_action", "text")),
    class_("ToolStepServer", None, function("make_environment", "task")),
    model("StepServerConfig", max_steps=None, max_sessions=128, session_memory_mb=2048),
    class_("RolloutRunner", None, coroutine("play", "task, model")),
    dataclass_("ModelEndpoint", "base_url api_key model"),
    dataclass_("RunnerResult", "reward", components={}, metrics={}, info={}),
    function("derive_seed", "task"),
)

CODED_AGENTS = (
    class_("CodedAgent", None, coroutine("play", "task, rollout")),
    model("CodedAgentConfig", rollout_timeout_s=3600.0, tool_errors="report"),
    class_(
        "AgentRollout",
        None,
        coroutine("call_tool", "name, arguments"),
        function("call_tool_sync", "name, arguments"),
        function("openai", ""),
        function("anthropic", ""),
    ),
)
