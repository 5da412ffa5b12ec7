# SPDX-License-Identifier: Apache-2.0
"""Compare the rollouts files of runs: read their rewards and what their tasks were, and show the result as a table."""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import orjson

from nemo_gym._results.metrics.paired_comparison import Comparison, RunRewards, compare_rewards
from nemo_gym._results.metrics.rollout_metrics import ResultsError, group_by_task, list_rewards
from nemo_gym._results.result_rows import format_scored, read_results, read_rollouts
from nemo_gym._rollouts.run_paths import RunPaths
from nemo_gym._util.row_keys import BOOKKEEPING_PREFIX, PLAYER_KEYS

SCHEMA = 1
TEST_NAMES = {"mcnemar": "McNemar", "paired_t": "paired t"}


@dataclass(frozen=True)
class ComparedRuns:
    runs: list[RunRewards]
    comparisons: list[Comparison]

    def as_json(self) -> dict[str, Any]:
        runs = [
            {"path": run.path, "mean_reward": run.overall().as_json(), "n_scored": run.n_scored}
            | {"n_requested": run.n_requested}
            for run in self.runs
        ]
        return {"schema": SCHEMA, "runs": runs, "comparisons": [asdict(one) for one in self.comparisons]}


def compare(paths: Sequence[str | os.PathLike[str]], *, pass_threshold: float | None = None) -> ComparedRuns:
    """Compare the rollouts files of two runs or more, the first being the baseline.

    `pass_threshold`: the reward from which a rollout passes; rewards of 0 and 1 need none.
    """
    if len(paths) < 2:
        raise ResultsError("a comparison needs at least two runs.\nhint: name two rollouts files, the baseline first")
    runs = [read_rewards(path) for path in paths]
    comparisons = [compare_rewards(runs[0], run, pass_threshold) for run in runs[1:]]
    return ComparedRuns(runs, comparisons)


def read_rewards(path: str | os.PathLike[str]) -> RunRewards:
    """Read the rewards of a run, and what its tasks were if its materialized inputs lie beside it."""
    tasks: dict[int, Sequence[float]] = {}
    for agent in read_rollouts([path]):
        for task, rollouts in group_by_task(agent.rollouts):
            tasks[task] = [*tasks.get(task, ()), *list_rewards(rollouts)]
    if not tasks:
        raise ResultsError(f"{os.fspath(path)!r} holds no scored rollout")
    plan = RunPaths.of(os.fspath(path)).materialized
    contents: dict[int, bytes] = {}
    n_requested = None
    if plan.is_file():
        n_requested = 0
        for line in read_results(plan):
            n_requested += 1
            if line.key[0] not in contents:
                content = {
                    name: value
                    for name, value in line.row.items()
                    if name not in PLAYER_KEYS and not name.startswith(BOOKKEEPING_PREFIX)
                }
                encoded = orjson.dumps(content, option=orjson.OPT_SORT_KEYS)
                contents[line.key[0]] = hashlib.blake2b(encoded, digest_size=16).digest()
    return RunRewards(os.fspath(path), tasks, contents, n_requested)


def make_comparison_table(compared: ComparedRuns) -> list[list[str]]:
    """Return a row per run; the first row is the heading."""
    rows = [["run", "mean reward", "scored", "difference", "95 % interval", "better/worse/equal", "p", "MDE"]]
    for run, one in zip(compared.runs, [None, *compared.comparisons], strict=True):
        row = [run.path, f"{run.overall().estimate:.4g}", format_scored(run.n_scored, run.n_requested)]
        if one is None:
            rows.append([*row, "baseline", "", "", "", ""])
            continue
        row.append(f"{one.difference:+.4g} ({one.n_paired} tasks)")
        row.append("" if one.ci95 is None else f"{one.ci95[0]:+.4g} … {one.ci95[1]:+.4g}")
        row.append(f"{one.wins}/{one.losses}/{one.ties}")
        row.append("" if one.p_value is None else f"{one.p_value:.3g} ({TEST_NAMES[one.test]})")
        row.append("" if one.minimum_detectable_effect is None else f"{one.minimum_detectable_effect:.3g}")
        rows.append(row)
    return rows


def explain_tests(compared: ComparedRuns) -> list[str]:
    """Return a sentence for every comparison whose p-value is not McNemar's, saying why."""
    return [
        f"p of {one.run}: the paired t-test on task means, not McNemar's, because {one.test_reason}"
        for one in compared.comparisons
        if one.mcnemar is None and one.p_value is not None
    ]
