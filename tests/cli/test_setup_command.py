# SPDX-License-Identifier: Apache-2.0
import subprocess
import sys
from pathlib import Path

import pytest

from nemo_gym.cli.setup_command import run_command, setup_env_command
from nemo_gym.global_config import GlobalConfigDictParser


@pytest.fixture
def server(tmp_path: Path) -> Path:
    folder = tmp_path / "my servers" / "shop"
    folder.mkdir(parents=True)
    (folder / "requirements.txt").write_text("pydantic\n")
    (folder / "app.py").write_text("import neighbour, sys; print(sys.executable, neighbour.NAME); sys.exit(7)\n")
    (folder / "neighbour.py").write_text("NAME = 'shop'\n")
    return folder


async def test_a_server_can_be_run_by_hand_also_inside_an_event_loop(server: Path, capfd: pytest.CaptureFixture[str]):
    config = GlobalConfigDictParser().parse_no_environment()
    command = setup_env_command(server, config, "shop")
    process = run_command(f"{command} && python app.py", server.parent)
    assert process.wait(300) == 7
    assert capfd.readouterr().out.split() == [sys.executable, "shop"]


def test_a_command_imports_from_its_folder_and_from_where_it_did_before(
    server: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    (tmp_path / "elsewhere.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    process = run_command(f"{sys.executable} -c 'import neighbour, elsewhere'", server)
    assert isinstance(process, subprocess.Popen)
    assert process.wait(300) == 0
