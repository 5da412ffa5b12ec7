# SPDX-License-Identifier: Apache-2.0
"""The entry of a task: statistics of its rollouts, how many there are and should be, and each one's numbers.

As an object, or as JSON for a file of many tasks: such entries differ in little but their numbers, so the text around
the numbers is made once for every kind of task.
"""

import itertools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import orjson
from orjson import Fragment

from nemo_gym._metrics.describe import STATISTICS, Number, describe_columns, labels
from nemo_gym._metrics.rollouts import FieldNames, MeasuredRollout, describe_rollouts, list_rewards
from nemo_gym._util.row_keys import REWARD_KEY_NAME, ROLLOUT_INDEX_KEY_NAME, TASK_INDEX_KEY_NAME

_MOST_FORMS = 256
_MOST_ROLLOUTS = 64
# JSON escapes control characters, so they mark gaps that no text can contain.
_GAP = re.compile(rb"\0(-?\d+)\0")


def make_entry(
    task: int,
    rollouts: Sequence[MeasuredRollout],
    expected: int,
    sample: object,
    *,
    pass_threshold: float | None = None,
    histograms: bool = False,
) -> dict[str, Any]:
    """Return the entry of a task that was to have `expected` rollouts; one without any has only counts.

    `sample`: the input of the task. `pass_threshold`: the entry is to say how many rollouts reach it.
    """
    return _assemble(
        task,
        describe_rollouts(rollouts, histograms=histograms),
        sample,
        len(rollouts),
        _count(rollouts, expected),
        [_describe_rollout(f"{task}:{one.key[1]}", task, one.key[1], one.numbers) for one in rollouts],
        _compute_passes(rollouts, pass_threshold),
    )


def compute_pass_rate(rewards: Sequence[Number], threshold: float) -> dict[str, Number]:
    """Return the share of `rewards` that reach `threshold`."""
    passed = sum(reward >= threshold for reward in rewards)
    return {
        "pass_rate": passed / len(rewards) if rewards else 0.0,
        "pass_rate_total": len(rewards),
        "pass_rate_passed": passed,
        "pass_threshold": threshold,
    }


class TaskEncoder:
    """Writes the entries of the tasks of a run as JSON."""

    def __init__(self, pass_threshold: float | None = None) -> None:
        """`pass_threshold`: the entries are to say how many rollouts reach it."""
        self._threshold = pass_threshold
        self._forms: dict[tuple[FieldNames, int], _Form] = {}
        # That of the task before: most tasks are of the same kind as that.
        self._last: tuple[FieldNames, int, _Form | None] = (), 0, None

    def encode(self, task: int, rollouts: Sequence[MeasuredRollout], expected: int, sample: bytes) -> bytes:
        """Return what `make_entry` gives, as JSON; `sample` is JSON and goes in as it is."""
        passes = _compute_passes(rollouts, self._threshold)
        form = self._find_form(rollouts, passes)
        if form is None:
            entry = make_entry(task, rollouts, expected, Fragment(sample), pass_threshold=self._threshold)
            return orjson.dumps(entry)
        return form.fill(_list_numbers(task, _count(rollouts, expected), rollouts, passes.values()), sample)

    def _find_form(self, rollouts: Sequence[MeasuredRollout], passes: Collection[str]) -> "_Form | None":
        n = len(rollouts)
        if not 0 < n <= _MOST_ROLLOUTS:
            return None
        fields = rollouts[0].fields
        if n > 1 and any(rollout.fields is not fields for rollout in rollouts):
            return None
        if fields is not self._last[0] or n != self._last[1]:
            form = self._forms.get((fields, n))
            if form is None and len(self._forms) < _MOST_FORMS:
                form = self._forms[fields, n] = _make_form(fields, n, passes)
            self._last = fields, n, form
        return self._last[2]


def _compute_passes(rollouts: Sequence[MeasuredRollout], threshold: float | None) -> dict[str, Number]:
    return {} if threshold is None else compute_pass_rate(list_rewards(rollouts), threshold)


def _count(rollouts: Sequence[MeasuredRollout], expected: int) -> tuple[int, int, float]:
    """Return how many rollouts should be there, how many are missing, and the share that is there in percent."""
    return expected, expected - len(rollouts), 100.0 * len(rollouts) / expected


def _assemble(
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


def _describe_rollout(
    rollout_id: object, task: object, rollout: object, numbers: Mapping[str, object]
) -> dict[str, Any]:
    return {
        "rollout_id": rollout_id,
        TASK_INDEX_KEY_NAME: task,
        ROLLOUT_INDEX_KEY_NAME: rollout,
        REWARD_KEY_NAME: numbers.get(REWARD_KEY_NAME),
        **numbers,
    }


class _Form:
    """A JSON text with gaps for numbers, and one for a text."""

    def __init__(self, entry: Mapping[str, Any]) -> None:
        self._parts: list[bytes] = _GAP.split(orjson.dumps(entry))
        self._in_order = itemgetter(*map(int, self._parts[1::2]))

    def fill(self, numbers: Sequence[Number], text: bytes) -> bytes:
        """Put number i into gap i and the text into gap -1."""
        encoded = orjson.dumps(numbers)[1:-1].split(b",")
        encoded.append(text)
        self._parts[1::2] = self._in_order(encoded)
        return b"".join(self._parts)


def _make_form(fields: FieldNames, n: int, passes: Collection[str]) -> _Form:
    """Return the form for tasks with `n` rollouts that have these `fields`; `_list_numbers` numbers its gaps."""
    numbers = itertools.count()

    def gaps(number: int) -> list[bytes]:
        return [_gap(next(numbers)) for _ in range(number)]

    task, *counts = gaps(4)
    statistics = gaps(len(fields) * (1 if n == 1 else len(STATISTICS)))
    rollouts = [gaps(1 + len(fields)) for _ in range(n)]
    if n == 1:  # a single value is its own mean, extreme and median
        statistics = [*statistics * 4, *[b"0.0"] * len(fields)]
    infos = [
        _describe_rollout(
            Fragment(b'"%b:%b"' % (task, index)), Fragment(task), Fragment(index), _zip_gaps(fields, values)
        )
        for index, *values in rollouts
    ]
    return _Form(
        _assemble(
            Fragment(task),
            _zip_gaps(labels(fields), statistics),
            Fragment(_gap(-1)),
            n,
            map(Fragment, counts),
            infos,
            _zip_gaps(passes, gaps(len(passes))),
        )
    )


def _list_numbers(
    task: int, counts: Iterable[Number], rollouts: Sequence[MeasuredRollout], passes: Iterable[Number]
) -> list[Number]:
    if len(rollouts) == 1:
        [rollout] = rollouts
        return [task, *counts, *map(float, rollout.values), rollout.key[1], *rollout.values, *passes]
    statistics = describe_columns(zip(*(rollout.values for rollout in rollouts), strict=True))
    keyed = itertools.chain.from_iterable((rollout.key[1], *rollout.values) for rollout in rollouts)
    return [task, *counts, *statistics, *keyed, *passes]


def _gap(index: int) -> bytes:
    return b"\0%d\0" % index


def _zip_gaps(names: Iterable[str], gaps: Iterable[bytes]) -> dict[str, Fragment]:
    return dict(zip(names, map(Fragment, gaps), strict=True))
