# SPDX-License-Identifier: Apache-2.0
"""Run one rollout: call its agent, retry where that can help, and report how it ended.

Whatever an agent answers, or fails to answer, becomes an Outcome here. This module neither decides how many rollouts
run at once nor writes anything.
"""

import asyncio
import http.client
import math
import random
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, NamedTuple, Protocol

import aiohttp
import orjson
from pydantic import BaseModel, Field, PositiveFloat

from nemo_gym._config.command_flags import Flag
from nemo_gym._rollouts.incidents import copy_incidents
from nemo_gym._rollouts.outcomes import Failed, OnRetry, Outcome, Row, Scored, pick_carried_fields
from nemo_gym._rollouts.own_cancellation import await_without_own_cancellation
from nemo_gym._transport.call_errors import ServerResponseError, quote_body
from nemo_gym._transport.deadline import Deadline
from nemo_gym._transport.failures import (
    HEADER,
    Failure,
    FailureKind,
    build_failure,
    convert_exit,
    decode_failure,
    pick_kind,
)
from nemo_gym._transport.retries import (
    NOT_NOW_RUN_STATUSES,
    RETRIES,
    RetryRule as RetryRule,
    RetryRules,
    bound_pause,
    retry_after_s,
)
from nemo_gym._util.json_depth import MAX_DEPTH, is_too_deep
from nemo_gym._util.known_secrets import describe_error
from nemo_gym._util.masked_rows import has_no_measurement
from nemo_gym._util.row_keys import (
    AGENT_REF_KEY_NAME,
    FAILURE_KIND_KEY,
    FAILURE_REASON_KEY,
    MASK_SAMPLE_KEY,
    NG_FAILURE_CLASS_KEY,
    NG_FAILURE_JUDGE_ERROR_KEY,
    NG_NO_PERSIST_KEY,
    NG_TERMINAL_KEY,
    NG_TOOL_ERRORS_KEY,
    OBSERVED_KEYS,
    REWARD_KEY_NAME,
)
from nemo_gym.errors import GymError, ToolCrashed
from nemo_gym.failure_kinds import JUDGE_FAILED

# Agents that report a failure in their result put the message under one of these.
_MESSAGE_KEYS = (NG_FAILURE_JUDGE_ERROR_KEY, "_ng_failure_message")
_PAUSE_IN_WORDS = re.compile(
    r"(?:retry[-_ ]after|try again in)\W{0,4}(?P<n>\d+(?:\.\d+)?)\s*(?P<unit>ms|milliseconds?|m(?:in(?:ute)?s?)?\b)?",
    re.IGNORECASE,
)


class Reply(Protocol):
    """The part of an HTTP response that is read here."""

    @property
    def status(self) -> int: ...
    @property
    def headers(self) -> Mapping[str, str]: ...
    async def read(self) -> bytes: ...


Post = Callable[[str, Row], Awaitable[Reply]]
"""Sends a row to the `/run` of the named agent."""
AttachTrajectory = Callable[[Row, Row], Any]
"""Puts the trajectory of the row into its result."""
HandOver = Callable[[Row, Row], Awaitable[None]]
"""Gets the tokens in a row's result, if any, ready for a trainer."""


class Observer(Protocol):
    """Adds to an outcome what was observed about the rollout besides its result."""

    async def begin(self, row: Row) -> None:
        """Prepare for an attempt at `row`."""

    async def complete(self, outcome: Outcome) -> Outcome:
        """Return `outcome` with what was observed."""

    async def note_recorded(self, outcome: Outcome) -> str | None:
        """Note that `outcome` was recorded; return the reason to give the run up, if there is one now."""

    async def aclose(self) -> None:
        """Close what was opened for the collection."""


class PlaySettings(BaseModel, frozen=True):
    """How the rollouts of a run are played, in this process and by its workers."""

    rollout_timeout_seconds: Annotated[PositiveFloat | None, Flag("--timeout")] = Field(
        default=None, description="Deadline per rollout, in seconds."
    )
    fail_on_tool_error: Annotated[bool, Flag()] = Field(
        default=False, description="Count a rollout in which a tool crashed as failed, whatever its reward."
    )
    quiet: Annotated[bool, Flag()] = Field(default=False, description="Show no progress.")


class _Ending(NamedTuple):
    """How one attempt ended."""

    failure: Failure | None
    result: Row | None = None
    headers: Mapping[str, str] | None = None
    error_reply: ServerResponseError | None = None


