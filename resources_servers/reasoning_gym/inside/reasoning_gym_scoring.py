# SPDX-License-Identifier: Apache-2.0
"""What runs in a sandbox: the scorer of a task, on one answer.

A sandbox loads this module once, with all scorers, and forks for every answer. Some scorers of the library evaluate the
answer as Python or through sympy, which can run any code; here they read literals and mathematics only.
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
"""Tasks whose scorers compare with tuples, which are lists after a trip through JSON."""
# A mixture of tasks; each of its rows names the task that it is of.
_NO_TASKS = ("composite",)


def score(task: str, answer: str | None, entry: dict[str, Any]) -> dict[str, Any]:
    """`{"score"}`; or `{"unknown"}`, if there is no such task, or `{"broken"}`, if its scorer fails on any answer."""
    if task not in _SCORERS:
        return {"unknown": sorted(_SCORERS)}
    if task in _TUPLES:
        entry = {**entry, "metadata": {key: _as_tuples(value) for key, value in entry["metadata"].items()}}
    if task in _SYMBOLIC and answer and "__" in unicodedata.normalize("NFKC", answer):
        return {"score": 0.0}
    scorer = _SCORERS[task]
    try:
        return {"score": _within_range(scorer.score_answer(answer, entry))}
    except Exception as error:  # a scorer may fail in any way on an answer of no known form, which is worth nothing
        reason = f"{type(error).__name__}: {error}"
    try:
        scorer.score_answer(entry["answer"] or "", entry)
    except Exception:  # but one that fails on the right answer as well has no use for the row
        return {"broken": reason}
    return {"score": 0.0}


def _within_range(value: Any) -> float:
    number = float(value)
    return min(max(number, 0.0), 1.0) if math.isfinite(number) else 0.0


def _as_tuples(value: Any) -> Any:
    return tuple(_as_tuples(one) for one in value) if isinstance(value, list) else value


def _all_scorers() -> dict[str, Any]:
    for name in _EVALUATING:
        vars(_module_of(name))["eval"] = ast.literal_eval
    # Where sympy reads text, these are the functions of Python that it may call.
    sympy_parser.builtins = types.SimpleNamespace(**{name: vars(builtins)[name] for name in _MATHEMATICAL})
    return {
        name: dataset(config=config()) for name, (dataset, config) in factory.DATASETS.items() if name not in _NO_TASKS
    }


def _module_of(name: str) -> types.ModuleType:
    return sys.modules[factory.DATASETS[name][0].__module__]


_SCORERS = _all_scorers()
