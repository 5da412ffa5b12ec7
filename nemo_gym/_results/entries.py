# SPDX-License-Identifier: Apache-2.0
"""The entry of a task, as JSON: statistics of its rollouts, how many there are and should be, and each one's numbers.

Entries differ in little but their numbers, so the text around the numbers is made once for every kind of task.
"""

import itertools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import orjson
from orjson import Fragment

from nemo_gym._metrics.describe import STATISTICS, Number, labels
from nemo_gym._metrics.profile import pass_rate
from nemo_gym._results.measure import Fields
from nemo_gym._results.runs import Run, describe_runs, describe_values, rewards_of
from nemo_gym._util.row_keys import REWARD_KEY_NAME, ROLLOUT_INDEX_KEY_NAME, TASK_INDEX_KEY_NAME

_MOST_FORMS = 256
_MOST_RUNS = 64
# JSON escapes control characters, so they mark gaps that no text can contain.
_GAP = re.compile(rb"\0(-?\d+)\0")


class TaskEntries:
    """Makes the entries of the tasks of a run."""

    def __init__(self, pass_threshold: float | None = None) -> None:
        """`pass_threshold`: the entries are to say how many rollouts reach it."""
        self._threshold = pass_threshold
        self._forms: dict[tuple[Fields, int], _Form] = {}
        # That of the task before: most tasks are of the same kind as that.
        self._last: tuple[Fields, int, _Form | None] = (), 0, None

    def encoded(self, task: int, runs: Sequence[Run], expected: int, sample: bytes) -> bytes:
        """The entry of a task that was to have `expected` rollouts; `sample` is JSON and goes in as it is."""
        passes = {} if self._threshold is None else pass_rate(rewards_of(runs), self._threshold)
        counts = (expected, expected - len(runs), 100.0 * len(runs) / expected)
        form = self._form_of(runs, passes)
        if form is None:
            statistics = describe_runs(runs) if runs else {}
            infos = [_info(f"{task}:{run.key[1]}", task, run.key[1], run.numbers) for run in runs]
            return orjson.dumps(_entry(task, statistics, Fragment(sample), len(runs), counts, infos, passes))
        return form.filled(_numbers(task, counts, runs, passes.values()), sample)

    def _form_of(self, runs: Sequence[Run], passes: Collection[str]) -> "_Form | None":
        n = len(runs)
        if not 0 < n <= _MOST_RUNS:
            return None
        fields = runs[0].fields
        if n > 1 and any(run.fields is not fields for run in runs):
            return None
        if fields is not self._last[0] or n != self._last[1]:
            form = self._forms.get((fields, n))
            if form is None and len(self._forms) < _MOST_FORMS:
                form = self._forms[fields, n] = _form(fields, n, passes)
            self._last = fields, n, form
        return self._last[2]


def _entry(
    task: object,
    statistics: Mapping[str, object],
    sample: object,
    n: int,
    counts: Iterable[object],
    infos: Sequence[Mapping[str, object]],
    passes: Mapping[str, object],
) -> dict[str, Any]:
    expected, missing, share = counts
    return {
        **statistics,
        TASK_INDEX_KEY_NAME: task,
        "sample": sample,
        "num_rollouts": n,
        "expected_num_rollouts": expected,
        "missing_num_rollouts": missing,
        "reward_profile_completion_pct": share,
        "rollout_infos": infos,
        **passes,
    }


def _info(rollout_id: object, task: object, rollout: object, numbers: Mapping[str, object]) -> dict[str, Any]:
    return {
        "rollout_id": rollout_id,
        TASK_INDEX_KEY_NAME: task,
        ROLLOUT_INDEX_KEY_NAME: rollout,
        REWARD_KEY_NAME: numbers[REWARD_KEY_NAME],
        **numbers,
    }


class _Form:
    """A JSON text with gaps for numbers, and one for a text."""

    def __init__(self, entry: Mapping[str, Any]) -> None:
        self._parts: list[bytes] = _GAP.split(orjson.dumps(entry))
        self._in_order = itemgetter(*map(int, self._parts[1::2]))

    def filled(self, numbers: Sequence[Number], text: bytes) -> bytes:
        """Gap i takes number i, gap -1 the text."""
        encoded = orjson.dumps(numbers)[1:-1].split(b",")
        encoded.append(text)
        self._parts[1::2] = self._in_order(encoded)
        return b"".join(self._parts)


def _form(fields: Fields, n: int, passes: Collection[str]) -> _Form:
    """The form for tasks with `n` rollouts that have these `fields`; its gaps are numbered as `_numbers` has them."""
    numbers = itertools.count()

    def gaps(number: int) -> list[bytes]:
        return [_gap(next(numbers)) for _ in range(number)]

    task, *counts = gaps(4)
    statistics = gaps(len(fields) * (1 if n == 1 else len(STATISTICS)))
    runs = [gaps(1 + len(fields)) for _ in range(n)]
    if n == 1:  # a single value is its own mean, extreme and median
        statistics = [*statistics * 4, *[b"0.0"] * len(fields)]
    infos = [
        _info(Fragment(b'"%b:%b"' % (task, run[0])), Fragment(task), Fragment(run[0]), _record(fields, run[1:]))
        for run in runs
    ]
    return _Form(
        _entry(
            Fragment(task),
            _record(labels(fields), statistics),
            Fragment(_gap(-1)),
            n,
            map(Fragment, counts),
            infos,
            _record(passes, gaps(len(passes))),
        )
    )


def _numbers(task: int, counts: Iterable[Number], runs: Sequence[Run], passes: Iterable[Number]) -> list[Number]:
    if len(runs) == 1:
        [run] = runs
        return [task, *counts, *map(float, run.values), run.key[1], *run.values, *passes]
    values = [run.values for run in runs]
    keyed = itertools.chain.from_iterable((run.key[1], *run.values) for run in runs)
    return [task, *counts, *describe_values(values), *keyed, *passes]


def _gap(index: int) -> bytes:
    return b"\0%d\0" % index


def _record(names: Iterable[str], gaps: Iterable[bytes]) -> dict[str, Fragment]:
    return dict(zip(names, map(Fragment, gaps), strict=True))