class Player:
    """Runs rollouts. `timeout_s` bounds a whole rollout, including all attempts and the pauses between them."""

    def __init__(
        self,
        post: Post,
        *,
        timeout_s: float | None = None,
        retries: RetryRules | None = None,
        fail_on_tool_error: bool = False,
        observer: Observer | None = None,
        attach_trajectory: AttachTrajectory | None = None,
        hand_over: HandOver | None = None,
        explain_lateness: Callable[[float], str | None] | None = None,
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
        rng: random.Random | None = None,
    ) -> None:
        """With `fail_on_tool_error`, a rollout in which a tool crashed is a failure, whatever its reward. Without an
        `observer`, `attach_trajectory` gets the results that hold the agents' own observations. `hand_over` gets every
        result at the end. `explain_lateness` says what, if anything, has delayed everything in the given number of
        seconds.
        """
        self._post = post
        self._timeout_s = timeout_s
        self._retries = retries or RetryRules()
        self._fail_on_tool_error = fail_on_tool_error
        self._observer = observer
        self._attach_trajectory = attach_trajectory
        self._hand_over = hand_over
        self._explain_lateness = explain_lateness
        self._sleep = sleep
        self._rng = rng or random.Random()

    async def play(self, row: Row, on_retry: OnRetry | None = None) -> Outcome:
        """Run `row` until it is scored, cannot be, or the deadline passes; `on_retry` is told why it is retried."""
        started = time.monotonic()
        attempts = 0
        ending = _Ending(None)
        ends_at = math.inf
        deadline = None
        if self._timeout_s is not None:
            ends_at = asyncio.get_running_loop().time() + self._timeout_s
            deadline = Deadline(ends_at)
        try:
            while True:
                attempts += 1
                ending = await self._attempt(row)
                pause_s = self._choose_pause(ending, attempts, ends_at)
                if pause_s is None:
                    break
                assert ending.failure is not None
                if on_retry is not None:
                    on_retry(ending.failure)
                with RETRIES.count(ending.failure.cause or ending.failure.kind):
                    await self._sleep(pause_s)
        except asyncio.CancelledError:
            if deadline is None or not deadline.has_cancelled():
                raise
            ending = _Ending(self._explain_timeout(row, attempts, ending.failure))
        finally:
            if deadline is not None:
                deadline.end()
        outcome = _build_outcome(row, ending, attempts, time.monotonic() - started)
        if self._observer is not None:
            outcome = await self._observer.complete(outcome)
        elif self._attach_trajectory is not None and outcome.result and not OBSERVED_KEYS.isdisjoint(outcome.result):
            self._attach_trajectory(row, outcome.result)
        if self._hand_over is not None and outcome.result:
            await self._hand_over(row, outcome.result)
        return outcome

    async def _attempt(self, row: Row) -> _Ending:
        boundary = name_boundary(row)
        try:
            if self._observer is not None:
                await self._observer.begin(row)
            reply = await await_without_own_cancellation(self._post(row[AGENT_REF_KEY_NAME]["name"], row))
            body = await reply.read()
        except BaseException as raised:
            error = convert_exit(raised)
            if isinstance(error, aiohttp.ClientError) and not isinstance(error, GymError):
                # The connection broke while the reply was being read.
                return _Ending(Failure("agent", boundary, True, f"the reply broke off: {describe_error(error)}"))
            return _Ending(build_failure(error, "agent", boundary))
        if reply.status >= 400:
            reason = http.client.responses.get(reply.status, "")
            first_cause = reply.headers.get(HEADER, "")
            error_reply = ServerResponseError("POST", boundary, reply.status, reason, body, first_cause)
            return _Ending(_explain_status(reply, body, boundary), None, reply.headers, error_reply)
        try:
            result = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            return _Ending(Failure("agent", boundary, False, f"not JSON ({error}): {quote_body(body, 200)!r}"))
        if not isinstance(result, dict):
            return _Ending(Failure("agent", boundary, False, f"not a JSON object: {quote_body(body, 200)!r}"))
        if is_too_deep(body, result):
            return _Ending(Failure("agent", boundary, False, f"the result is nested more than {MAX_DEPTH} levels deep"))
        copy_incidents(result)
        failure = _read_reported_failure(result, boundary) or check_reward(result)
        if failure is None and self._fail_on_tool_error and NG_TOOL_ERRORS_KEY in result:
            failure = build_failure(ToolCrashed(**result[NG_TOOL_ERRORS_KEY][0]), "agent", boundary)
        return _Ending(failure, result)

    def _choose_pause(self, ending: _Ending, attempts: int, ends_at: float) -> float | None:
        """Return how many seconds to wait before the next attempt; None if there should be none."""
        failure = ending.failure
        # An agent that returns a result has run the rollout to its end.
        if failure is None or not failure.retryable or ending.result is not None:
            return None
        rule = self._retries.rule(failure.kind)
        if attempts >= rule.attempts:
            return None
        asked_s = find_requested_pause(ending.headers or {}, failure.message)
        if asked_s is None:
            pause_s = rule.draw_pause_s(attempts, self._rng)
        else:  # jitter: rollouts that were told the same must not come back together
            pause_s = asked_s + self._rng.uniform(0.0, rule.first_pause_s)
        return pause_s if pause_s < ends_at - asyncio.get_running_loop().time() else None

    def _explain_timeout(self, row: Row, attempts: int, before: Failure | None) -> Failure:
        assert self._timeout_s is not None
        message = f"no result within {self._timeout_s:g} s, in attempt {attempts}"
        if self._explain_lateness is not None and (reason := self._explain_lateness(self._timeout_s)):
            message += f"; {reason}"
        if before is not None:
            message += f"; the last failure before: {before.kind}: {before.message}"
        return Failure("timeout", name_boundary(row), True, message)


