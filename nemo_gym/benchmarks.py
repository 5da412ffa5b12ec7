# SPDX-License-Identifier: Apache-2.0
"""Benchmarks: which there are, and how their data is prepared by their own scripts.

A benchmark is a config below `benchmarks/` that declares a dataset of type `benchmark`. Running one is `gym eval run`.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf
from pydantic import BaseModel, Field

from nemo_gym import PARENT_DIR, _resolve_under_cwd_or_install, component_search_roots
from nemo_gym._catalog.components import list_components
from nemo_gym._catalog.prepare_scripts import PrepareError as PrepareError
from nemo_gym._catalog.prepare_scripts import check_arguments, load_prepare, run_prepare
from nemo_gym._util.jsonl import read_lines
from nemo_gym._util.moved_names import find_names
from nemo_gym.config_types import BenchmarkDatasetConfig
from nemo_gym.global_config import (
    RESPONSES_CREATE_PARAMS_KEY_NAME,
    GlobalConfigDictParser,
    GlobalConfigDictParserConfig,
    set_global_config_dict,
)
from nemo_gym.prompt import PromptError, fill_prompt, load_prompt_config

BENCHMARKS_DIR = PARENT_DIR / "benchmarks"
_SHOWN = 5


class BenchmarkConfig(BaseModel):
    """What the catalogue says of a benchmark."""

    name: str = Field(description="What `--benchmark` takes.")
    path: Path = Field(description="The config file.")
    agent_name: str = Field(description="The agent that owns the dataset.")
    num_repeats: int = Field(default=1, description="Rollouts per task.")
    domain: str | None = Field(default=None, description="What it is about.")
    description: str | None = Field(default=None, description="What it measures.")


@dataclass(frozen=True)
class PreparedBenchmark:
    """The data of one benchmark, ready to be played."""

    agent: str
    dataset: str
    path: Path
    rows: int
    is_cached: bool = False


@dataclass(frozen=True)
class _Job:
    """One prepare script to run."""

    agent: str
    dataset: BenchmarkDatasetConfig
    script: Path
    output: Path


def find_benchmarks() -> list[BenchmarkConfig]:
    """Return all benchmarks of the search roots, by name."""
    return [
        BenchmarkConfig(
            name=component.name,
            path=component.config,
            agent_name=component.facts["agent_name"],
            num_repeats=component.facts["num_repeats"],
            domain=component.domain,
            description=component.description,
        )
        for component in list_components("benchmarks", component_search_roots()).components
    ]


def prepare_benchmarks(
    config: DictConfig, arguments: Mapping[str, Any] | None = None, *, use_cached: bool = False, processes: int = 1
) -> list[PreparedBenchmark]:
    """Prepare the benchmark datasets of `config`; all scripts are checked before the first one runs.

    The scripts get `arguments`, and so many of them run at once as there are `processes`; with `use_cached`, those
    whose file is there do not run.
    """
    arguments = arguments or {}
    jobs = list(_list_jobs(config))
    cached = [job for job in jobs if use_cached and job.output.is_file()]
    todo = [job for job in jobs if job not in cached]
    for job in todo:
        check_arguments(job.script, load_prepare(job.script, component_search_roots()), arguments)
    written = _run(todo, arguments, processes, config)
    for job, path in zip(todo, written, strict=True):
        _require_declared(job, path)
    return [PreparedBenchmark(job.agent, job.dataset.name, job.output, _check_rows(job), job in cached) for job in jobs]


def _list_jobs(config: DictConfig) -> Iterator[_Job]:
    found = False
    for instance in GlobalConfigDictParser().filter_for_server_instance_configs(config):
        datasets = [one for one in instance.datasets or () if isinstance(one, BenchmarkDatasetConfig)]
        if len(datasets) > 1:
            names = ", ".join(repr(one.name) for one in datasets)
            raise PrepareError(f"agent {instance.name!r} has {len(datasets)} benchmark datasets, not one: {names}")
        for dataset in datasets:
            found = True
            script = _resolve_under_cwd_or_install(dataset.prepare_script)
            yield _Job(instance.name, dataset, script, _find_output(dataset, script))
    if not found:
        loaded = ", ".join(config.get("config_paths") or []) or "none"
        raise PrepareError(
            f"the config has no dataset of type `benchmark`, so there is nothing to prepare.\n"
            f"loaded config files: {loaded}\n"
            "hint: `gym eval prepare --benchmark NAME`; `gym list benchmarks` shows the names"
        )


def _find_output(dataset: BenchmarkDatasetConfig, script: Path) -> Path:
    """Return where the rows go: in the root that the script was found in."""
    root = next((root for root in component_search_roots() if root / dataset.prepare_script == script), Path.cwd())
    return root / dataset.jsonl_fpath


def _run(jobs: Sequence[_Job], arguments: Mapping[str, Any], processes: int, config: DictConfig) -> list[Path]:
    workers = min(processes, len(jobs))
    if workers <= 1:
        return [_run_one(job.script, arguments) for job in jobs]
    text = OmegaConf.to_yaml(config)
    with ProcessPoolExecutor(workers, get_context("spawn"), initializer=_use_config, initargs=(text,)) as pool:
        return list(pool.map(_run_one, [job.script for job in jobs], [arguments] * len(jobs)))


def _use_config(text: str) -> None:
    """In a process of its own, a script finds the same config."""
    set_global_config_dict(
        GlobalConfigDictParserConfig(
            initial_global_config_dict=OmegaConf.create(text),
            skip_load_from_cli=True,
            skip_load_from_dotenv=True,
            offline=True,
        )
    )


def _run_one(script: Path, arguments: Mapping[str, Any]) -> Path:
    return run_prepare(script, load_prepare(script, component_search_roots()), arguments)


def _require_declared(job: _Job, path: Path) -> None:
    if path.resolve() == job.output.resolve():
        return
    raise PrepareError(
        f"{job.script}: prepare() wrote {str(path)!r}, but dataset {job.dataset.name!r} of {job.agent!r} is "
        f"{str(job.output)!r}.\nhint: let `jsonl_fpath` and prepare() name the same file"
    )


def _check_rows(job: _Job) -> int:
    """Return how many rows the file has; each is a JSON object that makes a prompt, or brings one along."""
    prompt = load_prompt_config(job.dataset.prompt_config) if job.dataset.prompt_config else None
    count, offending = 0, dict[str, list[int]]()
    for line in read_lines(job.output):
        count += 1
        if prompt is not None:
            try:
                fill_prompt(prompt, line.row)
            except PromptError as error:
                offending.setdefault(str(error), []).append(line.number)
        elif not (line.row.get(RESPONSES_CREATE_PARAMS_KEY_NAME) or {}).get("input"):
            reason = "no `responses_create_params.input`, and the dataset has no `prompt_config` to make one"
            offending.setdefault(reason, []).append(line.number)
    if not count:
        raise PrepareError(f"{job.output}: prepare() wrote no rows")
    if offending:
        listed = [f"lines {_format_ranges(lines)}: {reason}" for reason, lines in list(offending.items())[:_SHOWN]]
        raise PrepareError(f"{job.output}: rows that cannot be played:\n" + "\n".join(listed))
    return count


def _format_ranges(numbers: Sequence[int]) -> str:
    """Write 1, 2, 3 and 7 as `1-3, 7`."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)


if not TYPE_CHECKING:
    __getattr__ = find_names(__name__)
