# SPDX-License-Identifier: Apache-2.0
"""Clients that poll servers while these start, as trainers' plugins do: two seconds a try, again only if refused."""

import urllib.error
import urllib.request

import pytest

from tests.support.small_servers import start, until, write_server

pytestmark = pytest.mark.slow

SERVERS = {"inline": {"placement": "inline"}, "process": {"placement": "process"}, "workers": {"num_workers": 2}}
WAIT_FOR_GO = """
from pathlib import Path
Path({folder!r}, "loading-{name}").touch()
while not Path({folder!r}, "go").exists():
    time.sleep(0.02)
"""


def answers(port: int) -> bool:
    """Poll once; whatever is neither an answer nor a refusal is the crash of such a client."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=300) as response:
            return response.status == 200
    except urllib.error.URLError as error:
        if not isinstance(error.reason, ConnectionRefusedError):
            raise
        return False


@pytest.mark.thorough
def test_ports_refuse_until_their_servers_answer_in_every_placement(tmp_path):
    ports = {}
    for name, where in SERVERS.items():
        wait = WAIT_FOR_GO.format(folder=str(tmp_path), name=name)
        ports[name] = write_server(tmp_path, name, on_setup=wait, **where)
    with start(tmp_path, *SERVERS) as run:
        until(lambda: answers(run.head_port), "the head server answers")
        loading = [tmp_path / f"loading-{name}" for name in SERVERS]
        until(lambda: all(file.exists() for file in loading), "every server has its port and is being loaded")
        assert not any(answers(port) for port in ports.values())
        (tmp_path / "go").touch()
        for name, port in ports.items():
            until(lambda port=port: answers(port), f"{name!r} answers")
        run.wait_until_ready()
        assert all(map(answers, (run.head_port, *ports.values())))
