# SPDX-License-Identifier: Apache-2.0
"""Export rollouts to a trainer's format: survey the files, then write record after record.

Only one row, or the rows of one group, is in memory at a time; a few numbers are kept per group. The output appears
when it is complete. What was left out is counted, by reason.
"""

import contextlib
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nemo_gym._results.metrics.rollout_metrics import ResultsError
from nemo_gym._results.result_rows import ResultLine, open_results
from nemo_gym._rollouts.outcomes import Row
from nemo_gym._training.alignment import Decode
from nemo_gym._training.chat_messages import NotExpressible
from nemo_gym._training.formats import art_groups, branches, conversations, groups
from nemo_gym._training.formats.sample import Format, GroupSamples, Record, Sample
from nemo_gym._training.record import TrainableRollout
from nemo_gym._training.selection import Selection, Survey, open_survey
from nemo_gym._util.atomic_files import atomic_writer
from nemo_gym._util.jsonl_files import dumps_line
from nemo_gym._util.nearest import did_you_mean

FORMATS = {
    one.name: one
    for one in (
        Format("trajectories", "the canonical record of a trainable rollout", branches.build_trajectories),
        Format("nemo-rl", "result rows of NeMo RL", branches.build_nemo_rl),
        Format("trl", "TRL: what a rollout_func returns", branches.build_trl),
        Format("verl", "verl: AgentLoopOutput, as JSONL or parquet", branches.build_verl, parquet=True),
        Format("openrlhf", "OpenRLHF: what an AgentExecutor returns", branches.build_openrlhf),
        Format("skyrl", "SkyRL: a GeneratorOutput a group", build_group=groups.build_skyrl),
        Format("art", "ART: a TrajectoryGroup a group", build_group=art_groups.build_art),
        Format("atropos", "Atropos: a ScoredDataGroup a group", build_group=groups.build_atropos),
        Format("prime-rl", "prime-rl: a trace of verifiers", conversations.build_prime_rl),
        Format(
            "sft",
            "conversations for supervised fine-tuning",
            conversations.build_sft,
            needs_tokens=False,
            needs_groups=False,
        ),
        Format("dpo", "pairs of a better and a worse conversation", needs_tokens=False, pairs=True),
        Format("atif", "ATIF, which Harbor reads", conversations.build_atif, needs_tokens=False, needs_groups=False),
    )
}
_ROWS_AT_A_TIME = 512
_SMALL_BUFFER_BYTES = 1 << 14
Write = Callable[[Record], None]


class _NothingWritten(Exception):
    """Nothing was exported, so no output should appear."""


@dataclass
class ExportSummary:
    """What became of every rollout: read = exported + failed + invalid + without tokens + filtered."""

    format: str
    output: Path
    survey: Survey
    exported: int = 0
    """Rollouts that contributed to the output."""
    records: int = 0
    """Lines or rows that were written."""
    groups: int = 0
    """Groups that contributed to the output."""
    filtered: Counter[str] = field(default_factory=Counter)
    """By filter."""
    drift: Counter[str] = field(default_factory=Counter)
    """How the turns of the exported rollouts fit together."""

    @property
    def read(self) -> int:
        return sum(group.size for group in self.survey.groups.values())

    @property
    def failed(self) -> Counter[str]:
        """By kind of failure."""
        return self.survey.failed

    @property
    def invalid(self) -> Counter[str]:
        """Rollouts that must not be trained on, or that the format cannot express, by reason."""
        return self.survey.invalid

    @property
    def without_tokens(self) -> int:
        return self.survey.without_tokens

    def count_exported(self, rollout: TrainableRollout) -> None:
        self.exported += 1
        self.drift[rollout.drift or "without tokens"] += 1

    def as_json(self) -> dict[str, Any]:
        return {
            "schema": 1,
            "format": self.format,
            "output": str(self.output),
            "rollouts": self.read,
            "exported": self.exported,
            "records": self.records,
            "groups": self.groups,
            "failed": dict(self.failed.most_common()),
            "invalid": dict(self.invalid.most_common()),
            "invalid_examples": self.survey.invalid_examples,
            "without_tokens": self.without_tokens,
            "filtered": dict(self.filtered.most_common()),
            "drift": dict(self.drift.most_common()),
        }


