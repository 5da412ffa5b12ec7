# SPDX-License-Identifier: Apache-2.0
"""`gym env status` against a head server that says what the test wants."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from omegaconf import OmegaConf

from nemo_gym import global_config
from nemo_gym.cli.env import server_status
from nemo_gym.cli.env.server_status import StatusCommand, show_status
from nemo_gym.server_utils import ServerInstanceDisplayConfig
from tests.support.small_servers import free_port


class Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = self.server.body if self.path == "/server_instances" else b"{}"
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def head_server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def run_with(monkeypatch):
    """A head server that lists a weather server, and a model at the given ports; `None` is a live one."""
    with head_server() as server:

        def servers(*ports: int | None) -> None:
            kinds = [("resources_servers", "weather"), ("responses_api_models", "openai_model")]
            listed = [
                {
                    "process_name": f"my_{name}",
                    "name": name,
                    "server_type": kind,
                    "port": port or server.server_port,
                    "pid": 89904,
                    "start_time": 1000.0,
                    "url": f"http://127.0.0.1:{port or server.server_port}",
                }
                for (kind, name), port in zip(kinds, ports, strict=False)
            ]
            server.body = json.dumps(listed).encode()
            monkeypatch.setattr(server_status.time, "time", lambda: 1000.0 + 2 * 86400 + 3 * 3600 + 41.5)

        head = {"head_server": {"host": "127.0.0.1", "port": server.server_port}}
        monkeypatch.setattr(global_config, "_GLOBAL_CONFIG_DICT", OmegaConf.create(head))
        yield servers


def test_healthy_servers_are_listed_as_the_documentation_shows(run_with, capsys):
    run_with(None, None)
    assert show_status([]) == 0
    out = capsys.readouterr().out
    port = int(out.split("'port': ")[1].split(",")[0])
    assert (
        out
        == f"""
NeMo Gym Server Status:

[1] ✓ my_weather (resources_servers/weather)
{{
    'server_type': 'resources_servers',
    'name': 'weather',
    'port': {port},
    'pid': 89904,
    'uptime_seconds': '2d 3h 0m 41.5s',
}}
[2] ✓ my_openai_model (responses_api_models/openai_model)
{{
    'server_type': 'responses_api_models',
    'name': 'openai_model',
    'port': {port},
    'pid': 89904,
    'uptime_seconds': '2d 3h 0m 41.5s',
}}

2 servers found (2 healthy, 0 unhealthy)

"""
    )


def test_one_that_does_not_answer_is_unhealthy_and_a_failure(run_with, capsys):
    run_with(None, free_port())
    assert show_status([]) == 1
    out = capsys.readouterr().out
    assert "[1] ✓ my_weather" in out
    assert "[2] ✗ my_openai_model" in out
    assert "2 servers found (1 healthy, 1 unhealthy)" in out


def test_a_replica_is_shown_with_its_node_and_address(capsys):
    replica = ServerInstanceDisplayConfig(
        process_name="my_weather", name="weather", replica="1-ab12", node="10.0.0.2", url="http://10.0.0.2:1234"
    )
    StatusCommand().display_status([replica])
    out = capsys.readouterr().out
    for line in ("'replica': '1-ab12',", "'node': '10.0.0.2',", "'url': 'http://10.0.0.2:1234',"):
        assert line in out


def test_json_holds_the_status_of_each(run_with, capsys):
    run_with(None, free_port())
    assert show_status(["+json=true"]) == 1
    listed = json.loads(capsys.readouterr().out)
    assert [server["status"] for server in listed] == ["success", "connection_error"]
    assert [server["uptime_seconds"] for server in listed] == [183641.5, 183641.5]


def test_a_run_without_servers_and_no_run_at_all_are_no_failures(run_with, capsys, monkeypatch):
    run_with()
    assert show_status([]) == 0
    nobody = {"head_server": {"host": "127.0.0.1", "port": free_port()}}
    monkeypatch.setattr(global_config, "_GLOBAL_CONFIG_DICT", OmegaConf.create(nobody))
    assert show_status([]) == 0
    out, err = capsys.readouterr()
    assert out == "No NeMo Gym servers found running.\n" * 2
    assert f"No head server answers at 127.0.0.1:{nobody['head_server']['port']}." in err
    assert show_status(["+json=true"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_something_else_on_the_head_port_is_no_run(run_with, capsys, monkeypatch):
    monkeypatch.setattr(Answer, "do_GET", lambda handler: handler.send_error(404))
    assert show_status([]) == 0
    assert "No NeMo Gym servers found running." in capsys.readouterr().out
