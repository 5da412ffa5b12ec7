# SPDX-License-Identifier: Apache-2.0
"""Collate datasets into training files: check and measure each, and join those of a type in config order.

Everything happens in one pass, and rows are not kept. Files are written as drafts, which replace the targets only once
every row of every dataset has passed.
"""

import contextlib
import fcntl
import functools
import logging
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from nemo_gym._data.create_params import Asked, KnownSettings
from nemo_gym._data.dataset_metrics import (
    TOKENS,
    MetricsAccumulator,
    combine_metrics,
    encode_collated_metrics,
    encode_metrics,
    find_differences,
    read_metrics_file,
)
from nemo_gym._data.dataset_rows import BadRow, Offending, Row, RowChecker, fill_prompt, parse_row, raise_if_offending
from nemo_gym._data.lines import DataFileError, read_raw_rows
from nemo_gym._data.sources import Source, Targets, plan_targets
from nemo_gym._data.text_lengths import CountTokens
from nemo_gym._util.atomic_files import atomic_writer, write_atomically
from nemo_gym._util.garbage import collect_once_in
from nemo_gym._util.row_keys import AGENT_REF_KEY_NAME
from nemo_gym.errors import GymError

LOG = logging.getLogger(__name__)

_BUFFER_BYTES = 1 << 20
# More objects than the rows in progress hold; JSON has no cycles, so collecting every forty rows would be wasted.
_CONTAINERS_BETWEEN_COLLECTIONS = 50_000

Progress = Callable[[Source, int], None]
_ROWS_BETWEEN_REPORTS = 10_000


class MetricsConflict(GymError, ValueError):
    """Metrics of a dataset differ from those in an existing file."""


@dataclass(frozen=True)
class CollatedDataset:
    """What became of one dataset."""

    source: Source
    targets: Targets
    metrics: dict[str, Any]
    metrics_path: Path
    """The file that holds them: newly written, or an existing one that agrees."""
    conflicts: tuple[str, ...] = ()
    """Where the metrics differ from those of an existing file."""


@dataclass(frozen=True)
class CollatedType:
    """The collated datasets of one type."""

    type: str
    path: Path
    metrics_path: Path
    metrics: dict[str, Any]