def find_format(name: str) -> Format:
    """Return the format of that name; raise ResultsError, suggesting similar names."""
    if name not in FORMATS:
        raise ResultsError(
            f"there is no format {name!r}. {did_you_mean(name, FORMATS)}\nhint: the formats are {', '.join(FORMATS)}"
        )
    return FORMATS[name]


def export_rollouts(
    files: Sequence[Path],
    format_name: str,
    output: str | os.PathLike[str],
    *,
    selection: Selection | None = None,
    margin: float = 0.0,
    decode: Decode | None = None,
    overwrite: bool = False,
) -> ExportSummary:
    """Write the rollouts of `files` to `output`, and return what became of each.

    `margin` is the smallest difference between the rewards of a pair. `decode` turns token ids into text, to tell
    retokenized histories from edited ones. `overwrite` replaces an existing output.
    """
    one = find_format(format_name)
    path = Path(output)
    _require_output(one, path, files, overwrite=overwrite)
    wanted = selection or Selection()
    by_group = one.build is None
    survey = open_survey(
        files, needs_tokens=one.needs_tokens, pass_threshold=wanted.pass_threshold, keep_places=by_group
    )
    summary = ExportSummary(one.name, path, survey)
    with contextlib.suppress(_NothingWritten), _open_writer(path, summary) as write:
        if by_group:
            _export_groups(one, wanted, write, summary, margin, decode)
        else:
            _export_rows(one, wanted, write, summary, decode)
        if not summary.records:
            raise _NothingWritten
    return summary


def _export_rows(one: Format, wanted: Selection, write: Write, summary: ExportSummary, decode: Decode | None) -> None:
    """Write the records of one rollout after the other, in the order of the files."""
    if one.build is None:
        raise ValueError(f"{one.name} is made of groups")
    survey = summary.survey
    exported = set[int]()
    found: Iterator[tuple[TrainableRollout | None, ResultLine]]
    if one.needs_groups or wanted.needs_groups:
        survey.survey()
        found = survey.read_again()
    else:
        found = survey.read_rollouts()
    for rollout, line in found:
        if rollout is None:
            continue
        group = survey.groups[rollout.group]
        if (objection := wanted.explain_skip(rollout, group)) is not None:
            summary.filtered[objection] += 1
            continue
        try:
            records = [*one.build(_join(rollout, line.row, decode))]
        except NotExpressible as reason:
            survey.note_invalid(rollout, str(reason))
            continue
        for record in records:
            write(record)
        summary.count_exported(rollout)
        exported.add(id(group))
    summary.groups = len(exported)


def _export_groups(
    one: Format, wanted: Selection, write: Write, summary: ExportSummary, margin: float, decode: Decode | None
) -> None:
    """Write the records of one group after the other, in the order in which the files first name them."""
    survey = summary.survey
    least = wanted.min_reward
    survey.survey()
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(open_results(path, _SMALL_BUFFER_BYTES)) for path in survey.files]
        for group in survey.groups.values():
            samples = []
            for row in survey.read_rows(group.last_usable, opened):
                rollout = survey.read_member(row)
                objection = wanted.explain_skip(rollout, group, any_reward=one.pairs)
                if objection is None:
                    samples.append(_join(rollout, row, decode))
                else:
                    summary.filtered[objection] += 1
            samples.sort(key=lambda sample: sample.rollout.rollout_index)
            written = summary.records
            if one.pairs:
                _write_pairs(samples, write, summary, margin, least)
            elif samples:
                _write_group(one, GroupSamples(samples, survey.read_rows(group.last_failed, opened)), write, summary)
            summary.groups += summary.records > written


