# SPDX-License-Identifier: Apache-2.0
"""The manifest of a run, `<stem>_run.json`: versions, code, config, input, settings, times and counts.

A resumed run is compared with it, so that the rows of two different runs do not end up in one file. Whoever passes the
config in masks its secrets. A run may be a shard: one of several parts that are collected separately, on machines that
do not know of each other. Tasks are assigned to shards by their index in the whole input, and keep that index.
"""

import hashlib
import os
import platform
import re
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import orjson
from pydantic import BaseModel, Field, ValidationError

from nemo_gym._config.secret_lookup import hide_secrets
from nemo_gym._rollouts.input_lines import is_stream
from nemo_gym._rollouts.run_paths import RunFileError, write_error
from nemo_gym._util.atomic_files import write_atomically
from nemo_gym._version import __version__

SCHEMA = 1
Status = Literal["running", "finished", "interrupted", "failed"]
_GIT_TIMEOUT_S = 5.0
_VALUE_SHOWN = 80
_ABSENT = object()

# Where a run happens and how fast: changing these gives the same rollouts. `config_paths` is here because the content
# of the files is compared itself.
_INCIDENTAL_SETTINGS = frozenset(
    {
        "access_token", "allow_failures", "allow_openai_version_skew", "allow_other_users", "allowed_hosts",
        "cache_dir", "config_paths", "default_host", "default_placement",
        "disable_aggregation", "disallowed_ports", "dry_run", "entrypoint", "head_server",
        "head_server_deps", "hf_token", "input_jsonl_fpath", "json", "max_failure_rate",
        "max_model_reply_bytes", "max_server_reply_bytes", "model_call_capture_dir",
        "model_endpoint_readiness_timeout_seconds", "nemo_gym_log_dir", "no_serve", "num_samples_in_parallel",
        "observability_enabled", "output_jsonl_fpath", "pip_install_verbose", "port_range_high", "port_range_low",
        "python_version", "quiet", "ray_head_node_address", "results_dir", "resume_from_cache",
        "reuse_existing_data_preparation", "rollout_timeout_seconds", "server_startup_timeout_seconds",
        "skip_venv_if_present", "upload_rollouts", "use_absolute_ip", "uv_cache_dir", "uv_pip_set_python",
        "uv_venv_dir", "verbose", "wait_for_model",
    }
)  # fmt: skip
# The same for settings of individual servers. Endpoints move between machines; the model's name is compared.
_INCIDENTAL = re.compile(r"(^|_)(host|port|placement|num_workers|base_url|api_key)$|^(global_aiohttp|mlflow|wandb)_")


class Counts(BaseModel, frozen=True):
    """What became of the planned rollouts: requested = scored + failed + not_played."""

    requested: int
    """Tasks times repeats."""
    scored: int = 0
    """Ended with a reward."""
    failed: int = 0
    """Ended without a reward."""
    not_played: int = 0
    """Had not ended when the run did."""
    by_kind: dict[str, int] = Field(default_factory=dict)
    """The failed ones by kind of failure."""


class InputIdentity(BaseModel, frozen=True):
    """Identifies the input."""

    path: str
    size_bytes: int
    sha256: str


class GitState(BaseModel, frozen=True):
    """Identifies the code."""

    commit: str
    dirty: bool


class Manifest(BaseModel, frozen=True):
    """Describes a run."""

    schema_: int = Field(default=SCHEMA, alias="schema")
    """The version of this format."""
    status: Status = "running"
    """How the run ended, or that it is still running."""
    started_at: str = Field(default_factory=lambda: now())
    """When it began, in UTC."""
    resumed_at: str | None = None
    """When it was last resumed."""
    ended_at: str | None = None
    """When it ended."""
    counts: Counts
    """What became of the planned rollouts."""
    most_in_flight: int | None = None
    """The most rollouts that ran at once since the run was started or resumed; set when it ends."""
    input: InputIdentity
    """The input tasks: the path of their file, its size and its SHA-256."""
    plan_sha256: str | None = None
    """The SHA-256 of the materialized inputs; null in a run that has none of its own."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """The settings of the plan: repeats, limit, prompt and so on."""
    config: dict[str, Any] = Field(default_factory=dict)
    """The whole config, with secrets masked."""
    nemo_gym: str = __version__
    """The version of this package."""
    python: str = Field(default_factory=platform.python_version)
    """The version of Python."""
    git: GitState | None = None
    """The commit that was checked out, and whether there were changes; null outside a repository."""

    def continue_from(self, old: "Manifest | None") -> "Manifest":
        """Return this run as the continuation of `old`."""
        return self.model_copy(update={"started_at": (old or self).started_at, "resumed_at": self.started_at})

    def end(self, status: Status, counts: Counts, most_in_flight: int | None = None) -> "Manifest":
        """Return this run with what is known once it is over."""
        known = {"status": status, "counts": counts, "most_in_flight": most_in_flight, "ended_at": now()}
        return self.model_copy(update=known)


@dataclass(frozen=True)
class Shard:
    """Part `number`, from 1, of `total`."""

    number: int
    total: int

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """Parse `K/N`; raise ValueError unless 1 ≤ K ≤ N."""
        found = re.fullmatch(r"\s*(\d+)\s*/\s*(\d+)\s*", text)
        if found is None or not 1 <= int(found[1]) <= int(found[2]):
            raise ValueError(f"must be K/N with K from 1 to N, such as 1/4, not {text!r}")
        return cls(int(found[1]), int(found[2]))

    def holds(self, task: int) -> bool:
        """Return whether the task with this index belongs to the shard."""
        return task % self.total == self.number - 1

    def __str__(self) -> str:
        return f"{self.number}/{self.total}"


def describe_missing(shards: Sequence[Shard]) -> str | None:
    """Say what is missing to make the non-empty `shards` a whole run; None if nothing is."""
    totals = sorted({shard.total for shard in shards})
    if len(totals) > 1:
        cuts = " and ".join(map(str, totals))
        return f"these shards are cut in different ways, into {cuts} parts, so tasks may be missing"
    found = sorted(shard.number for shard in shards)
    missing = [number for number in range(1, totals[0] + 1) if number not in found]
    if not missing:
        return None
    there = ", ".join(map(str, found))
    absent = ", ".join(map(str, missing))
    return f"shards {there} of {totals[0]} were found; {absent} missing"


def now() -> str:
    """Return the current time in the format used in a run's files."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def write_manifest(path: Path, manifest: Manifest) -> None:
    """Replace the manifest atomically."""
    content = orjson.dumps(
        manifest.model_dump(by_alias=True), default=str, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS
    )
    try:
        write_atomically(path, content + b"\n")
    except OSError as error:
        raise write_error(path, error, "make room there; the rollouts recorded so far can be resumed") from error


