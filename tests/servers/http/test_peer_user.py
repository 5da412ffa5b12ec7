# SPDX-License-Identifier: Apache-2.0
import ipaddress
import os
import socket
import sys

import pytest

from nemo_gym._servers.http import peer_user
from nemo_gym._servers.http.peer_user import find_by_netlink, find_in_proc, find_peer_socket, refuse_other_user

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells whose a socket is")
WAYS = [find_by_netlink, find_in_proc]


@pytest.fixture(params=["127.0.0.1", "::1"])
def pair(request):
    """Both ends of a connection over loopback."""
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    with socket.create_server((request.param, 0), family=family) as server:
        with socket.create_connection(server.getsockname()[:2]) as client, server.accept()[0] as accepted:
            yield client, accepted


def address(name):
    return ipaddress.ip_address(name[0]), name[1]


@pytest.mark.parametrize("find", WAYS)
def test_the_socket_at_the_other_end_is_found(pair, find):
    client, accepted = pair
    found = find(address(accepted.getsockname()), address(accepted.getpeername()))
    assert (found.uid, found.inode) == (os.getuid(), os.fstat(client.fileno()).st_ino)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a socket to another user")
@pytest.mark.parametrize("find", WAYS)
def test_it_is_the_user_of_the_other_end_that_counts(pair, find, monkeypatch):
    client, accepted = pair
    os.fchown(client.fileno(), 65534, -1)
    assert find(address(accepted.getsockname()), address(accepted.getpeername())).uid == 65534
    monkeypatch.setattr(peer_user, "find_by_netlink", find)
    assert b"(uid 65534)" in refuse_other_user(accepted).body
    assert refuse_other_user(client) is None


@pytest.mark.parametrize("find", WAYS)
def test_who_listens_on_the_port_of_the_other_end_is_not_taken_for_it(find):
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        here = ipaddress.ip_address("127.0.0.1")
        assert find((here, 1), (here, stranger.getsockname()[1])) is None


@pytest.mark.parametrize("find", WAYS)
def test_an_ipv6_socket_with_an_ipv4_address_is_found(find):
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_INET6) as client:
        client.connect(("::ffff:127.0.0.1", server.getsockname()[1]))
        with server.accept()[0] as accepted:
            found = find(address(accepted.getsockname()), address(accepted.getpeername()))
            assert found.inode == os.fstat(client.fileno()).st_ino


def test_without_netlink_the_tables_are_read(pair, monkeypatch):
    def fail(own, peer):
        raise PermissionError

    _, accepted = pair
    monkeypatch.setattr(peer_user, "find_by_netlink", fail)
    assert find_peer_socket(address(accepted.getsockname()), address(accepted.getpeername())).uid == os.getuid()


def test_a_user_that_cannot_be_known_is_let_in(pair, monkeypatch):
    _, accepted = pair
    monkeypatch.setattr(sys, "platform", "darwin")
    assert refuse_other_user(accepted) is None


def test_a_connection_that_is_over_is_refused(pair):
    client, accepted = pair
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    client.sendall(b"GET / HTTP/1.0\r\n\r\n")
    client.close()
    assert b"has closed the connection" in refuse_other_user(accepted).body
