# SPDX-License-Identifier: Apache-2.0
"""Datasets into training files: every dataset checked and measured, those of a type put together in config order.

Nothing takes its place before every row of every dataset was found good: until then there are drafts only.
"""

import functools
import gc
import logging
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nemo_gym._data.dataset_metrics import TOKENS, DatasetMetrics, combined
from nemo_gym._data.draft import Draft
from nemo_gym._data.lines import DataFileError
from nemo_gym._data.metrics_file import collated_metrics_file, differences, metrics_file, read_metrics_file
from nemo_gym._data.offending import Offending, raise_if_any
from nemo_gym._data.params import KnownSettings
from nemo_gym._data.prepare import prepare_dataset, ready_rows
from nemo_gym._data.sources import Source, Targets, targets_of
from nemo_gym._data.tokens import CountTokens
from nemo_gym._util.files import atomic_writer, write_atomically
from nemo_gym.errors import GymError

LOG = logging.getLogger(__name__)

_BUFFER_BYTES = 1 << 20
_CONTAINERS_BETWEEN_COLLECTIONS = 50_000

Progress = Callable[[Source, int], None]


class MetricsConflict(GymError, ValueError):
    """Metrics of a dataset differ from those in a file that was there before."""


@dataclass(frozen=True)
class CollatedDataset:
    """What became of one dataset."""

    source: Source
    targets: Targets
    metrics: dict[str, Any]
    metrics_path: Path
    """The file that holds them: written now, or found to agree."""
    conflicts: tuple[str, ...] = ()
    """Where the metrics differ from those of an existing file."""


@dataclass(frozen=True)
class CollatedType:
    """The datasets of one type, put together."""

    type: str
    path: Path
    metrics_path: Path
    metrics: dict[str, Any]


@dataclass(frozen=True)
class Collation:
    """All that was written."""

    datasets: tuple[CollatedDataset, ...]
    types: tuple[CollatedType, ...]

    def raise_on_conflict(self) -> None:
        """MetricsConflict that says which files disagree and what to do about it."""
        found = [dataset for dataset in self.datasets if dataset.conflicts]
        if not found:
            return
        lines = [f"the metrics of {len(found)} datasets are not those of the files that were there:"]
        for dataset in found:
            lines.append(f"{dataset.targets.existing_metrics}, against {dataset.targets.conflict.name}:")
            lines += [f"  {difference}" for difference in dataset.conflicts]
        lines.append(
            "hint: if the data was changed on purpose, delete the old metrics files and run the same again, "
            "or add +overwrite_metrics_conflicts=true"
        )
        raise MetricsConflict("\n".join(lines))


def collate(
    sources: Sequence[Source],
    output: Path,
    *,
    count_tokens: CountTokens | None = None,
    overwrite_conflicts: bool = False,
    progress: Progress | None = None,
) -> Collation:
    """Check, measure and write all `sources`; OffendingRows, and nothing written, if a single row is bad."""
    targets = targets_of(sources, output)
    _refuse_to_overwrite(sources, targets, output)
    parts = [
        _Part(source, target, DatasetMetrics(repeats=source.repeats, count_tokens=count_tokens))
        for source, target in zip(sources, targets, strict=True)
    ]
    with _told_if_interrupted(output), ExitStack() as drafts, _write_errors(output):
        for part in parts:
            part.draft = drafts.enter_context(Draft(part.targets.prepared))
        with _rare_collections():
            found = _prepare_all(parts, progress)
        raise_if_any(found)
        types = tuple(_collate_type(name, parts, output) for name in dict.fromkeys(source.type for source in sources))
        for part in parts:
            part.draft.publish()
        datasets = tuple(_record_metrics(part, overwrite_conflicts) for part in parts)
    return Collation(datasets, types)


def write_rows_of(sources: Iterable[Source], path: Path, *, limit: int | None = None, check: bool = True) -> int:
    """Write the rows of `sources`, repeated and with their agents, to one file, `limit` of them; how many there are.

    Nothing is measured and nothing beyond the limit is read. OffendingRows, and no file, if one of them is bad.
    """
    known, found, count = KnownSettings(), list[Offending](), 0
    with _write_errors(path), atomic_writer(path) as file:
        for source in sources:
            if limit is not None and count >= limit:
                break
            found.append(Offending(source.path))
            for _, _, line in ready_rows(source, known, found[-1], check=check):
                repeats = source.repeats if limit is None else min(source.repeats, limit - count)
                file.write(line * repeats)
                count += repeats
                if limit is not None and count >= limit:
                    break
        raise_if_any(found)
    return count


