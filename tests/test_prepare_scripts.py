# SPDX-License-Identifier: Apache-2.0
import sys
from textwrap import dedent

import pytest

from nemo_gym.benchmarks import PrepareError, check_arguments, load_prepare, run_prepare


@pytest.fixture
def script(tmp_path):
    def write(text: str):
        path = tmp_path / "prepare.py"
        path.write_text(dedent(text))
        return path

    return write


def test_what_prepare_prints_goes_to_stderr_and_its_file_comes_back(script, tmp_path, capsys):
    path = script(
        f"""
        from pathlib import Path

        def prepare(split="test"):
            print("working on", split)
            output = Path({str(tmp_path / "out.jsonl")!r})
            output.touch()
            return str(output)
        """
    )
    assert run_prepare(path, load_prepare(path, []), {"split": "dev"}) == tmp_path / "out.jsonl"
    out, err = capsys.readouterr()
    assert (out, err) == ("", "working on dev\n")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("def prepared(): ...", "has no function `prepare`. Did you mean 'prepared'"),
        ("async def prepare(): ...", "async def"),
        ("import no_such_package", "uv pip install no_such_package"),
        ("def prepare(:", "SyntaxError"),
        ("1 / 0", "ZeroDivisionError"),
    ],
)
def test_a_script_that_cannot_be_called_is_refused_before_it_runs(script, text, complaint):
    path = script(text)
    with pytest.raises(PrepareError) as caught:
        load_prepare(path, [])
    assert complaint in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_script_that_is_not_there_is_named(tmp_path):
    with pytest.raises(PrepareError, match="does not exist"):
        load_prepare(tmp_path / "prepare.py", [])


def test_arguments_that_prepare_does_not_take_are_named_with_its_signature(script):
    path = script("def prepare(split, size=3): ...")
    with pytest.raises(PrepareError, match=r"prepare\(split, size=3\)") as caught:
        check_arguments(path, load_prepare(path, []), {"splt": "x"})
    assert "prepare_script_args" in str(caught.value)


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ("raise RuntimeError('no network')", "prepare() failed: RuntimeError: no network"),
        ("return None", "returned None"),
        ("return 'nowhere.jsonl'", "there is no such file"),
    ],
)
def test_a_script_that_fails_is_one_error_that_names_it(script, body, complaint):
    path = script(f"def prepare():\n    {body}")
    with pytest.raises(PrepareError) as caught:
        run_prepare(path, load_prepare(path, []), {})
    assert complaint in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_script_may_import_its_neighbours(tmp_path, monkeypatch):
    folder = tmp_path / "benchmarks_of_a_test" / "one"
    folder.mkdir(parents=True)
    (folder / "rows.py").write_text("ROWS = 'rows'")
    (folder / "prepare.py").write_text("from .rows import ROWS\ndef prepare(): return ROWS")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert load_prepare(folder / "prepare.py", [tmp_path])() == "rows"
