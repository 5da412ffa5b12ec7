# SPDX-License-Identifier: Apache-2.0
"""Benchmarks: list them, and prepare their data with their own scripts.

A benchmark is a config below `benchmarks/` that declares a dataset of type `benchmark`. `gym eval run` runs one.
"""

import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stdout
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf
from pydantic import BaseModel, Field

from nemo_gym import PARENT_DIR, _resolve_under_cwd_or_install, component_search_roots
from nemo_gym._authoring.components import list_components
from nemo_gym._data.dataset_rows import BadRow, Offending
from nemo_gym._util.jsonl_files import read_lines
from nemo_gym._util.moved_names import find_names
from nemo_gym._util.nearest import did_you_mean
from nemo_gym._util.search_root_finder import import_file
from nemo_gym.config_types import BenchmarkDatasetConfig
from nemo_gym.errors import GymError
from nemo_gym.global_config import (
    RESPONSES_CREATE_PARAMS_KEY_NAME,
    GlobalConfigDictParser,
    GlobalConfigDictParserConfig,
    set_global_config_dict,
)
from nemo_gym.prompt import PromptError, fill_prompt, load_prompt_config

BENCHMARKS_DIR = PARENT_DIR / "benchmarks"
_SHOWN = 5


class PrepareError(GymError):
    """The data of a benchmark could not be prepared."""


class BenchmarkConfig(BaseModel):
    """A benchmark as the catalog lists it."""

    name: str = Field(description="The name that `--benchmark` takes.")
    path: Path = Field(description="The config file.")
    agent_name: str = Field(description="The agent that owns the dataset.")
    num_repeats: int = Field(default=1, description="Rollouts per task.")
    domain: str | None = Field(default=None, description="What it is about.")
    description: str | None = Field(default=None, description="What it measures.")


@dataclass(frozen=True)
class PreparedBenchmark:
    """The data of one benchmark, ready to run."""

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
    """Return all benchmarks in the search roots, sorted by name."""
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
    """Prepare the benchmark datasets of `config`; check all scripts before running the first one.

    Scripts are called with `arguments`, at most `processes` of them at once. With `use_cached`, a script whose output
    file exists is not run.
    """
    arguments = arguments or {}
    jobs = list(_list_jobs(config))
    cached = [job for job in jobs if use_cached and job.output.is_file()]
    todo = [job for job in jobs if job not in cached]
    for job in todo:
        check_arguments(job.script, load_prepare(job.script, component_search_roots()), arguments)
    written = _run(todo, arguments, processes, config)
    for job, path in zip(todo, written, strict=True):
        if path.resolve() != job.output.resolve():
            raise PrepareError(
                f"{job.script}: prepare() wrote {str(path)!r}, but dataset {job.dataset.name!r} of {job.agent!r} is "
                f"{str(job.output)!r}.\nhint: make `jsonl_fpath` and prepare() name the same file"
            )
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
            # The rows go under the root where the script was found.
            roots = (root for root in component_search_roots() if root / dataset.prepare_script == script)
            yield _Job(instance.name, dataset, script, next(roots, Path.cwd()) / dataset.jsonl_fpath)
    if not found:
        loaded = ", ".join(config.get("config_paths") or []) or "none"
        raise PrepareError(
            f"the config has no dataset of type `benchmark`, so there is nothing to prepare.\n"
            f"loaded config files: {loaded}\n"
            "hint: `gym eval prepare --benchmark NAME`; `gym list benchmarks` shows the names"
        )


def _run(jobs: Sequence[_Job], arguments: Mapping[str, Any], processes: int, config: DictConfig) -> list[Path]:
    workers = min(processes, len(jobs))
    if workers <= 1:
        return [_run_one(job.script, arguments) for job in jobs]
    text = OmegaConf.to_yaml(config)
    with ProcessPoolExecutor(workers, get_context("spawn"), initializer=_use_config, initargs=(text,)) as pool:
        return list(pool.map(_run_one, [job.script for job in jobs], [arguments] * len(jobs)))


def _use_config(text: str) -> None:
    """Set the config of this process, so that a script sees its parent's config."""
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


