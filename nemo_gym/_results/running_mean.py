# SPDX-License-Identifier: Apache-2.0
"""The mean reward of a run that is under way, with the interval that its aggregate will have, kept up in constant time.

Tasks are the units, as in `curves.interval_over_tasks`: with every rollout, the mean of its task takes the place of
the mean that the task had before.
"""

from nemo_gym._results.intervals import Interval, interval_of_moments
from nemo_gym._rollouts.compact import TaskCounts, TaskNumbers


class RunningMean:
    """The mean over tasks of their mean rewards."""

    def __init__(self) -> None:
        self.scored = 0
        self._sums, self._counts = TaskNumbers[float]("d"), TaskCounts()
        self._tasks, self._mean, self._squares = 0, 0.0, 0.0
        self._binary = True

    def add(self, task: int, reward: float) -> None:
        """Count one more rollout of `task`."""
        count, total = self._counts[task], self._sums[task]
        self._counts.add(task, 1)
        self._sums.add(task, reward)
        self.scored += 1
        self._binary = self._binary and reward in (0.0, 1.0)
        new = (total + reward) / (count + 1)
        before = self._mean
        # Welford's updates, for a value that joins and for one that takes the place of another: no difference of two
        # large sums.
        if count == 0:
            self._tasks += 1
            self._mean += (new - before) / self._tasks
            self._squares += (new - before) * (new - self._mean)
        else:
            old = total / count
            self._mean += (new - old) / self._tasks
            self._squares += (new - old) * (new - self._mean + old - before)

    def interval(self) -> Interval:
        """Return the mean and its 95 % interval; at least one rollout was counted."""
        return interval_of_moments(self._tasks, self._mean, max(self._squares, 0.0), binary=self._binary)