def read_manifest(path: Path) -> Manifest | None:
    """Read the manifest of the earlier run; None if there is none, as for files that other tools wrote."""
    try:
        content = orjson.loads(path.read_bytes())
        if isinstance(content, dict) and content.get("schema") != SCHEMA:
            raise RunFileError(
                f"{path} has schema {content.get('schema')!r}; this version of nemo_gym reads {SCHEMA}.\n"
                f"hint: resume with the version that began the run ({content.get('nemo_gym')!r})"
            )
        return Manifest.model_validate(content)
    except FileNotFoundError:
        return None
    except (orjson.JSONDecodeError, ValidationError) as error:
        raise RunFileError(
            f"{path} is not the manifest of a run: {error}\n"
            f"hint: remove it to resume without checking that input, settings and config are the same"
        ) from error


def identify_input(path: str | os.PathLike[str], materialized: Path) -> InputIdentity:
    """Identify the input `path`; one that can be read only once is identified by the plan made from it."""
    file = Path(path)
    if is_stream(path):
        file = materialized
    return InputIdentity(path=str(path), size_bytes=file.stat().st_size, sha256=hash_file(file))


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with open(path, "rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def read_git_state(folder: str | os.PathLike[str]) -> GitState | None:
    """Return which commit is checked out in `folder`, and whether tracked files differ; None outside a repository."""
    command = ["git", "--no-optional-locks", "-C", str(folder), "status", "--porcelain=v2", "--branch", "-uno"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_GIT_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    lines = done.stdout.splitlines()
    commit = next((line.split()[-1] for line in lines if line.startswith("# branch.oid ")), "")
    return GitState(commit=commit, dirty=any(not line.startswith("#") for line in lines))


def find_differences(old: Manifest, new: Manifest, incidental: Collection[str] = _INCIDENTAL_SETTINGS) -> list[str]:
    """Return the reasons why rollouts of `new` must not be mixed with those of `old`, one per line."""
    found = []
    if old.input.sha256 != new.input.sha256:
        found.append(
            f"input: {old.input.path} ({old.input.size_bytes} bytes, sha256 {old.input.sha256[:12]}…) → "
            f"{new.input.path} ({new.input.size_bytes} bytes, sha256 {new.input.sha256[:12]}…)"
        )
    found.extend(_compare("settings", _read_back(old.settings), _read_back(new.settings)))
    configs = [_read_back(manifest.config) for manifest in (old, new)]
    for key in incidental:
        for config in configs:
            config.pop(key, None)
    found.extend(_compare("config", *configs))
    return found


def _compare(place: str, old: Any, new: Any) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            if not _INCIDENTAL.search(key):
                yield from _compare(f"{place}.{key}", old.get(key, _ABSENT), new.get(key, _ABSENT))
    elif old != new:
        yield f"{place}: {_shorten(old)} → {_shorten(new)}"


def _read_back(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return `value` as it reads back from the file; masked again, because an older version may have masked less."""
    plain: dict[str, Any] = orjson.loads(orjson.dumps(dict(value), default=str, option=orjson.OPT_NON_STR_KEYS))
    hide_secrets(plain)
    return plain


def _shorten(value: Any) -> str:
    if value is _ABSENT:
        return "not set"
    text = repr(value)
    return text if len(text) <= _VALUE_SHOWN else f"{text[:_VALUE_SHOWN]}…"
