# SPDX-License-Identifier: Apache-2.0
"""One replica on its node, without Ray around it: the code, the server process, and what is told of both."""

import os
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from omegaconf import OmegaConf

from nemo_gym import PARENT_DIR
from nemo_gym._servers.process_environment import find_machine_id
from nemo_gym._servers.ray import replica_actor as ray_actor
from nemo_gym._servers.ray.replica_actor import ReplicaActor, fingerprint_roots, merge_environment, unpack
from nemo_gym._servers.ray.replica_placement import describe_code, pack_code
from nemo_gym._servers.ray.replicas import name_replica_cookie
from nemo_gym.errors import ConfigError
from nemo_gym.global_config import GlobalConfigDictParser

PATIENCE_S = 300
BUILD_PATIENCE_S = 600.0
APP = """
import os
from nemo_gym.base_resources_server import BaseVerifyRequest, SimpleResourcesServer

class Tiny(SimpleResourcesServer):
    def setup_webserver(self):
        app = super().setup_webserver()
        app.get("/secret")(lambda: os.environ["A_SECRET"])
        app.get("/end")(lambda: os._exit(3))
        return app

    async def verify(self, body: BaseVerifyRequest):
        raise NotImplementedError

if __name__ == "__main__":
    print("hello from", os.path.dirname(os.path.abspath(__file__)))
    Tiny.run_webserver()
"""


@pytest.fixture
def root(tmp_path) -> Path:
    """A user's folder with one server in it."""
    folder = tmp_path / "mine" / "resources_servers" / "tiny"
    folder.mkdir(parents=True)
    (folder / "app.py").write_text(APP)
    return tmp_path / "mine"


