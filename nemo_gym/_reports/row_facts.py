# SPDX-License-Identifier: Apache-2.0
"""What a line of a file says at a glance: which rollout it is, how it ended, and how much was written.

Any JSON object will do; whatever a row lacks is absent from its facts. The conversation itself is read elsewhere.
"""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

import orjson

from nemo_gym._rollouts.incidents import LENGTH, is_cut_by_length
from nemo_gym._util.keys import (
    AGENT_REF_KEY_NAME,
    BOOKKEEPING_PREFIX,
    FAILURE_KEY,
    MODEL_CALL_CAPTURE_KEY,
    NG_CUT_OFF_KEY,
    NG_FAILURE_CLASS_KEY,
    NG_FAILURE_JUDGE_ERROR_KEY,
    NG_TOOL_ERRORS_KEY,
    RESPONSE_KEY_NAME,
    RESPONSES_CREATE_PARAMS_KEY_NAME,
    REWARD_KEY_NAME,
    ROLLOUT_INDEX_KEY_NAME,
    TASK_INDEX_KEY_NAME,
)

Kind = Literal["rollouts", "inputs", "failures", "profile", "dataset", "other"]
KINDS: tuple[Kind, ...] = ("rollouts", "inputs", "failures", "profile", "dataset", "other")
CAPTURE_KEY = MODEL_CALL_CAPTURE_KEY
MEAN_REWARD_KEYS = ("mean/reward", "avg_reward")
"""Where a profiled task keeps the mean of its rewards, in either format."""

SCORED, FAILED, TOKENS, UNNUMBERED, TOOL_ERROR, CUT_OFF = 1, 2, 4, 8, 16, 32

_LARGEST_INDEX = 1 << 31
_LARGEST_COUNT = (1 << 31) - 1
_DIGEST_BYTES = 6
_REWARD_KEYS = (REWARD_KEY_NAME,)
_NUMBERS = frozenset({int, float, bool})


class Facts(NamedTuple):
    """One row, without its bulk."""

    kind: Kind
    task: int | None
    rollout: int
    agent: str
    reward: float
    """NaN where there is none."""
    finish: str
    tools: tuple[str, ...]
    """The names of the tools that were called, each once, in order."""
    failure: str
    flags: int
    input_tokens: int
    output_tokens: int
    tool_calls: int
    length: int
    fields: dict[str, float]


class Output(NamedTuple):
    """What the model did in a response."""

    tools: dict[str, None]
    tool_calls: int
    length: int
    flags: int


def loads_row(raw: bytes) -> dict[str, Any]:
    """The object on a line; ValueError says why there is none.

    Files that other programs wrote may hold NaN or half of a surrogate pair, which strict JSON forbids: such a number
    is read as null and such a character as the replacement character.
    """
    try:
        row = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        row = _loads_tolerantly(raw, error)
    if type(row) is dict:
        return row
    raise ValueError(f"a JSON object is expected, this is a {type(row).__name__}")


def facts_of(row: Mapping[str, Any]) -> Facts:
    """The facts of any row."""
    response, params = _mapping(row.get(RESPONSE_KEY_NAME)), _mapping(row.get(RESPONSES_CREATE_PARAMS_KEY_NAME))
    failure = failure_kind_of(row)
    kind = _kind(row, failure, bool(response), bool(params))
    reward = _reward(row, kind)
    output = _output(response.get("output"))
    flags = output.flags | (FAILED if failure else 0 if math.isnan(reward) else SCORED)
    cut_off = cut_off_of(row)
    flags |= (CUT_OFF if cut_off else 0) | (TOOL_ERROR if row.get(NG_TOOL_ERRORS_KEY) else 0)
    task = index_of(row, TASK_INDEX_KEY_NAME)
    if task is None and kind in ("rollouts", "failures"):
        task, flags = _digest(params.get("input")), flags | UNNUMBERED
    usage = tokens_of(row, response)
    return Facts(
        kind,
        task,
        index_of(row, ROLLOUT_INDEX_KEY_NAME) or 0,
        agent_name(row) or "",
        reward,
        finish_reason_of(response, cut_off if NG_CUT_OFF_KEY in row else ""),
        tuple(output.tools),
        failure,
        flags,
        usage[0],
        usage[1],
        output.tool_calls,
        output.length,
        _fields(row),
    )


def index_of(row: Mapping[str, Any], key: str) -> int | None:
    """A task or rollout index; None if there is none that counts from 0."""
    value = row.get(key)
    return value if type(value) is int and 0 <= value < _LARGEST_INDEX else None


def agent_name(row: Mapping[str, Any]) -> str | None:
    """The agent that played the row, or is to play it."""
    name = _mapping(row.get(AGENT_REF_KEY_NAME)).get("name")
    return name if isinstance(name, str) else None


def failure_kind_of(row: Mapping[str, Any]) -> str:
    """Why a row has no reward that counts; empty for one that did not fail."""
    named = row.get(NG_FAILURE_CLASS_KEY) or _mapping(row.get(FAILURE_KEY)).get("kind")
    return named if isinstance(named, str) else "unknown" if named else ""


