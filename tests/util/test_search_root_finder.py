# SPDX-License-Identifier: Apache-2.0
"""Which of several folders `import resources_servers.<name>` takes."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

import nemo_gym
from nemo_gym import PARENT_DIR
from nemo_gym._util.search_root_finder import find_server_folder

SHADOWED = "resources_servers.mcqa"


def write(root: Path, *files: str, content: str = "") -> Path:
    for name in files:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


@pytest.fixture
def roots(tmp_path, monkeypatch):
    """Take the given extra roots for a test, and leave `sys.path` and the loaded servers as they were."""
    monkeypatch.setattr("sys.path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    loaded = {name: module for name, module in sys.modules.items() if name.startswith("resources_servers")}
    for name in loaded:
        del sys.modules[name]

    def take(*roots: Path) -> None:
        monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", os.pathsep.join(map(str, roots)))
        nemo_gym._make_servers_importable()

    yield take
    for name in [name for name in sys.modules if name.startswith("resources_servers")]:
        del sys.modules[name]
    sys.modules.update(loaded)


@pytest.mark.parametrize("outer", [(), ("resources_servers/__init__.py",)], ids=["namespace", "package"])
@pytest.mark.parametrize("inner", [(), ("resources_servers/mcqa/__init__.py",)], ids=["bare", "init"])
def test_a_folder_of_the_users_is_imported_whole_and_the_others_stay(tmp_path, roots, outer, inner):
    write(tmp_path, *outer, *inner)
    write(tmp_path, "resources_servers/mcqa/app.py", content="WHO = 'user'")

    roots()

    assert importlib.import_module(f"{SHADOWED}.app").WHO == "user"
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(f"{SHADOWED}.extraction")
    assert Path(importlib.util.find_spec("resources_servers.math_with_judge.app").origin).is_relative_to(PARENT_DIR)


def test_of_two_extra_roots_the_first_wins_even_if_only_the_second_is_a_package(tmp_path, roots):
    first = write(tmp_path / "first", "resources_servers/mcqa/app.py")
    second = write(tmp_path / "second", "resources_servers/__init__.py", "resources_servers/mcqa/__init__.py")
    write(second, "resources_servers/other/app.py")

    roots(first, second)

    assert list(importlib.import_module(SHADOWED).__path__) == [str(first / "resources_servers/mcqa")]
    assert importlib.util.find_spec("resources_servers.other.app") is not None


def test_a_server_that_a_new_root_hides_is_forgotten(tmp_path, roots):
    roots()
    ours = importlib.import_module(f"{SHADOWED}.extraction")
    write(tmp_path / "late", "resources_servers/mcqa/app.py", content="WHO = 'late'")

    roots(tmp_path / "late")

    from resources_servers import mcqa

    assert list(mcqa.__path__) == [str(tmp_path / "late/resources_servers/mcqa")]
    assert ours.__name__ not in sys.modules


def test_a_server_that_python_has_begun_to_import_stays_what_it_is(tmp_path, roots):
    late = write(tmp_path / "late", "resources_servers/half/app.py")
    early = write(tmp_path / "early", "resources_servers/half/__init__.py")
    taking_a_new_root = "import os, nemo_gym\nos.environ['NEMO_GYM_EXTRA_ROOTS'] = os.environ['LATE']\n"
    write(early, "resources_servers/half/app.py", content=f"{taking_a_new_root}nemo_gym._make_servers_importable()")
    roots(early)
    os.environ["LATE"] = str(late)
    try:
        assert Path(importlib.import_module("resources_servers.half.app").__file__).is_relative_to(early)
    finally:
        del os.environ["LATE"]


def test_a_folder_with_only_data_or_configs_hides_no_code(tmp_path, roots):
    write(tmp_path, "resources_servers/mcqa/data/train.jsonl", "resources_servers/mcqa/configs/mine.yaml")
    roots()
    assert Path(importlib.import_module(SHADOWED).__file__).is_relative_to(PARENT_DIR)
    assert (
        find_server_folder("resources_servers", "mcqa", [tmp_path, PARENT_DIR]) == PARENT_DIR / "resources_servers/mcqa"
    )


def test_files_of_a_folder_without_init_are_found_as_resources(tmp_path, roots):
    from importlib.resources import files

    write(tmp_path, "resources_servers/mcqa/app.py", "resources_servers/mcqa/data/x.txt", content="'mine'")
    roots()
    assert (files(SHADOWED) / "data/x.txt").read_text() == "'mine'"


@pytest.mark.parametrize("place", [".", "resources_servers/mcqa/tests"])
def test_pytest_with_our_plugin_tests_the_servers_of_its_tree(tmp_path, place):
    write(tmp_path, "resources_servers/mcqa/app.py", content="WHO = 'user'")
    # No import of nemo_gym comes first, and nothing puts the root of the tree on `sys.path`.
    test = "from resources_servers.mcqa.app import WHO\n\n\ndef test_who():\n    assert WHO == 'user'\n"
    write(tmp_path, "resources_servers/mcqa/tests/test_app.py", content=test)
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "NEMO_GYM_EXTRA_ROOTS")}
    command = [
        Path(sys.executable).with_name("pytest"),
        "-q",
        "-p",
        "nemo_gym",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
    ]

    done = subprocess.run(command, cwd=tmp_path / place, env=environment, capture_output=True, text=True)

    assert done.returncode == 0, done.stdout
