# SPDX-License-Identifier: Apache-2.0
"""What a finished run tells a plan: how many model calls a rollout made, what they wrote, and how long they took.

Latencies are in the rows of runs with `observability_enabled`; tokens and calls are in all.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nemo_gym._bench.plan.distributions import Distribution, Fixed, Observed, PlanError
from nemo_gym._util.jsonl_files import read_rows
from nemo_gym._util.row_keys import MODEL_CALL_CAPTURE_KEY, RESPONSE_KEY_NAME


@dataclass(frozen=True)
class ObservedRun:
    """The rollouts of a file."""

    turns: Distribution
    tokens: Distribution
    """Tokens that a model call writes."""
    latency: Distribution | None
    """Seconds of a model call; None if the run did not record them."""


def read_observed_run(path: Path) -> ObservedRun:
    """Read a rollouts file; PlanError if it has no rollouts."""
    if not path.is_file():
        raise PlanError(
            f"there is no file {str(path)!r}.\nlooked in: {path.absolute().parent}\n"
            "hint: `--from-rollouts` takes a rollouts file that `gym eval run` wrote"
        )
    turns = list[float]()
    tokens = list[float]()
    latencies_s = list[float]()
    for row in read_rows(path, torn_tail_ok=True):
        response = row.get(RESPONSE_KEY_NAME)
        if not isinstance(response, Mapping):
            continue
        capture = row.get(MODEL_CALL_CAPTURE_KEY)
        calls = capture.get("calls") or [] if isinstance(capture, Mapping) else []
        latencies_s += [call["latency_total_ms"] / 1000 for call in calls if call.get("latency_total_ms")]
        turns.append(len(calls) or _count_calls(response))
        written = (response.get("usage") or {}).get("output_tokens")
        if written is not None:
            tokens.append(written / turns[-1])
    if not turns:
        raise PlanError(
            f"{str(path)!r} holds no rollout with a response.\nread as: JSONL, one rollout a line\n"
            "hint: `--from-rollouts` takes a rollouts file that `gym eval run` wrote"
        )
    return ObservedRun(
        Observed(turns), Observed(tokens) if tokens else Fixed(0), Observed(latencies_s) if latencies_s else None
    )


def _count_calls(response: Mapping[str, Any]) -> int:
    """Return how many model calls a response took: every tool result that went back to the model asked for one more."""
    output = response.get("output") or []
    results = [item for item in output if isinstance(item, Mapping) and item.get("type") == "function_call_output"]
    return 1 + len(results)