def name_boundary(row: Row) -> str:
    """Return the boundary that failures name for the call that runs `row`."""
    agent = row.get(AGENT_REF_KEY_NAME)
    if isinstance(agent, dict):
        return f"{agent.get('name', '')}/run"
    return "/run"  # a row that names no agent fails too, and that failure must not get lost for lack of a name


def find_requested_pause(headers: Mapping[str, str], message: str) -> float | None:
    """Return how many seconds the other side asks us to wait: from a header, or from the message if there is none."""
    in_header = retry_after_s(headers, datetime.now(UTC))
    if in_header is not None:
        return in_header
    found = _PAUSE_IN_WORDS.search(message)
    if found is None:
        return None
    pause_s = float(found["n"])
    unit = (found["unit"] or "").lower()
    if unit.startswith(("ms", "milli")):
        pause_s *= 0.001
    elif unit:
        pause_s *= 60.0
    return bound_pause(pause_s)


def check_reward(result: Row, boundary: str = "/verify") -> Failure | None:
    """Return the failure of a result whose reward is not a number; None if it is one."""
    if REWARD_KEY_NAME not in result:
        return Failure("verifier", boundary, False, "the result has no `reward`")
    reward = result[REWARD_KEY_NAME]
    if isinstance(reward, int) or (isinstance(reward, float) and math.isfinite(reward)):
        return None
    if reward is None:
        # JSON has no NaN: a NaN also arrives as null.
        return Failure(
            "verifier", boundary, False, "the `reward` is null (None, NaN or infinite where it was computed)"
        )
    return Failure("verifier", boundary, False, f"the `reward` is not a finite number: {repr(reward)[:200]}")


def _build_outcome(row: Row, ending: _Ending, attempts: int, elapsed_s: float) -> Outcome:
    """Turn the end of the last attempt into an outcome."""
    failure, result, _, error_reply = ending
    if result is not None:
        result.update(pick_carried_fields(row))
    if failure is None:
        assert result is not None
        return Scored(row, result, attempts, elapsed_s)
    said = result or {}
    terminal = bool(said.get(NG_TERMINAL_KEY))
    persist = not said.get(NG_NO_PERSIST_KEY)
    return Failed(row, failure, attempts, elapsed_s, result, terminal, persist, error_reply)


def _read_reported_failure(result: Row, boundary: str) -> Failure | None:
    """Return the failure that a result reports about itself."""
    failure_class = result.get(NG_FAILURE_CLASS_KEY)
    if not failure_class and not result.get(NG_NO_PERSIST_KEY):
        return _read_masked_reward(result)
    message = str(failure_class or "the agent asks that this result be kept nowhere")
    words = next((str(result[key]) for key in _MESSAGE_KEYS if result.get(key)), "")
    if words:
        message += f": {words}"
    kind: FailureKind = "verifier"
    if failure_class != JUDGE_FAILED:
        kind = pick_kind(str(failure_class), "agent")
    return Failure(kind, boundary, not result.get(NG_TERMINAL_KEY), message)


def _read_masked_reward(result: Row) -> Failure | None:
    """Return the failure of a result whose verifier says that its reward is no measurement."""
    if not has_no_measurement(result):
        return None
    named = str(result.get(FAILURE_KIND_KEY) or MASK_SAMPLE_KEY)
    reason = str(result.get(FAILURE_REASON_KEY) or "the verifier says that this reward is no measurement")
    return Failure(pick_kind(named, "verifier"), "/verify", not result.get(NG_TERMINAL_KEY), f"{named}: {reason}")


def _explain_status(reply: Reply, body: bytes, boundary: str) -> Failure:
    first_cause = decode_failure(reply.headers.get(HEADER))
    if first_cause is not None:
        return first_cause
    message = f"{boundary} answered {reply.status}: {_read_detail(body)}"
    if reply.status == 422:
        message += "\nhint: the row does not fit the run request of this agent; check the row and its `agent_ref`"
    return Failure("agent", boundary, reply.status in NOT_NOW_RUN_STATUSES, message, str(reply.status))


def _read_detail(body: bytes) -> str:
    """Return what an error body says: invalid fields by name, anything else unchanged."""
    try:
        problems = orjson.loads(body)["detail"]
        return "; ".join(f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in problems)
    except (ValueError, KeyError, TypeError):
        return quote_body(body)
