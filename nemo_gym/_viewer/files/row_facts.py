# SPDX-License-Identifier: Apache-2.0
"""The facts of one line: which rollout it is, how it ended, and how much was written.

Any JSON object will do; what a row lacks is absent from its facts. The conversation itself is read elsewhere.
"""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

import orjson

from nemo_gym._results.result_rows import read_agent_name
from nemo_gym._rollouts.incidents import LENGTH, is_cut_by_length
from nemo_gym._util.json_shapes import as_list, as_mapping, as_text
from nemo_gym._util.masked_rows import has_no_measurement
from nemo_gym._util.row_keys import (
    BOOKKEEPING_PREFIX,
    FAILURE_KEY,
    FAILURE_KIND_KEY,
    FAILURE_REASON_KEY,
    MASK_SAMPLE_KEY,
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
RowOutcome = Literal["scored", "failed", "not run", "unscored"]
KINDS: tuple[Kind, ...] = ("rollouts", "inputs", "failures", "profile", "dataset", "other")
MEAN_REWARD_KEYS = ("mean/reward", "avg_reward")
"""Where a profiled task keeps its mean reward, in either format."""

SCORED = 1
FAILED = 2
TOKENS = 4
UNNUMBERED = 8
TOOL_ERROR = 16
CUT_OFF = 32
NOT_RUN = 64

NUMBER_TYPES = frozenset({int, float, bool})
_LARGEST_INDEX = 1 << 31
_LARGEST_COUNT = (1 << 31) - 1
_DIGEST_BYTES = 6


class RowFacts(NamedTuple):
    """One row, without its bulk."""

    kind: Kind
    task: int | None
    rollout: int
    agent: str
    reward: float
    """NaN if there is none."""
    finish: str
    tools: tuple[str, ...]
    """The names of the tools that were called, in order and without duplicates."""
    failure: str
    flags: int
    input_tokens: int
    output_tokens: int
    """-1, as for the input, if the row does not say."""
    tool_calls: int
    length: int
    fields: dict[str, float]
    """The numbers other than the reward."""


def parse_row(raw: bytes) -> dict[str, Any]:
    """Return the object on a line; raise a ValueError that says why there is none.

    Files written by other programs may hold NaN or half of a surrogate pair, which strict JSON forbids: such a number
    is read as null and such a character as the replacement character.
    """
    try:
        row = orjson.loads(raw)
    except orjson.JSONDecodeError as reason:
        try:
            row = _replace_invalid(json.loads(raw.decode()))
        except RecursionError as error:
            raise ValueError("not valid JSON: nested too deeply") from error
        except ValueError as error:
            raise ValueError(f"not valid JSON: {reason}") from error
    if type(row) is dict:
        return row
    raise ValueError(f"a JSON object is expected, this is a {type(row).__name__}")


def _replace_invalid(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list):
        return [_replace_invalid(one) for one in value]
    if isinstance(value, dict):
        return {_replace_invalid(name): _replace_invalid(one) for name, one in value.items()}
    return value


def read_facts(row: Mapping[str, Any]) -> RowFacts:
    """Return the facts of any row."""
    response = as_mapping(row.get(RESPONSE_KEY_NAME))
    params = as_mapping(row.get(RESPONSES_CREATE_PARAMS_KEY_NAME))
    failure = read_failure_kind(row)
    cut_off = read_cut_off(row)
    kind = _detect_kind(row, failure, bool(response), bool(params))
    reward = _read_reward(row, kind)
    tools, tool_calls, length, flags = _measure_output(response.get("output"))
    if failure == "cancelled":
        # A run that is stopped cancels what is in flight: that has not failed, and `--resume` runs it.
        flags |= NOT_RUN
    elif failure:
        flags |= FAILED
    elif not math.isnan(reward):
        flags |= SCORED
    if cut_off:
        flags |= CUT_OFF
    if row.get(NG_TOOL_ERRORS_KEY):
        flags |= TOOL_ERROR
    task = read_index(row, TASK_INDEX_KEY_NAME)
    if task is None and kind in ("rollouts", "failures"):
        # A row without an index belongs to the task of all rows with the same input.
        content = orjson.dumps(params.get("input"), option=orjson.OPT_SORT_KEYS)
        task = int.from_bytes(hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest())
        flags |= UNNUMBERED
    input_tokens, output_tokens = _read_token_counts(row, response)
    return RowFacts(
        kind,
        task,
        read_index(row, ROLLOUT_INDEX_KEY_NAME) or 0,
        read_agent_name(row) or "",
        reward,
        _read_finish_reason(response, cut_off if NG_CUT_OFF_KEY in row else ""),
        tools,
        failure,
        flags,
        input_tokens,
        output_tokens,
        tool_calls,
        length,
        {
            name: _to_float(value)
            for name, value in row.items()
            if type(value) in NUMBER_TYPES
            and name not in (REWARD_KEY_NAME, MASK_SAMPLE_KEY)
            and not name.startswith(BOOKKEEPING_PREFIX)
        },
    )


def read_index(row: Mapping[str, Any], key: str) -> int | None:
    """Return a task or rollout index; None if there is no valid one."""
    value = row.get(key)
    return value if type(value) is int and 0 <= value < _LARGEST_INDEX else None


def read_failure_kind(row: Mapping[str, Any]) -> str:
    """Return why a row has no reward that counts; empty for one that did not fail."""
    named = row.get(NG_FAILURE_CLASS_KEY) or as_mapping(row.get(FAILURE_KEY)).get("kind")
    if not named and has_no_measurement(row):
        named = row.get(FAILURE_KIND_KEY) or MASK_SAMPLE_KEY
    if not named:
        return ""
    return named if isinstance(named, str) else "unknown"


def read_failure_message(row: Mapping[str, Any]) -> str:
    """Return what a failed row says went wrong."""
    message = as_mapping(row.get(FAILURE_KEY)).get("message") or row.get(NG_FAILURE_JUDGE_ERROR_KEY)
    return as_text(message) or as_text(row.get(FAILURE_REASON_KEY)) or ""


def read_outcome(flags: int) -> RowOutcome:
    """Return what became of the rollout whose row has `flags`."""
    if flags & FAILED:
        return "failed"
    if flags & NOT_RUN:
        return "not run"
    if flags & SCORED:
        return "scored"
    return "unscored"


def read_cut_off(row: Mapping[str, Any]) -> str:
    """Return what cut a rollout off (`max_steps`, `length`); empty for one that ended normally."""
    said = row.get(NG_CUT_OFF_KEY)
    if isinstance(said, str):
        return said
    if is_cut_by_length(row.get(RESPONSE_KEY_NAME)):  # a row that another program wrote
        return LENGTH
    return ""


def iter_texts(content: Any) -> Iterator[str]:
    """Yield the texts of a message, a summary or reasoning, which is one string or a list of parts."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for part in content:
            text = part.get("text", part.get("refusal")) if isinstance(part, dict) else part
            if isinstance(text, str):
                yield text


def is_tool_call(item: Mapping[str, Any]) -> bool:
    """Return whether an output item calls a tool of any kind."""
    kind = item.get("type")
    return isinstance(kind, str) and kind.endswith("_call")


def read_tool_name(item: Mapping[str, Any]) -> str:
    """Return the name of the called tool; hosted tools are named by their type."""
    name = item.get("name")
    return name if isinstance(name, str) else str(item.get("type")).removesuffix("_call")


def _detect_kind(row: Mapping[str, Any], failure: str, has_response: bool, has_params: bool) -> Kind:
    if "rollout_infos" in row or "avg_reward" in row:
        return "profile"
    if failure:
        return "failures"
    if has_response or REWARD_KEY_NAME in row:
        return "rollouts"
    if has_params:
        return "inputs" if ROLLOUT_INDEX_KEY_NAME in row else "dataset"
    return "other"


def _read_reward(row: Mapping[str, Any], kind: Kind) -> float:
    for name in MEAN_REWARD_KEYS if kind == "profile" else (REWARD_KEY_NAME,):
        value = row.get(name)
        if type(value) in NUMBER_TYPES:
            return _to_float(value)
    return math.nan


def _read_finish_reason(response: Mapping[str, Any], cut_off: str) -> str:
    """Return how the response ended, in one word: why it is incomplete or was cut off, else its status."""
    reason = as_text(as_mapping(response.get("incomplete_details")).get("reason")) or cut_off
    if not reason and response.get("error"):
        return "error"
    return reason or as_text(response.get("status")) or ""


def _read_token_counts(row: Mapping[str, Any], response: Mapping[str, Any]) -> tuple[int, int]:
    usage = response.get("usage")
    if isinstance(usage, dict):
        return _to_count(usage.get("input_tokens")), _to_count(usage.get("output_tokens"))
    captured = as_mapping(as_mapping(row.get(MODEL_CALL_CAPTURE_KEY)).get("metrics"))
    return _to_count(captured.get("tokens_in")), _to_count(captured.get("tokens_out"))


def _measure_output(items: Any) -> tuple[tuple[str, ...], int, int, int]:
    """Return the tools that a response called, how often, how many characters it wrote, and its flags."""
    tools: dict[str, None] = {}
    calls = length = flags = 0
    for item in as_list(items):
        if not isinstance(item, dict):
            continue
        kind = item.get("type")
        if kind == "function_call_output":
            continue
        if kind == "reasoning":
            length += _count_characters(item.get("summary")) + _count_characters(item.get("content"))
        elif kind == "function_call" or is_tool_call(item):
            tools[read_tool_name(item)] = None
            calls += 1
            length += _count_characters(item.get("arguments"))
        elif item.get("role") == "assistant":
            length += _count_characters(item.get("content"))
        if "generation_token_ids" in item:
            flags |= TOKENS
    return tuple(tools), calls, length, flags


def _count_characters(content: Any) -> int:
    """Count the characters that `iter_texts` would yield."""
    if isinstance(content, str):
        return len(content)
    if not content or not isinstance(content, list):
        return 0
    if len(content) == 1 and isinstance(content[0], dict) and isinstance(text := content[0].get("text"), str):
        return len(text)
    return sum(map(len, iter_texts(content)))


def _to_float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.nan


def _to_count(value: Any) -> int:
    return min(value, _LARGEST_COUNT) if type(value) is int and value >= 0 else -1
