# SPDX-License-Identifier: Apache-2.0
"""What a run sends to experiment trackers when it is over: its metrics and, unless told otherwise, its rollouts.

A config that names no tracker loads nothing here. A tracker that fails is reported and never changes what a run is.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from nemo_gym._results.aggregate import AgentAggregate
from nemo_gym._util.jsonl import read_rows

Export = Callable[[Sequence[AgentAggregate], Path], Awaitable[None]]
"""Sends the metrics of a run and the rollouts in a file."""


async def _to_nobody(aggregates: Sequence[AgentAggregate], rollouts: Path) -> None:
    """No tracker is configured."""


@contextmanager
def exporting(config: DictConfig, *, rollouts_too: bool) -> Iterator[Export]:
    """How to export a run; its trackers are closed when the context ends, as failed if an error ends it."""
    if not any(str(key).startswith(("wandb_", "mlflow_")) for key in config):
        yield _to_nobody
        return
    from nemo_gym.exporters import (
        export_aggregates,
        export_rollouts,
        get_exporters,
        setup_exporters,
        teardown_exporters,
    )

    async def export(aggregates: Sequence[AgentAggregate], rollouts: Path) -> None:
        await asyncio.to_thread(export_aggregates, aggregates)
        if rollouts_too and get_exporters():
            await asyncio.to_thread(export_rollouts, RowsOf(rollouts))

    setup_exporters(config)
    failed = True
    try:
        yield export
        failed = False
    finally:
        teardown_exporters(failed=failed)


class RowsOf:
    """The rows of a file, read anew by everyone who wants them, so that none has to hold them all."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return read_rows(self._path, torn_tail_ok=True)
