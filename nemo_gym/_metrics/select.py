# SPDX-License-Identifier: Apache-2.0
"""Pick the metrics worth showing first out of all that were computed."""

import re
from collections.abc import Collection, Mapping
from typing import Any

from nemo_gym._metrics.pass_majority import AVG_SAMPLE_STD_DEV, STD_DEV_ACROSS_RUNS, STD_ERR_ACROSS_RUNS

_SPREADS = tuple(f"/{name}" for name in (STD_DEV_ACROSS_RUNS, STD_ERR_ACROSS_RUNS, AVG_SAMPLE_STD_DEV))


def means(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Every `mean/<field>`."""
    return {name: value for name, value in metrics.items() if name.startswith("mean/")}


def highest_k(
    metrics: Mapping[str, Any],
    pattern: str,
    score_names: Collection[str] | None = None,
    exclude_names: Collection[str] | None = None,
) -> dict[str, Any]:
    """The metrics `<pattern>/<score>` of the highest k that occurs.

    Without `score_names`, all scores but not their spreads across runs or samples; these can be asked for by name, as
    in `"accuracy/std_dev_across_runs"`.
    """
    before, placeholder, after = pattern.partition("{k}")
    if not placeholder:
        raise ValueError(f"the pattern {pattern!r} has no place for k.\nhint: write it as in 'pass@{{k}}'")
    key = re.compile(rf"{re.escape(before)}(\d+){re.escape(after)}/(.+)", re.DOTALL)
    found: dict[int, dict[str, Any]] = {}
    for name, value in metrics.items():
        match = key.fullmatch(name)
        if match and _wanted(match[2], score_names, exclude_names or ()):
            found.setdefault(int(match[1]), {})[name] = value
    return found[max(found)] if found else {}


def _wanted(score: str, names: Collection[str] | None, excluded: Collection[str]) -> bool:
    if score in excluded:
        return False
    return score in names if names is not None else not score.endswith(_SPREADS)