@dataclass
class _Part:
    """A dataset on its way."""

    source: Source
    targets: Targets
    metrics: DatasetMetrics
    draft: Draft = field(init=False)

    @functools.cached_property
    def summary(self) -> dict[str, Any]:
        """The metrics, once all rows were added."""
        return self.metrics.summary()


def _prepare_all(parts: Sequence[_Part], progress: Progress | None) -> list[Offending]:
    """Every dataset into its draft; the bad rows of each."""
    known, found = KnownSettings(), list[Offending]()
    for part in parts:
        report = functools.partial(progress, part.source) if progress is not None else None
        with part.draft.opened() as file:
            write = file.write if not any(found) else _nowhere
            found.append(prepare_dataset(part.source, write, part.metrics, known, report))
    return found


def _collate_type(name: str, parts: Sequence[_Part], output: Path) -> CollatedType:
    chosen = [part for part in parts if part.source.type == name]
    collated = _collated_path(name, output)
    with Draft(collated) as draft:
        with draft.opened() as whole:
            for part in chosen:
                with open(part.draft.path, "rb") as rows:
                    shutil.copyfileobj(rows, whole, _BUFFER_BYTES)
        draft.publish(sync=True)
    metrics = chosen[0].summary if len(chosen) == 1 else combined([part.metrics for part in chosen])
    metrics_path = collated.with_name(f"{name}_metrics.json")
    write_atomically(metrics_path, collated_metrics_file([part.source.dataset for part in chosen], metrics))
    return CollatedType(name, collated, metrics_path, metrics)


def _record_metrics(part: _Part, overwrite_conflicts: bool) -> CollatedDataset:
    """Write the metrics file, unless one that agrees is there already; if it does not, a conflict file beside it."""
    targets, metrics = part.targets, part.summary
    before = read_metrics_file(targets.existing_metrics)
    if before is not None and TOKENS not in metrics:
        before.pop(TOKENS, None)
    conflicts = differences(before, metrics) if before is not None else []
    text = metrics_file(part.source.dataset, metrics)
    if conflicts and not overwrite_conflicts:
        write_atomically(targets.conflict, text)
        return CollatedDataset(part.source, targets, metrics, targets.existing_metrics, tuple(conflicts))
    is_new = bool(conflicts) or before is None
    if is_new:
        write_atomically(targets.metrics, text)
    targets.conflict.unlink(missing_ok=True)
    return CollatedDataset(part.source, targets, metrics, targets.metrics if is_new else targets.existing_metrics)


def _collated_path(name: str, output: Path) -> Path:
    return output / f"{name}.jsonl"


def _refuse_to_overwrite(sources: Sequence[Source], targets: Sequence[Targets], output: Path) -> None:
    """The output folder may be the one that a dataset lies in; then the collated file could take its place."""
    read = {source.path.resolve(): source for source in sources}
    metrics = {target.existing_metrics.resolve() for target in targets}
    for source in sources:
        collated = _collated_path(source.type, output).resolve()
        if collated in read or collated.with_name(f"{source.type}_metrics.json") in metrics:
            raise DataFileError(
                f"the collated rows would go to {collated}, in place of files of {read.get(collated, source)}.\n"
                f"hint: choose another output folder"
            )


@contextmanager
def _write_errors(place: Path) -> Iterator[None]:
    """A full disk or a folder that may not be written to, told as such."""
    try:
        yield
    except OSError as error:
        if isinstance(error, GymError):
            raise
        where = error.filename or place
        raise DataFileError(
            f"writing to {where} failed: {error.strerror or error}; nothing was left half-written.\n"
            f"hint: make room there, or choose another output folder"
        ) from error


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Do not search the rows under way for reference cycles, which JSON never has, every forty rows.

    The rows that are held at a time have fewer containers than that; for all else in this process, cycles are still
    found now and then.
    """
    before = gc.get_threshold()
    if before[0]:
        gc.set_threshold(max(before[0], _CONTAINERS_BETWEEN_COLLECTIONS), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def _told_if_interrupted(output: Path) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        LOG.warning("interrupted: no file is half-written; run the same again to complete %s", output)
        raise


def _nowhere(line: bytes) -> None:
    """Once a bad row was found, the rest is only looked at."""
