# SPDX-License-Identifier: Apache-2.0
"""Numbers over the model calls of one rollout."""

from collections.abc import Sequence
from typing import Any

from nemo_gym._capture.records import ModelCallRecord

_SUMS = ("tokens_in", "tokens_out", "tokens_reasoning", "tokens_total", "cached_tokens", "latency_total_ms")


def aggregate_model_call_records(records: Sequence[ModelCallRecord]) -> dict[str, Any]:
    """Return the number of calls and what they took together. A number that no call reported is None, not zero."""
    metrics: dict[str, Any] = {"num_calls": len(records)}
    for name in _SUMS:
        known = [value for record in records if (value := getattr(record, name)) is not None]
        metrics[name] = sum(known) if known else None
    return metrics
