# SPDX-License-Identifier: Apache-2.0
"""Addresses that work from elsewhere."""

import socket

import pytest

from nemo_gym._util.reachable_addresses import is_loopback, reachable_host, reachable_url


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_every_address_becomes_one_of_this_machine(host):
    named = reachable_host(host)
    assert named not in ("0.0.0.0", "::")
    with socket.create_server(("0.0.0.0", 0)) as server:
        socket.create_connection((named, server.getsockname()[1]), timeout=300).close()


def test_without_a_network_it_is_the_name_of_this_machine(monkeypatch):
    def refuse(self, address):
        raise OSError("Network is unreachable")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    assert reachable_host("0.0.0.0") == socket.gethostname()


def test_an_address_that_was_chosen_stays():
    assert reachable_url("10.1.2.3", 80) == "http://10.1.2.3:80"
    assert reachable_url("::1", 80) == "http://[::1]:80"


@pytest.mark.parametrize(
    ("host", "only_here"),
    [("127.0.0.1", True), ("127.8.8.8", True), ("localhost", True), ("::1", True), ("0.0.0.0", False), ("gpu7", False)],
)
def test_only_this_machine_reaches_a_loopback_address(host, only_here):
    assert is_loopback(host) is only_here
