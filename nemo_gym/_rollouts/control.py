# SPDX-License-Identifier: Apache-2.0
"""How a run is stopped from outside, and when it stops itself because too much fails.

Signal handlers are installed elsewhere; they, or another thread, may call the methods here.
"""

import asyncio
import re
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Literal, NamedTuple

from nemo_gym._rollouts.outcomes import Failed, Outcome
from nemo_gym._transport.failures import Failure

_CAUSE_SHOWN = 400
_FIRST_CALLS_S = 30.0
# This many refusals in a row end a run, before and after the first scored rollout.
_FIRST_REFUSALS = 3
_LATER_REFUSALS = 10
_VARYING = re.compile(r"\b(?:0x)?[0-9a-fA-F]*\d[0-9a-fA-F]*\b|\b\d+(?:\.\d+)?")


class RunControl:
    """The first stop request stops new rollouts; the second also cancels the running ones."""

    def __init__(self) -> None:
        # Appending is atomic, so a signal handler and another thread may request a stop at the same moment.
        self._requests = list[None]()
        self._reason: str | None = None
        self._watcher: tuple[asyncio.AbstractEventLoop, Callable[[], None]] | None = None

    def request_stop(self) -> Literal["stopping", "cancelling"]:
        """Stop dispatching or, on a second request, cancel the running rollouts; return which of the two applies."""
        self._requests.append(None)
        self._notify_watcher()
        return "cancelling" if self.is_cancelling else "stopping"

    def abort(self, reason: str) -> None:
        """Give up: start nothing more and cancel the running rollouts. The first reason counts."""
        if self._reason is None:
            self._reason = reason
        self._notify_watcher()

    @property
    def is_stopping(self) -> bool:
        """Whether no more rollouts should start."""
        return bool(self._requests) or self._reason is not None

    @property
    def is_cancelling(self) -> bool:
        """Whether running rollouts should be cancelled."""
        return len(self._requests) > 1 or self._reason is not None

    @property
    def abort_reason(self) -> str | None:
        """Why the run was given up, if it was."""
        return self._reason

    @contextmanager
    def call_on_change(self, on_change: Callable[[], None]) -> Iterator[None]:
        """Within the context, call `on_change` in the running loop at every change, from whichever thread it comes."""
        assert self._watcher is None, "one run at a time"
        self._watcher = (asyncio.get_running_loop(), on_change)
        try:
            yield
        finally:
            self._watcher = None

    def _notify_watcher(self) -> None:
        if self._watcher is not None:
            loop, on_change = self._watcher
            with suppress(RuntimeError):  # the loop was closed at this moment: nothing is running any more
                loop.call_soon_threadsafe(on_change)


class _Cause(NamedTuple):
    """What failures have in common, without the numbers and ids that differ."""

    kind: str
    boundary: str
    gist: str


