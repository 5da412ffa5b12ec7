# SPDX-License-Identifier: Apache-2.0
"""Score one answer with its task's scorer. This runs in a sandbox.

A sandbox loads this module, with all scorers, once and forks for every answer. Some scorers of the library evaluate the
answer as Python or with sympy, which can run any code; here they only accept literals and mathematics.
"""

import ast
import builtins
import math
import sys
import types
import unicodedata
from typing import Any

from reasoning_gym import factory
from sympy.parsing import sympy_parser

_EVALUATING = ("binary_matrix", "n_queens", "spiral_matrix", "string_insertion")
_SYMBOLIC = ("countdown", "intermediate_integration", "polynomial_multiplication", "puzzle24", "simple_integration")
_MATHEMATICAL = ("abs", "divmod", "max", "min", "pow", "round", "sum")
_TUPLES = ("arc_agi", "rearc")
"""Tasks whose scorers compare with tuples, which JSON turns into lists."""
# Mixtures of tasks; each of their rows names its own task.
_MIXTURES = ("composite",)


def score(task: str, answer: str | None, entry: dict[str, Any]) -> dict[str, Any]:
    """Return `{"score"}`; `{"unknown"}` if there is no such task; `{"broken"}` if the scorer fails on any answer."""
    if task not in _SCORERS:
        return {"unknown": sorted(_SCORERS)}
    if task in _TUPLES:
        entry = {**entry, "metadata": {key: _to_tuples(value) for key, value in entry["metadata"].items()}}
    if task in _SYMBOLIC and answer and "__" in unicodedata.normalize("NFKC", answer):
        return {"score": 0.0}
    scorer = _SCORERS[task]
    try:
        return {"score": _clamp(scorer.score_answer(answer, entry))}
    except Exception as error:  # a scorer may fail in any way on a malformed answer, which scores 0
        reason = f"{type(error).__name__}: {error}"
    try:
        scorer.score_answer(entry["answer"] or "", entry)
    except Exception:  # but if it fails on the right answer too, the row is broken
        return {"broken": reason}
    return {"score": 0.0}


def _clamp(value: Any) -> float:
    number = float(value)
    return min(max(number, 0.0), 1.0) if math.isfinite(number) else 0.0


def _to_tuples(value: Any) -> Any:
    return tuple(_to_tuples(one) for one in value) if isinstance(value, list) else value


def _load_scorers() -> dict[str, Any]:
    for name in _EVALUATING:
        vars(_get_module(name))["eval"] = ast.literal_eval
    # When sympy parses text, it may only call these Python functions.
    sympy_parser.builtins = types.SimpleNamespace(**{name: vars(builtins)[name] for name in _MATHEMATICAL})
    return {
        name: dataset(config=config()) for name, (dataset, config) in factory.DATASETS.items() if name not in _MIXTURES
    }


def _get_module(name: str) -> types.ModuleType:
    return sys.modules[factory.DATASETS[name][0].__module__]


_SCORERS = _load_scorers()