def _write_group(one: Format, group: GroupSamples, write: Write, summary: ExportSummary) -> None:
    """Write a group without the rollouts that the format cannot express."""
    build = one.build_group
    if build is None:
        raise ValueError(f"{one.name} is made of rollouts")
    try:
        records = [*build(group)]
    except NotExpressible:
        kept = []
        for sample in group.samples:
            try:
                [*build(GroupSamples([sample], ()))]
                kept.append(sample)
            except NotExpressible as reason:
                summary.survey.note_invalid(sample.rollout, str(reason))
        if not kept:
            return
        group = GroupSamples(kept, group.failures)
        records = [*build(group)]
    for record in records:
        write(record)
    for sample in group.samples:
        summary.count_exported(sample.rollout)


def _write_pairs(
    samples: Sequence[Sample], write: Write, summary: ExportSummary, margin: float, least: float | None
) -> None:
    paired = 0
    for better, worse in groups.pair_samples(samples, margin, least):
        paired += 2
        try:
            record = groups.build_pair(better, worse)
        except NotExpressible as reason:
            for sample in (better, worse):
                summary.survey.note_invalid(sample.rollout, str(reason))
            continue
        write(record)
        for sample in (better, worse):
            summary.count_exported(sample.rollout)
    if len(samples) > paired:
        summary.filtered["no partner for a pair"] += len(samples) - paired


def _join(rollout: TrainableRollout, row: Row, decode: Decode | None) -> Sample:
    rollout.join(row, decode)
    return Sample.of(rollout, row)


def _require_output(one: Format, path: Path, files: Sequence[Path], *, overwrite: bool) -> None:
    """Raise ResultsError unless the output may be written."""
    if path.resolve() in {file.resolve() for file in files}:
        raise ResultsError(
            f"the output {str(path)!r} is one of the rollouts files.\nhint: choose another output; rollouts are kept"
        )
    if path.is_dir():
        raise ResultsError(f"the output {str(path)!r} is a folder.\nhint: name a file in it")
    if path.exists() and not overwrite:
        raise ResultsError(
            f"the output {str(path)!r} exists.\nhint: `--overwrite` replaces it, or choose another output"
        )
    if path.suffix == ".parquet" and not one.parquet:
        named = ", ".join(name for name, known in FORMATS.items() if known.parquet)
        raise ResultsError(
            f"{one.name} is written as JSONL, not as parquet.\n"
            f"hint: name the output {path.with_suffix('.jsonl').name!r}; as parquet there is {named}"
        )


@contextlib.contextmanager
def _open_writer(path: Path, summary: ExportSummary) -> Iterator[Write]:
    """Open a writer that counts records; the file appears once all are written."""
    with atomic_writer(path) as file:
        if path.suffix != ".parquet":

            def write(record: Record) -> None:
                file.write(dumps_line(record))
                summary.records += 1

            yield write
            return
        pa, parquet = _import_pyarrow()
        schema = branches.make_verl_schema()
        waiting = list[Record]()
        with parquet.ParquetWriter(file, schema) as writer:

            def flush() -> None:
                writer.write_table(pa.Table.from_pylist(waiting, schema=schema))
                waiting.clear()

            def write_row(record: Record) -> None:
                facts = record["extra_fields"]
                components = [{"name": name, "value": one} for name, one in facts["reward_extra_info"].items()]
                waiting.append({**record, "extra_fields": {**facts, "reward_extra_info": components}})
                summary.records += 1
                if len(waiting) == _ROWS_AT_A_TIME:
                    flush()

            yield write_row
            flush()


def _import_pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow  # type: ignore[import-untyped]
        import pyarrow.parquet  # type: ignore[import-untyped]
    except ImportError as error:
        raise ResultsError(
            "parquet files need the package `pyarrow`, which is not installed.\n"
            "hint: `pip install 'nemo-gym[data]'`, or name an output that ends with .jsonl"
        ) from error
    return pyarrow, pyarrow.parquet