class FailureRateGuard:
    """Detects when too many recent rollouts failed. Cancelled and unrecorded ones do not count."""

    def __init__(self, max_rate: float, min_samples: int = 50, window: int = 500) -> None:
        assert 0.0 <= max_rate <= 1.0, f"a rate lies between 0 and 1, not {max_rate}"
        self._max_rate = max_rate
        self._min_samples = min_samples
        self._latest = deque[_Cause | None](maxlen=max(window, min_samples))
        self._failed = 0
        self._examples = dict[_Cause, str]()

    def note(self, outcome: Outcome) -> str | None:
        """Count `outcome`; return the reason to give up, if there is one now."""
        if isinstance(outcome, Failed):
            if outcome.failure.kind == "cancelled" or not outcome.persist:
                return None
            self._add(self._classify(outcome.failure))
        else:
            self._add(None)
        counted = len(self._latest)
        if counted < self._min_samples or self._failed <= self._max_rate * counted:
            return None
        return self._describe_failures()

    def _add(self, cause: _Cause | None) -> None:
        if len(self._latest) == self._latest.maxlen:
            self._failed -= self._latest[0] is not None
        self._latest.append(cause)
        self._failed += cause is not None

    def _classify(self, failure: Failure) -> _Cause:
        first_line = failure.message.partition("\n")[0][:_CAUSE_SHOWN]
        cause = _Cause(failure.kind, _VARYING.sub("#", failure.boundary), _VARYING.sub("#", first_line))
        if cause not in self._examples:
            if len(self._examples) > 2 * (self._latest.maxlen or 0):
                current = set(self._latest)
                self._examples = {known: text for known, text in self._examples.items() if known in current}
            self._examples[cause] = f"{failure.kind} at {failure.boundary}: {failure.message[:_CAUSE_SHOWN]}"
        return cause

    def _describe_failures(self) -> str:
        counted = len(self._latest)
        causes = Counter(cause for cause in self._latest if cause is not None)
        (most_common, times), *_ = causes.most_common(1)
        lines = [
            f"{self._failed} of the last {counted} rollouts failed ({self._failed / counted:.0%}); "
            f"at most {self._max_rate:.0%} may.",
            f"most common cause, {times} times: {self._examples[most_common]}",
        ]
        kinds = Counter[str]()
        for cause, count in causes.items():
            kinds[cause.kind] += count
        lines.append("failures by kind: " + ", ".join(f"{kind} {count}" for kind, count in kinds.most_common()))
        lines.append("hint: remove the cause, then run the rest with `--resume`; `--max-failure-rate` allows more")
        return "\n".join(lines)


class EndpointGuard:
    """Detects that no rollout can succeed: the model refuses every call, or nothing has ever answered at its URL."""

    def __init__(
        self, planned: int, *, check_reachable: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`check_reachable` means that nobody has checked yet whether the endpoint answers."""
        self._planned = planned
        self._has_scored = False
        self._refusals = self._absences = 0
        self._clock = clock
        self._ends_s = 0.0
        if check_reachable:
            self._ends_s = clock() + _FIRST_CALLS_S

    def note(self, outcome: Outcome) -> str | None:
        """Count a finished rollout; return the reason to give up, if there is one now."""
        if isinstance(outcome, Failed):
            return self.note_failure(outcome.failure)
        self._has_scored = True
        self._refusals = 0
        self._ends_s = 0.0
        return None

    def note_failure(self, failure: Failure) -> str | None:
        """Count a failed attempt; return the reason to give up, if there is one now."""
        if failure.kind == "cancelled":
            return None
        self._absences += failure.is_unreachable
        self._refusals += 1
        if not failure.is_refused:
            self._refusals = 0
        most = _LATER_REFUSALS if self._has_scored else _FIRST_REFUSALS
        if self._refusals >= min(self._planned, most):
            return self._describe_refusal(failure)
        if (
            failure.is_unreachable
            and self._absences >= min(self._planned, _FIRST_REFUSALS)
            and self._clock() < self._ends_s
        ):
            return (
                f"no call has reached the model.\n{failure.message[:_CAUSE_SHOWN]}\n"
                "hint: then run the same command again with `--resume`; `--wait-for-model SECONDS` waits for a model "
                "that is still loading"
            )
        return None

    def _describe_refusal(self, failure: Failure) -> str:
        if failure.cause == "404":
            what = "has no such model, or is at another URL"
            hint = (
                "check the URL (`--model-url`) and the name of the model (`--model`). With the URL corrected, run the "
                "same command again with `--resume`; another model is another run, which begins without it"
            )
        else:
            what = "refuses this key"
            hint = (
                "correct the key (`--model-api-key`, or `policy_api_key` in env.yaml), and check that it may use this "
                "model; then run the same command again with `--resume`"
            )
        calls = "1 call was" if self._refusals == 1 else f"{self._refusals} calls in a row were"
        return (
            f"the model's endpoint {what}: {calls} answered {failure.cause}.\n"
            f"{failure.message[:_CAUSE_SHOWN]}\nhint: {hint}"
        )
