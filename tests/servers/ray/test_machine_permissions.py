# SPDX-License-Identifier: Apache-2.0
"""A machine that forbids what Ray needs is told apart, with the permission that is missing."""

import resource
import socket
from types import SimpleNamespace

import psutil
import pytest

from nemo_gym._servers.ray import machine_permissions as ray_permissions
from nemo_gym._servers.ray.cluster import join_or_start_cluster
from nemo_gym._servers.ray.machine_permissions import find_doubtful_permissions, find_missing_permissions
from nemo_gym.errors import GymError
from tests.servers.ray.test_cluster import config_with, fake_ray, refuse


def forbid(*_args, **_kwargs):
    raise PermissionError(1, "Operation not permitted (originated from sysctl() malloc 1/3)")


def test_here_nothing_is_missing():
    assert find_missing_permissions() == []


def test_a_sandbox_that_hides_processes_is_named_before_ray_is_started(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    fake_ray(monkeypatch, init=lambda **_: refuse("started"))
    monkeypatch.setattr(psutil, "pids", forbid)
    with pytest.raises(GymError, match="no permission to list the processes of this machine") as caught:
        join_or_start_cluster(config_with(None))
    for part in ("Operation not permitted", "\nhint: ", "ray_head_node_address", "only Ray needs this"):
        assert part in str(caught.value)


def test_a_cluster_that_runs_elsewhere_needs_no_permission_here(monkeypatch):
    joined = []
    fake_ray(monkeypatch, init=lambda **how: joined.append(how["address"]))
    monkeypatch.setattr(psutil, "pids", forbid)
    join_or_start_cluster(config_with("head:6379"))
    assert joined == ["head:6379"]


@pytest.mark.parametrize(
    ("module", "name", "words"),
    [
        (ray_permissions.subprocess, "run", "to start processes"),
        (socket.socket, "listen", "to open TCP sockets"),
        (ray_permissions.tempfile, "TemporaryDirectory", "to open unix sockets"),
        (ray_permissions.tempfile, "NamedTemporaryFile", "(RAY_TMPDIR names another folder)"),
    ],
)
def test_what_is_forbidden_is_named(monkeypatch, module, name, words):
    monkeypatch.setattr(module, name, forbid)
    (missing,) = find_missing_permissions()
    assert words in missing
    assert "PermissionError" in missing


def test_a_folder_for_ray_that_cannot_be_written_to_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / "absent"))
    assert all(str(tmp_path / "absent") in words for words in find_missing_permissions())
    assert len(find_missing_permissions()) == 2


def test_what_ray_can_do_without_is_told_only_when_it_has_failed(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)

    def init(**_):
        raise RuntimeError("the raylet died")

    fake_ray(monkeypatch, init=init)
    monkeypatch.setattr(ray_permissions.resource, "getrlimit", lambda _: (64, 64))
    assert "the limit is 64" in find_doubtful_permissions()[-1]
    with pytest.raises(GymError, match=r"the raylet died\nit may lack permission.*the limit is 64"):
        join_or_start_cluster(config_with(None))


def test_no_limit_of_open_files_is_no_low_one(monkeypatch):
    endless = SimpleNamespace(RLIMIT_NOFILE=0, RLIM_INFINITY=-1, getrlimit=lambda _: (resource.RLIM_INFINITY, -1))
    monkeypatch.setattr(ray_permissions, "resource", endless)
    assert not any("files at once" in words for words in find_doubtful_permissions())
