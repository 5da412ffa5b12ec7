# SPDX-License-Identifier: Apache-2.0
import os
import subprocess
import sys
from pathlib import Path

import nemo_gym
from nemo_gym import PARENT_DIR, _resolve_under_cwd_or_install, component_search_roots


def test_every_name_is_exported_and_the_list_is_sorted():
    assert nemo_gym.__all__ == sorted(nemo_gym.__all__)
    for name in nemo_gym.__all__:
        assert getattr(nemo_gym, name) is not None
    assert set(nemo_gym.__all__) <= set(dir(nemo_gym))


def test_extra_roots_come_before_the_current_and_the_install_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", os.pathsep.join(["/a", "/b", "", "/a"]))
    monkeypatch.chdir(tmp_path)
    assert component_search_roots() == [Path("/a"), Path("/b"), tmp_path, PARENT_DIR]


def test_entries_of_sys_path_can_be_search_roots_too(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    roots = component_search_roots(sys_path=["", str(tmp_path), "/c", str(PARENT_DIR)])
    assert roots == [Path("/c"), tmp_path, PARENT_DIR]


def test_a_relative_path_is_found_in_the_first_root_that_has_it(monkeypatch, tmp_path):
    (tmp_path / "extra" / "data").mkdir(parents=True)
    (tmp_path / "extra" / "data" / "x.jsonl").touch()
    monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", str(tmp_path / "extra"))
    assert _resolve_under_cwd_or_install("data/x.jsonl") == tmp_path / "extra" / "data" / "x.jsonl"
    assert _resolve_under_cwd_or_install("nowhere") == tmp_path / "extra" / "nowhere"
    assert _resolve_under_cwd_or_install("/abs") == Path("/abs")


def test_servers_can_be_imported_in_the_folder_of_one(tmp_path):
    folder = tmp_path / "resources_servers" / "mine"
    folder.mkdir(parents=True)
    (folder / "app.py").write_text("answer = 42")
    code = "import nemo_gym; from resources_servers.mine.app import answer; print(answer)"
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True)
    assert done.stdout == "42\n"


def test_servers_of_extra_roots_can_be_imported(tmp_path):
    folder = tmp_path / "resources_servers" / "mine"
    folder.mkdir(parents=True)
    (folder / "app.py").write_text("WHO = 'mine'\n")
    code = (
        "import nemo_gym; import resources_servers.mine.app as m; "
        "import resources_servers.example_single_tool_call.app; print(m.WHO)"
    )
    environment = {**os.environ, "NEMO_GYM_EXTRA_ROOTS": str(tmp_path)}
    out = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout
    assert out.strip() == "mine"


def run_pytest(folder: Path, *options: str) -> tuple[int, str]:
    command = [Path(sys.executable).with_name("pytest"), "-q", "-p", "no:cacheprovider", *options, str(folder)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def test_pytest_loads_nothing_of_this_package_unless_a_project_asks(tmp_path):
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_it.py").write_text("import sys\ndef test_it(): assert 'nemo_gym' not in sys.modules\n")
    code, said = run_pytest(tmp_path)
    assert code == 0, said


def test_a_project_asks_for_its_servers_in_the_settings_of_pytest(tmp_path):
    folder = tmp_path / "resources_servers" / "mine"
    (folder / "tests").mkdir(parents=True)
    (folder / "app.py").write_text("answer = 42")
    test = folder / "tests" / "test_it.py"
    test.write_text("from resources_servers.mine.app import answer\ndef test_it(): assert answer == 42\n")
    settings = tmp_path / "pytest.ini"
    settings.write_text("[pytest]\naddopts =\n")
    assert run_pytest(tmp_path)[0] != 0
    settings.write_text("[pytest]\naddopts = -p nemo_gym\n")
    code, said = run_pytest(tmp_path)
    assert code == 0, said
