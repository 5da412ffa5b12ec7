# SPDX-License-Identifier: Apache-2.0
"""What is exported for a library is read by that library itself: its types, its loaders, and a step of its trainers.

The environments are large and built anew, so these tests are exhaustive; `formats/test_formats.py` reads the same
formats without any library. What a library defines in a file that cannot be imported without a cluster's worth of
packages is taken out of that file (`libraries/definitions.py`).
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nemo_gym import PARENT_DIR
from nemo_gym._training.export import FORMATS, export_rollouts
from tests.training.rollout_rows import make_failure, make_row, read_records, write_rows

CHECKS = Path(__file__).parent / "libraries"
TORCH = ["torch==2.13.0", "trl==1.16.*", "fastapi", "httpx"]


@pytest.fixture
def exported(tmp_path):
    """Every format, of rollouts among which there are a fork and a failure."""
    rows = [make_row(0, 0, 1.0), make_row(0, 1, 0.0), make_row(1, 0, 1.0, history=[1, 2, 99]), make_row(1, 1, 0.5)]
    write_rows(tmp_path / "rollouts_failures.jsonl", [make_failure(0, 2)])
    file = write_rows(tmp_path / "rollouts.jsonl", rows)
    folder = tmp_path / "exported"
    for name in FORMATS:
        export_rollouts([file], name, folder / f"{name}.jsonl")
    export_rollouts([file], "verl", folder / "verl.parquet")
    return folder


@pytest.mark.exhaustive
@pytest.mark.network
@pytest.mark.timeout(3000)
@pytest.mark.parametrize(
    ("check", "python", "wanted", "without_dependencies"),
    [
        ("check_torch.py", "3.11", TORCH, ["verl==0.9.1", "openrlhf==0.11.2", "atroposlib==0.4.0"]),
        (
            "check_python312.py",
            "3.12",
            ["openpipe-art==0.5.23", "duckdb", "numpy", "pyarrow"],
            ["harbor==0.25.0", "skyrl==0.4.0"],
        ),
        ("check_verifiers.py", "3.11", ["verifiers==0.4.0"], []),
    ],
    ids=["torch", "python312", "verifiers"],
)
def test_a_library_reads_what_was_exported_for_it(check, python, wanted, without_dependencies, exported, tmp_path):
    own = tmp_path / "venv/bin/python"
    run(find_python(python), "-m", "venv", tmp_path / "venv")
    run(own, "-m", "pip", "install", "--quiet", "--no-cache-dir", *wanted)
    if without_dependencies:
        run(own, "-m", "pip", "install", "--quiet", "--no-cache-dir", "--no-deps", *without_dependencies)
    print(run(own, CHECKS / check, exported, HF_HOME=str(tmp_path / "hf"), HF_HUB_OFFLINE="1").splitlines()[-1])


@pytest.mark.exhaustive
@pytest.mark.network
@pytest.mark.timeout(600)
def test_a_real_tokenizer_tells_a_history_that_was_tokenized_anew_from_an_edited_one(tmp_path):
    """ "ab" is one token; the history spells it as two."""
    packages = tmp_path / "packages"
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-cache-dir", "--target", packages, "tokenizers")
    words = {"<s>": 0, "a": 1, "b": 2, "ab": 3, "c": 4}
    make = (
        "import sys; from tokenizers import Tokenizer, models, decoders;"
        f"t = Tokenizer(models.BPE(vocab={words}, merges=[('a', 'b')])); t.decoder = decoders.Fuse();"
        "t.add_special_tokens(['<s>']); t.save(sys.argv[1])"
    )
    run(sys.executable, "-c", make, tmp_path / "tokenizer.json", PYTHONPATH=str(packages))
    rows = [make_row(0, 0, 1.0, history=[0, 1, 2, 4]), make_row(0, 1, 0.0, history=[0, 1, 4])]
    for row in rows:
        row["response"]["output"][1] |= {"prompt_token_ids": [0], "generation_token_ids": [3]}
        row["response"]["output"][1]["generation_log_probs"] = [-0.5]
    file = write_rows(tmp_path / "rollouts.jsonl", rows)
    gym = [sys.executable, "-c", "from nemo_gym.cli.main import main; main()"]
    where = {"PYTHONPATH": os.pathsep.join([str(packages), str(PARENT_DIR)])}
    words = ["export", file, "--to", "trl", "-o", tmp_path / "out.jsonl", "--tokenizer", tmp_path]
    assert "1 realigned, 1 forked" in run(*gym, *words, **where)
    first = read_records(tmp_path / "out.jsonl")[0]
    assert first["completion_ids"] == [3, 4, 7, 8, 9]
    said = run(*gym, "eval", "tokens", file, "--tokenizer", tmp_path, **where)
    assert "history '<s>ab'" in said


def find_python(version):
    """The interpreter of that version, where there is one."""
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        return sys.executable
    managed = sorted((Path.home() / ".pyenv/versions").glob(f"{version}.*/bin/python"))
    for name in (*managed, f"python{version}"):
        try:
            done = subprocess.run([str(name), "-c", "import venv"], capture_output=True)
        except FileNotFoundError:
            continue
        if done.returncode == 0:
            return str(name)
    pytest.skip(f"there is no Python {version}")


def run(*command, **environment):
    done = subprocess.run(
        list(map(str, command)), env={**os.environ, **environment}, capture_output=True, text=True, cwd=PARENT_DIR
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-8000:]
    return done.stdout