@dataclass(frozen=True)
class Collation:
    """Everything that was written."""

    datasets: tuple[CollatedDataset, ...]
    types: tuple[CollatedType, ...]

    def raise_on_conflict(self) -> None:
        """Raise MetricsConflict, saying which files disagree and what to do about it."""
        found = [dataset for dataset in self.datasets if dataset.conflicts]
        if not found:
            return
        lines = [f"the metrics of {len(found)} datasets differ from those in existing files:"]
        for dataset in found:
            lines.append(f"{dataset.targets.existing_metrics}, against {dataset.targets.conflict.name}:")
            lines += [f"  {difference}" for difference in dataset.conflicts]
        lines.append(
            "hint: if the data was changed on purpose, delete the old metrics files and run the same command again, "
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
    """Check, measure and write all `sources`; if a single row is bad, write nothing and raise OffendingRows."""
    targets = plan_targets(sources, output)
    _refuse_to_overwrite(sources, targets, output)
    parts = [
        _Part(source, target, MetricsAccumulator(repeats=source.repeats, count_tokens=count_tokens))
        for source, target in zip(sources, targets, strict=True)
    ]
    with _explain_write_errors(output), contextlib.ExitStack() as drafts:
        try:
            for part in parts:
                part.draft = drafts.enter_context(Draft(part.targets.prepared))
            with collect_once_in(_CONTAINERS_BETWEEN_COLLECTIONS):
                found = _prepare_all(parts, progress)
            raise_if_offending(found)
            types = tuple(_collate_type(name, parts, output) for name in dict.fromkeys(one.type for one in sources))
            for part in parts:
                part.draft.publish()
            datasets = tuple(_record_metrics(part, overwrite_conflicts) for part in parts)
        except KeyboardInterrupt:
            LOG.warning("interrupted: no file is half-written; run the same command again to complete %s", output)
            raise
    return Collation(datasets, types)


def write_source_rows(sources: Iterable[Source], path: Path, *, limit: int | None = None, check: bool = True) -> int:
    """Write up to `limit` rows of `sources`, repeated and with their agents, to one file; return how many.

    Nothing is measured and nothing beyond the limit is read. If a row is bad, leave no file and raise OffendingRows.
    """
    known = KnownSettings()
    found = list[Offending]()
    count = 0
    with _explain_write_errors(path), atomic_writer(path) as file:
        for source in sources:
            if limit is not None and count >= limit:
                break
            found.append(Offending(source.path))
            for _, _, line in _prepare_rows(source, known, found[-1], check=check):
                repeats = source.repeats if limit is None else min(source.repeats, limit - count)
                file.write(line * repeats)
                count += repeats
                if limit is not None and count >= limit:
                    break
        raise_if_offending(found)
    return count


@dataclass
class _Part:
    """A dataset in progress."""

    source: Source
    targets: Targets
    metrics: MetricsAccumulator
    draft: "Draft" = field(init=False)

    @functools.cached_property
    def summary(self) -> dict[str, Any]:
        """The metrics, once all rows were added."""
        return self.metrics.summary()


def _prepare_all(parts: Sequence[_Part], progress: Progress | None) -> list[Offending]:
    """Measure every dataset and write its good rows into its draft; return the bad rows of each."""
    known = KnownSettings()
    found = list[Offending]()
    for part in parts:
        is_good = not any(found)
        repeats = part.source.repeats
        metrics = part.metrics
        found.append(offending := Offending(part.source.path))
        for number, (row, asked, line) in enumerate(_prepare_rows(part.source, known, offending), 1):
            metrics.add(row, asked, len(line))
            # After the first bad row, the rest is only checked.
            if is_good and not offending.count:
                part.draft.file.write(line * repeats)
            if progress is not None and number % _ROWS_BETWEEN_REPORTS == 0:
                progress(part.source, number)
    return found


def _collate_type(name: str, parts: Sequence[_Part], output: Path) -> CollatedType:
    chosen = [part for part in parts if part.source.type == name]
    collated = output / f"{name}.jsonl"
    with atomic_writer(collated) as whole:
        for part in chosen:
            part.draft.file.flush()
            with open(part.draft.path, "rb") as rows:
                shutil.copyfileobj(rows, whole, _BUFFER_BYTES)
    if len(chosen) == 1:
        metrics = chosen[0].summary
    else:
        metrics = combine_metrics([part.metrics for part in chosen])
    metrics_path = collated.with_name(f"{name}_metrics.json")
    write_atomically(metrics_path, encode_collated_metrics([part.source.dataset for part in chosen], metrics))
    return CollatedType(name, collated, metrics_path, metrics)


def _record_metrics(part: _Part, overwrite_conflicts: bool) -> CollatedDataset:
    """Write the metrics file, unless an existing one agrees; if it disagrees, write a conflict file beside it."""
    targets = part.targets
    metrics = part.summary
    before = read_metrics_file(targets.existing_metrics)
    conflicts = []
    if before is not None:
        if TOKENS not in metrics:
            before.pop(TOKENS, None)
        conflicts = find_differences(before, metrics)
    text = encode_metrics(part.source.dataset, metrics)
    if conflicts and not overwrite_conflicts:
        write_atomically(targets.conflict, text)
        return CollatedDataset(part.source, targets, metrics, targets.existing_metrics, tuple(conflicts))
    written = targets.existing_metrics
    if conflicts or before is None:
        written = targets.metrics
        write_atomically(written, text)
    targets.conflict.unlink(missing_ok=True)
    return CollatedDataset(part.source, targets, metrics, written)


def _refuse_to_overwrite(sources: Sequence[Source], targets: Sequence[Targets], output: Path) -> None:
    """Raise DataFileError if a collated file would replace a dataset in the output folder."""
    read = {source.path.resolve(): source for source in sources}
    metrics = {target.existing_metrics.resolve() for target in targets}
    for source in sources:
        collated = (output / f"{source.type}.jsonl").resolve()
        if collated in read or collated.with_name(f"{source.type}_metrics.json") in metrics:
            raise DataFileError(
                f"the collated rows would go to {collated}, replacing files of {read.get(collated, source)}.\n"
                f"hint: choose another output folder"
            )


@contextlib.contextmanager
def _explain_write_errors(place: Path) -> Iterator[None]:
    """Explain write errors, such as a full disk or a read-only folder."""
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


def _prepare_rows(
    source: Source, known: KnownSettings, offending: Offending, *, check: bool = True
) -> Iterator[tuple[Row, Asked, bytes]]:
    """Yield each good row of `source` once, with its parsed create params and the line to write.

    The others go to `offending`. Without `check`, any JSON object is good.
    """
    check_row = RowChecker(known).check
    prompt = source.prompt
    agent = {"type": "responses_api_agents", "name": source.agent}
    tail = b', "' + AGENT_REF_KEY_NAME.encode() + b'": ' + orjson.dumps(agent) + b"}\n"
    for number, raw in read_raw_rows(source.path, source.start, source.end):
        try:
            row = parse_row(raw)
            if prompt is not None:
                row = fill_prompt(row, prompt)
            asked = check_row(row) if check else (known.of({}), None)
        except BadRow as bad:
            offending.add(number, bad)
            continue
        if prompt is None and row and AGENT_REF_KEY_NAME not in row:
            # Appended to the original text: spacing, order and long numbers stay unchanged.
            yield row, asked, raw.rstrip()[:-1] + tail
        else:
            yield row, asked, orjson.dumps({**row, AGENT_REF_KEY_NAME: agent}) + b"\n"


# --- drafts: written now, moved into place later, when others are ready too -------------------------------------------


_NEW_S = 60


class Draft:
    """A draft beside its target, open as `file`; leaving the block removes it unless it was published.

    A killed process leaves its draft behind; whoever writes the next draft for the same target removes it.
    """

    file: BinaryIO

    def __init__(self, target: Path) -> None:
        self.target = target
        self.path = target.with_name(f"{_name_prefix(target)}{secrets.token_hex(4)}.tmp")

    def __enter__(self) -> "Draft":
        self.path.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(self.target)
        self.file = open(self.path, "xb", buffering=_BUFFER_BYTES)
        with contextlib.suppress(OSError):  # some network file systems have no locks
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.file.close()
        finally:
            self.path.unlink(missing_ok=True)

    def publish(self) -> None:
        """Replace the target with the draft."""
        self.file.flush()
        os.replace(self.path, self.target)


def _name_prefix(target: Path) -> str:
    return f".{target.name[:100]}."


def _remove_abandoned(target: Path) -> None:
    """Remove drafts of `target` that no process holds any more: a process that works on one keeps it locked."""
    pattern = re.compile(re.escape(_name_prefix(target)) + r"[0-9a-f]{8}\.tmp")
    for path in target.parent.iterdir():
        if pattern.fullmatch(path.name):
            with contextlib.suppress(OSError), open(path, "rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                found = os.fstat(file.fileno())
                # An empty, new draft may be about to be locked.
                if found.st_size or time.time() - found.st_mtime > _NEW_S:
                    path.unlink()