def cut_off_of(row: Mapping[str, Any]) -> str:
    """What ended a rollout before it was done (`max_steps`, `length`); empty for one that ended by itself."""
    said = row.get(NG_CUT_OFF_KEY)
    if isinstance(said, str):
        return said
    return LENGTH if is_cut_by_length(row.get(RESPONSE_KEY_NAME)) else ""  # a row that another program wrote


def finish_reason_of(response: Mapping[str, Any], cut_off: str = "") -> str:
    """How the response ended, in one word: why it is incomplete or was cut off, else its status."""
    reason = _incomplete_reason(response) or cut_off
    status = "error" if response.get("error") else response.get("status")
    return reason or (status if isinstance(status, str) else "")


def _incomplete_reason(response: Mapping[str, Any]) -> str:
    reason = _mapping(response.get("incomplete_details")).get("reason")
    return reason if isinstance(reason, str) else ""


def tokens_of(row: Mapping[str, Any], response: Mapping[str, Any]) -> tuple[int, int]:
    """Input and output tokens; -1 for a number that the row does not tell."""
    usage = response.get("usage")
    if isinstance(usage, dict):
        return _count(usage.get("input_tokens")), _count(usage.get("output_tokens"))
    captured = _mapping(_mapping(row.get(CAPTURE_KEY)).get("metrics"))
    return _count(captured.get("tokens_in")), _count(captured.get("tokens_out"))


def texts_of(content: Any) -> Iterator[str]:
    """The texts of a message, a summary or a reasoning, as one string or in parts."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for part in content:
            text = part.get("text", part.get("refusal")) if isinstance(part, dict) else part
            if isinstance(text, str):
                yield text


def is_tool_call(item: Mapping[str, Any]) -> bool:
    """Whether an output item calls a tool, of whatever kind."""
    kind = item.get("type")
    return isinstance(kind, str) and kind.endswith("_call")


def tool_name(item: Mapping[str, Any]) -> str:
    """The name of the tool that is called; hosted tools go by their type."""
    name = item.get("name")
    return name if isinstance(name, str) else str(item.get("type")).removesuffix("_call")


def _loads_tolerantly(raw: bytes, reason: orjson.JSONDecodeError) -> Any:
    try:
        return _clean(json.loads(raw.decode()))
    except RecursionError as error:
        raise ValueError("not valid JSON: nested too deeply") from error
    except ValueError as error:
        raise ValueError(f"not valid JSON: {reason}") from error


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list):
        return [_clean(one) for one in value]
    if isinstance(value, dict):
        return {_clean(name): _clean(one) for name, one in value.items()}
    return value


def _kind(row: Mapping[str, Any], failure: str, has_response: bool, has_params: bool) -> Kind:
    if "rollout_infos" in row or "avg_reward" in row:
        return "profile"
    if failure:
        return "failures"
    if has_response or REWARD_KEY_NAME in row:
        return "rollouts"
    if has_params:
        return "inputs" if ROLLOUT_INDEX_KEY_NAME in row else "dataset"
    return "other"


def _reward(row: Mapping[str, Any], kind: Kind) -> float:
    names = MEAN_REWARD_KEYS if kind == "profile" else _REWARD_KEYS
    for name in names:
        value = row.get(name)
        if type(value) in _NUMBERS:
            return _float(value)
    return math.nan


def _output(items: Any) -> Output:
    tools: dict[str, None] = {}
    calls = length = flags = 0
    for item in items if isinstance(items, list) else ():
        if not isinstance(item, dict):
            continue
        kind = item.get("type")
        if kind == "function_call_output":
            continue
        if kind == "reasoning":
            length += _text_length(item.get("summary")) + _text_length(item.get("content"))
        elif kind == "function_call" or is_tool_call(item):
            tools[tool_name(item)] = None
            calls += 1
            length += _text_length(item.get("arguments"))
        elif item.get("role") == "assistant":
            length += _text_length(item.get("content"))
        if "generation_token_ids" in item:
            flags |= TOKENS
    return Output(tools, calls, length, flags)


def _text_length(content: Any) -> int:
    """How many characters `texts_of` would give."""
    if isinstance(content, str):
        return len(content)
    if not content or not isinstance(content, list):
        return 0
    if len(content) == 1 and isinstance(content[0], dict) and isinstance(text := content[0].get("text"), str):
        return len(text)
    return sum(map(len, texts_of(content)))


def _fields(row: Mapping[str, Any]) -> dict[str, float]:
    """Its numbers other than the reward."""
    return {
        name: _float(value)
        for name, value in row.items()
        if type(value) in _NUMBERS and name != REWARD_KEY_NAME and not name.startswith(BOOKKEEPING_PREFIX)
    }


def _float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.nan


def _digest(given: Any) -> int:
    """A number for the task of a row that has none: the same for equal inputs."""
    content = orjson.dumps(given, option=orjson.OPT_SORT_KEYS)
    return int.from_bytes(hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest())


def _count(value: Any) -> int:
    return min(value, _LARGEST_COUNT) if type(value) is int and value >= 0 else -1


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def message_of(row: Mapping[str, Any]) -> str:
    """What a failed row says went wrong."""
    failure = row.get(FAILURE_KEY)
    message = failure.get("message") if isinstance(failure, dict) else None
    message = message or row.get(NG_FAILURE_JUDGE_ERROR_KEY)
    return message if isinstance(message, str) else ""
