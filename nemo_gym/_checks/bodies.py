# SPDX-License-Identifier: Apache-2.0
"""What servers are sent to see whether they keep to the contract: bodies that are none, and odd replies of models."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from nemo_gym._checks.play import Answer, Turn, function_call, message
from nemo_gym._wire.params import NeMoGymResponseCreateParamsNonStreaming

NO_BODIES: tuple[Any, ...] = (b"{", b"", b"\xff\xfe", [], "text", None)
NO_RESPONSES: tuple[dict[str, Any], ...] = (
    {},
    {"response": None},
    {"response": "text"},
    {"response": {}},
    {"response": {"output": "text"}},
    {"responses_create_params": None},
)


def odd_replies(tools: Sequence[str]) -> dict[str, list[Turn]]:
    """Outputs that real models give."""
    tool = tools[0] if tools else "no_such_tool"
    refusal = {**message(""), "content": [{"type": "refusal", "refusal": "I cannot help with that."}]}
    thinking = {"type": "reasoning", "id": "rs_0", "summary": [{"type": "summary_text", "text": "Hm."}]}
    return {
        "white space": [" \n\t "],
        "a refusal": [refusal],
        "thinking only": [thinking],
        "unclosed brackets": ["\\boxed{ <answer> ``` [ ( {"],
        "characters of all kinds": ["\u0000\u202e\U0001f600 \\boxed{\u0663} ∞ NaN -1e999"],
        "very long text": ["a{" * 50_000],
        "a tool call that is no JSON": [function_call(tool, "{not json")],
        "a tool call that is no object": [function_call(tool, "[1]")],
        "a call of an unknown tool": [function_call("no_such_tool", "{}")],
    }


def row_problem(row: Mapping[str, Any]) -> str | None:
    """Why `row` is no task."""
    params = row.get("responses_create_params")
    if not isinstance(params, Mapping):
        return "it has no `responses_create_params`"
    if params.get("input") is None:
        return "`responses_create_params` has no `input`"
    try:
        NeMoGymResponseCreateParamsNonStreaming.model_validate(params)
    except ValidationError as error:
        first, *_ = error.errors(include_url=False)
        return f"responses_create_params.{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return None


def routes_of(openapi: Answer) -> frozenset[str]:
    """The paths that a server answers POST requests at."""
    body = openapi.body
    paths = body.get("paths") if isinstance(body, dict) else None
    return frozenset(path for path, methods in (paths or {}).items() if "post" in methods)