def _check_rows(job: _Job) -> int:
    """Return how many rows the file has; each must be a JSON object with a prompt, or with what one is made from."""
    prompt = load_prompt_config(job.dataset.prompt_config) if job.dataset.prompt_config else None
    count = 0
    offending = Offending(job.output)
    for line in read_lines(job.output):
        count += 1
        if prompt is not None:
            try:
                fill_prompt(prompt, line.row)
            except PromptError as error:
                offending.add(line.number, BadRow((str(error),)))
        elif not (line.row.get(RESPONSES_CREATE_PARAMS_KEY_NAME) or {}).get("input"):
            reason = "no `responses_create_params.input`, and the dataset has no `prompt_config` to make one"
            offending.add(line.number, BadRow((reason,)))
    if not count:
        raise PrepareError(f"{job.output}: prepare() wrote no rows")
    if offending:
        raise PrepareError("these rows cannot be played:\n" + "\n".join(offending.describe()[:_SHOWN]))
    return count


# --- prepare scripts: load one, check its arguments, run it -----------------------------------------------------------


def load_prepare(script: Path, roots: Sequence[Path]) -> Callable[..., Any]:
    """Return the function `prepare` of `script`, which may import its neighbors by their path below a root."""
    if not script.is_file():
        raise PrepareError(f"the prepare script {str(script)!r} does not exist.\nhint: correct `prepare_script`")
    try:
        module = _import_by_name(script, roots) or _load_by_path(script)
    except Exception as error:  # a script can fail in any way while it loads
        text = f"{script}: cannot be loaded: {type(error).__name__}: {error}"
        if isinstance(error, ModuleNotFoundError) and error.name:
            text += f"\nhint: install what it needs, for example `uv pip install {error.name.partition('.')[0]}`"
        raise PrepareError(text) from error
    function = getattr(module, "prepare", None)
    if not callable(function):
        defined = [name for name, value in vars(module).items() if inspect.isfunction(value)]
        raise PrepareError(
            f"{script}: has no function `prepare`. {did_you_mean('prepare', defined)}\n"
            "hint: `def prepare() -> Path:` writes the rows and returns their path"
        )
    if inspect.iscoroutinefunction(function):
        raise PrepareError(f"{script}: `prepare` is an `async def`, but it must be a plain function")
    loaded: Callable[..., Any] = function
    return loaded


def check_arguments(script: Path, prepare: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    """Raise PrepareError for arguments that `prepare` does not take, before anything runs."""
    signature = inspect.signature(prepare)
    try:
        signature.bind(**arguments)
    except TypeError as error:
        raise PrepareError(
            f"{script}: prepare{signature} cannot be called with {dict(arguments)}: {error}.\n"
            "hint: pass arguments as `++prepare_script_args.<name>=<value>`"
        ) from error


def run_prepare(script: Path, prepare: Callable[..., Any], arguments: Mapping[str, Any]) -> Path:
    """Call `prepare` with its output sent to stderr, and return the file it wrote, checking that it exists."""
    try:
        with redirect_stdout(sys.stderr):
            result = prepare(**arguments)
    except Exception as error:  # a script can fail in any way
        raise PrepareError(f"{script}: prepare() failed: {type(error).__name__}: {error}") from error
    if not isinstance(result, str | Path):
        raise PrepareError(f"{script}: prepare() returned {result!r}, not the path of the file it wrote")
    path = Path(result)
    if not path.is_file():
        raise PrepareError(f"{script}: prepare() returned {str(path)!r}, but there is no such file")
    return path


def _import_by_name(script: Path, roots: Sequence[Path]) -> ModuleType | None:
    """Import the script by its module name below a root; None if that name leads to another file."""
    root = next((root for root in roots if script.resolve().is_relative_to(root.resolve())), None)
    if root is None:
        return None
    parts = script.resolve().relative_to(root.resolve()).with_suffix("").parts
    if not all(part.isidentifier() for part in parts):
        return None
    name = ".".join(parts)
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError:
        return None
    if spec is None or spec.origin is None or Path(spec.origin).resolve() != script.resolve():
        return None
    return importlib.import_module(name)


def _load_by_path(script: Path) -> ModuleType:
    digest = hashlib.sha256(str(script.resolve()).encode()).hexdigest()[:12]
    return import_file(f"_nemo_gym_prepare_{digest}", script)


if not TYPE_CHECKING:
    __getattr__ = find_names(__name__)
