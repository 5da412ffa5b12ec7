# SPDX-License-Identifier: Apache-2.0
import os
import stat
import subprocess
import sys

import pytest

from nemo_gym._servers.processes.private_run_files import private_file


def test_a_file_is_there_for_its_user_only_and_as_long_as_the_context(tmp_path):
    folder = tmp_path / "new"
    with private_file(folder, "secret: 1") as path:
        assert path.read_text() == "secret: 1"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert list(folder.iterdir()) == []


def test_it_goes_also_after_an_error(tmp_path):
    with pytest.raises(RuntimeError), private_file(tmp_path, ""):
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_is_removed_and_nothing_else(tmp_path):
    killed = "import os, sys; from pathlib import Path\n"
    killed += "from nemo_gym._servers.processes.private_run_files import private_file\n"
    killed += "with private_file(Path(sys.argv[1]), ''): os._exit(9)"
    subprocess.run([sys.executable, "-c", killed, str(tmp_path)], check=False)
    (left,) = tmp_path.iterdir()
    elsewhere = tmp_path / left.name.replace(os.uname().nodename, "another-machine")
    for path in (elsewhere, tmp_path / "head-127.0.0.1-11000.token", tmp_path / f"run-x-{os.getpid()}.txt"):
        path.touch()
    with private_file(tmp_path, "") as first, private_file(tmp_path, "") as second:
        assert first != second
        assert not left.exists()
        assert len(list(tmp_path.iterdir())) == 5
    assert elsewhere.exists()
