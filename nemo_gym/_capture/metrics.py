# SPDX-License-Identifier: Apache-2.0
"""Numbers over the model calls of one rollout, and the block that carries them into its result row."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from nemo_gym._capture.payloads import usage_of
from nemo_gym._capture.records import ModelCallRecord, RolloutCapture

MODEL_CALL_CAPTURE_KEY = "ng_model_call_capture"
_USAGE_NAMES = ("input_tokens", "output_tokens", "total_tokens", "cached_tokens", "reasoning_tokens")


def aggregate(records: Sequence[ModelCallRecord]) -> dict[str, Any]:
    """Counts, latencies and token totals. A number that no call reported is None, not zero."""
    usages = [usage_of(record.response) for record in records]
    latencies = [record.latency_ms for record in records if record.latency_ms is not None]
    firsts = [record.latency_ttft_ms for record in records if record.latency_ttft_ms is not None]
    return {
        "num_model_calls": len(records),
        "num_failed_model_calls": sum(record.failed for record in records),
        "error_categories": dict(Counter(record.error_category for record in records if record.error_category)),
        "latency_ms_total": sum(latencies) if latencies else None,
        "latency_ms_mean": _mean(latencies),
        "latency_ms_max": max(latencies, default=None),
        "latency_ttft_ms_mean": _mean(firsts),
        **{name: _total(usage.get(name) for usage in usages) for name in _USAGE_NAMES},
    }


def result_block(capture: RolloutCapture) -> dict[str, Any]:
    """What a result row holds under `ng_model_call_capture`."""
    return {
        "rollout_id": capture.rollout_id,
        "metrics": aggregate(capture.calls),
        "calls": [dict(call) for call in capture.calls],
        "gaps": [gap.as_dict() for gap in capture.gaps],
    }


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _total(counts: Iterable[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None