@pytest.fixture
def head_port() -> Iterator[int]:
    """Something that answers where the head server is."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


@pytest.fixture(autouse=True)
def node(monkeypatch):
    """What a replica asks of Ray."""
    ray = SimpleNamespace(util=SimpleNamespace(get_node_ip_address=lambda: "127.0.0.1"), get=lambda value: value)
    monkeypatch.setitem(sys.modules, "ray", ray)


@pytest.fixture
def order(root, head_port, tmp_path) -> dict[str, Any]:
    """What the launching process says to the actor."""
    block = {"entrypoint": "app.py", "domain": "other", "placement": "ray", "host": "127.0.0.1", "port": 1}
    settings = {"tiny": {"resources_servers": {"tiny": block}}, "head_server": {"host": "127.0.0.1", "port": head_port}}
    settings |= {"cache_dir": str(tmp_path / "cache"), "allow_unknown_keys": True}
    config = GlobalConfigDictParser().parse_no_environment(OmegaConf.create(settings))
    return {
        "replica_id": "0-abcd",
        "task": {
            "server": "tiny",
            "server_type": "resources_servers",
            "impl": "tiny",
            "config": OmegaConf.to_yaml(config),
            "token": "the token of the run",
            "machine": find_machine_id(),
            "launcher_address": "10.0.0.1",
            "launcher_hosts": {"policy_model": "127.0.0.1"},
        },
        "environment": {"A_SECRET": "swordfish", "PATH": "/nowhere"},
        "code": describe_code(sys.executable, [root, PARENT_DIR]),
        "bundle": (),
        "uv": (),
    }


def wait_for(
    actor: ReplicaActor, known: Callable[[dict[str, Any]], bool], within_s: float = PATIENCE_S
) -> dict[str, Any]:
    """Return what the actor reports once `known` is true of its facts."""
    ends_at, version = time.monotonic() + within_s, 0
    while time.monotonic() < ends_at:
        report = actor.report(version, 0, 1.0)
        if known(report["facts"]):
            return report
        version = report["version"]
    pytest.fail(f"not in time: {report}")


@contextmanager
def running(order: dict[str, Any]) -> Iterator[tuple[ReplicaActor, dict[str, Any]]]:
    actor = ReplicaActor()
    actor.start(order)
    try:
        yield actor, wait_for(actor, lambda facts: "port" in facts or "ended" in facts, BUILD_PATIENCE_S)
    finally:
        actor.stop()


def get(facts: dict[str, Any], path: str, **headers: str) -> Any:
    request = urllib.request.Request(f"http://{facts['host']}:{facts['port']}{path}", headers=headers)
    return urllib.request.urlopen(request, timeout=PATIENCE_S)


@pytest.mark.thorough
def test_a_replica_serves_on_a_port_of_its_own_and_ends_with_its_actor(order, root):
    with running(order) as (actor, report):
        facts = report["facts"]
        assert "port" in facts, report
        with get(facts, "/secret") as reply:
            assert reply.read() == b'"swordfish"'
            cookies = reply.headers.get_all("set-cookie")
        assert any(cookie.startswith(f"{name_replica_cookie('tiny')}=0-abcd;") for cookie in cookies)
        assert f"hello from {root / 'resources_servers' / 'tiny'}" in report["lines"]
        process = psutil.Process(facts["pid"])
        told = " ".join(word for one in (process, *process.parents()) for word in one.cmdline())
        assert "swordfish" not in told
        assert "the token of the run" not in told
        # A second order, by someone who did not hear of the first, changes nothing.
        assert actor.start({**order, "replica_id": "0-other"})["replica_id"] == "0-abcd"
        actor._host.stdin.close()  # what the system does when the process of the actor dies
        process.wait(PATIENCE_S)
        wait_for(actor, lambda facts: "ended" in facts)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("path", "how"), [("/end", "exited with code 3"), (None, "ended with exit code 0")])
def test_the_end_of_a_replica_is_told(order, path, how):
    with running(order) as (actor, report):
        process = psutil.Process(report["facts"]["pid"])
        if path is None:
            actor.stop()
        else:
            with pytest.raises(OSError):
                get(report["facts"], path)
        assert wait_for(actor, lambda facts: "ended" in facts)["facts"]["ended"] == how
        assert not process.is_running()


def test_a_node_without_the_files_that_was_sent_none_says_so(order):
    order["code"]["fingerprint"] = "of other files"
    with running(order) as (_, report):
        assert f"lacks the files of the launching process, such as {PARENT_DIR}" in report["facts"]["ended"]


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.exhaustive
@pytest.mark.timeout(900)
def test_a_node_without_the_files_is_sent_them_and_builds_an_environment_once(order, root, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "node"))
    order["code"] = {**order["code"], "fingerprint": "of other files", "python": "/nowhere/python"}
    order["bundle"] = (pack_code([root, PARENT_DIR]),)
    with running(order) as (_, report):
        assert "port" in report["facts"], report
        with get(report["facts"], "/secret") as reply:
            assert reply.read() == b'"swordfish"'
        (said,) = [line for line in report["lines"] if line.startswith("hello from ")]
        assert said.startswith(f"hello from {tmp_path / 'node'}")
    assert any("building an environment" in line for line in report["lines"])
    (built,) = (tmp_path / "node/nemo-gym/nodes/venvs").glob("base-*/complete")
    at = built.stat().st_mtime_ns
    with running(order) as (_, report):
        assert "port" in report["facts"], report
        assert not any("building an environment" in line for line in report["lines"])
    assert built.stat().st_mtime_ns == at


# --- code -------------------------------------------------------------------------------------------------------------


def test_equal_code_is_unpacked_once_and_changed_code_beside_it(root, tmp_path):
    place = unpack(pack_code([root, PARENT_DIR]), tmp_path / "code")
    assert (place / "roots/0/resources_servers/tiny/app.py").read_text() == APP
    assert (place / "nemo_gym/__init__.py").read_bytes() == (PARENT_DIR / "nemo_gym/__init__.py").read_bytes()
    assert unpack(pack_code([root, PARENT_DIR]), tmp_path / "code") == place
    (root / "resources_servers/tiny/app.py").write_text("another one")
    assert unpack(pack_code([root, PARENT_DIR]), tmp_path / "code") != place


def test_files_that_tools_make_are_not_sent(root, tmp_path):
    folder = root / "resources_servers/tiny"
    for made in (".venv/bin/python", "__pycache__/app.pyc", ".git/config"):
        (folder / made).parent.mkdir(parents=True, exist_ok=True)
        (folder / made).touch()
    assert [path.name for path in ray_actor.list_files(root)] == ["app.py"]


def test_more_than_can_be_sent_is_an_error_with_a_way_out(root, monkeypatch):
    monkeypatch.setattr("nemo_gym._servers.ray.replica_placement._MAX_BUNDLE_BYTES", 100)
    with pytest.raises(ConfigError, match="hint: give the nodes a shared disk"):
        pack_code([root])


def test_other_files_at_the_same_paths_are_told_apart(root):
    before = fingerprint_roots([str(root)])
    assert fingerprint_roots([str(root)]) == before
    os.utime(root / "resources_servers/tiny/app.py", (1, 1))
    assert fingerprint_roots([str(root)]) != before


def test_a_node_keeps_its_own_environment_and_gets_what_it_lacks(monkeypatch):
    monkeypatch.setenv("HOME", "/root-of/node")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    given = {"HOME": "/root-of/launcher", "A_SECRET": "swordfish", "CUDA_VISIBLE_DEVICES": "7"}
    merged = merge_environment(given)
    assert (merged["HOME"], merged["A_SECRET"]) == ("/root-of/node", "swordfish")
    assert "CUDA_VISIBLE_DEVICES" not in merged
