# SPDX-License-Identifier: Apache-2.0
"""Call a judge model from `verify`, and handle rollouts whose judge failed.

An answer that could not be judged is not a wrong answer: it is reported as a failure that can be judged again later
(`gym eval reverify --judge-failed-only`). Each environment has its own prompts and labels.
"""

import asyncio
import functools
import inspect
import logging
import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel

from nemo_gym import grading
from nemo_gym._servers.http.guard import json_reply
from nemo_gym._util.json_shapes import as_mapping
from nemo_gym._util.row_keys import (
    FAILURE_KIND_KEY,
    FAILURE_REASON_KEY,
    MASK_SAMPLE_KEY,
    NG_FAILURE_CLASS_KEY,
    NG_FAILURE_JUDGE_ERROR_KEY,
    REWARD_KEY_NAME,
)
from nemo_gym._util.signatures import resolve_signature
from nemo_gym._wire.schema.format_errors import explain_unanswered_response
from nemo_gym.errors import JudgeError as JudgeError
from nemo_gym.failure_kinds import JUDGE_FAILED as JUDGE_FAILED
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.server_utils import ServerClient, get_response_json, raise_for_status

LOG = logging.getLogger(__name__)

_QUOTED_CHARS = 200
_LONGEST_REASON = 2000

ModelT = TypeVar("ModelT", bound=BaseModel)
T = TypeVar("T")


class JudgeEvaluation(BaseModel):
    """One call to a judge: what it was asked, and what it answered."""

    responses_create_params: NeMoGymResponseCreateParamsNonStreaming
    response: NeMoGymResponse


class NoVerdict(JudgeError):
    """A judge replied, but without a verdict: the answer was not judged."""

    def __init__(self, message: str, evaluation: JudgeEvaluation) -> None:
        super().__init__(message, evaluation)
        self.message = message
        self.evaluation = evaluation

    def __str__(self) -> str:
        return self.message


async def ask_for_verdict(
    server_client: ServerClient,
    *,
    server_name: str,
    messages: Sequence[Mapping[str, Any]],
    responses_create_params: NeMoGymResponseCreateParamsNonStreaming,
    labels: Collection[str],
) -> tuple[str, JudgeEvaluation]:
    """Ask a judge as `ask_judge` does; return which of `labels` is its verdict, and the call. NoVerdict: none is.

    A judge that cannot decide has not said no: the rollout becomes a failure, and the run tries it again.
    """
    evaluation = await ask_judge(
        server_client, server_name=server_name, messages=messages, responses_create_params=responses_create_params
    )
    label = verdict_label(evaluation.response, labels)
    if label is None:
        said = grading.strip_thinking(grading.assistant_text(evaluation.response))
        raise NoVerdict(
            f"judge {server_name!r} gave no verdict: its reply has none of {', '.join(map(repr, labels))}\n"
            f"it ends: {said[-_QUOTED_CHARS:]!r}\n"
            "hint: does its prompt ask for these labels?",
            evaluation,
        )
    return label, evaluation


async def ask_judge(
    server_client: ServerClient,
    *,
    server_name: str,
    messages: Sequence[Mapping[str, Any]],
    responses_create_params: NeMoGymResponseCreateParamsNonStreaming,
) -> JudgeEvaluation:
    """Ask a judge model server; raise JudgeError if there is no reply, NoVerdict if it is cut off or without text.

    Thinking is not text. `responses_create_params` are the environment's parameters for its judge; their input is
    replaced by `messages`.
    """
    params = NeMoGymResponseCreateParamsNonStreaming.model_validate(
        {**dict(responses_create_params), "input": messages}
    )
    response = await call_judge(
        server_client, server_name=server_name, url_path="/v1/responses", json=params, response_model=NeMoGymResponse
    )
    evaluation = JudgeEvaluation(responses_create_params=params, response=response)
    if reason := explain_unanswered_response(response):
        raise NoVerdict(f"judge {server_name!r} gave no answer: {reason}", evaluation)
    is_cut_off = response.status == "incomplete"
    if is_cut_off or not grading.strip_thinking(grading.assistant_text(response)):
        raise NoVerdict(
            f"judge {server_name!r} {'was cut off' if is_cut_off else 'said nothing'}\n"
            "hint: is max_output_tokens in judge_responses_create_params enough for it to finish thinking?",
            evaluation,
        )
    return evaluation


def verdict_label(response: Any, labels: Collection[str]) -> str | None:
    """Return whichever of `labels` comes last in a judge's reply, ignoring its thinking; None if there is none."""
    return next(reversed(find_labels(response, labels)), None)


def find_labels(response: Any, labels: Collection[str]) -> list[str]:
    """Return all `labels` in a judge's reply, in order, ignoring its thinking.

    Labels are found from left to right and as wholes: of several that begin at one place the longest counts, so
    `INCORRECT` is not `CORRECT`, and neither is `UNCORRECTED`.
    """
    longest_first = sorted(labels, key=len, reverse=True)
    pattern = re.compile("|".join(f"({_whole(label)})" for label in longest_first))
    text = grading.strip_thinking(grading.assistant_text(response))
    return [longest_first[match.lastindex - 1] for match in pattern.finditer(text) if match.lastindex]


def _whole(label: str) -> str:
    """Return a pattern for `label` that matches neither a part of a word nor only a part of a label in bold."""
    pattern = r"[\s*_]+".join(map(re.escape, label.split()))
    before = r"(?<![^\W_])(?<![^\W_]-)" if label[:1].isalnum() else ""
    after = r"(?!-?[^\W_])" if label[-1:].isalnum() else ""
    return f"{before}{pattern}{after}"


async def call_judge(
    server_client: ServerClient, *, server_name: str, url_path: str, json: Any, response_model: type[ModelT]
) -> ModelT:
    """POST `json` to a judge model server; raise JudgeError if anything prevents a valid reply.

    A valid reply may be without an answer (no choices, no output, status `incomplete`); the caller decides what it is
    worth.
    """
    try:
        response = await server_client.post(server_name=server_name, url_path=url_path, json=json)
        await raise_for_status(response)
        return response_model.model_validate(await get_response_json(response))
    except JudgeError:
        raise
    except Exception as error:
        raise JudgeError(f"judge {server_name!r} gave no usable reply at {url_path}: {_describe(error)}") from error


async def reraise_judge_errors(coro: Awaitable[T]) -> T:
    """Await `coro`, a judge call made in any other way, and raise JudgeError if it fails."""
    try:
        return await coro
    except JudgeError:
        raise
    except Exception as error:
        raise JudgeError(f"the judge call failed: {_describe(error)}") from error


def judge_failsafe(fn: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    """Make a `verify` handler answer 200 when `fn` raises JudgeError, so that the rollout is kept and judged later.

    The reply is the request with a masked reward 0, `_ng_failure_class` "judge_failed" and the error. `fn` may take
    `body`, `request` and `response` in any order; FastAPI sees the same signature as before.
    """
    call = fn if inspect.iscoroutinefunction(fn) else functools.partial(asyncio.to_thread, fn)
    signature = resolve_signature(fn)

    @functools.wraps(fn)
    async def guarded(*args: Any, **kwargs: Any) -> Any:
        try:
            return await call(*args, **kwargs)
        except JudgeError as error:
            # Where a judge was asked that did not decide leads nowhere.
            trace = None if isinstance(error, NoVerdict) else error
            LOG.warning("an answer could not be judged: %s", error, exc_info=trace)
            # Log-probs may be -inf, which plain JSON cannot hold; this writes null.
            return json_reply(200, _build_failure(_find_body(signature, args, kwargs), error))

    guarded.__signature__ = signature  # type: ignore[attr-defined]
    return guarded


def _build_failure(body: BaseModel | None, error: JudgeError) -> dict[str, Any]:
    row = body.model_dump(mode="json") if body is not None else {}
    reason = str(error)[:_LONGEST_REASON]
    return {
        **row,
        REWARD_KEY_NAME: 0.0,
        MASK_SAMPLE_KEY: True,
        FAILURE_KIND_KEY: JUDGE_FAILED,
        FAILURE_REASON_KEY: reason,
        # Where trainers looked for the mask before it had a field of its own.
        "instance_config": {**as_mapping(row.get("instance_config")), MASK_SAMPLE_KEY: True},
        NG_FAILURE_CLASS_KEY: JUDGE_FAILED,
        NG_FAILURE_JUDGE_ERROR_KEY: reason,
    }


def _find_body(signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> BaseModel | None:
    """Return the request among the arguments, skipping `self`: servers are models too."""
    arguments = signature.bind_partial(*args, **kwargs).arguments
    candidates = [arguments.get("body"), *(value for name, value in arguments.items() if name != "self")]
    return next((value for value in candidates if isinstance(value, BaseModel)), None)


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
