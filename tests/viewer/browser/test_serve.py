# SPDX-License-Identifier: Apache-2.0
"""The socket of the page: the port that was asked for, else the next free one."""

import importlib.util
import socket

import pytest

from nemo_gym._util.reachable_addresses import reachable_host
from nemo_gym._viewer.page.serve import ViewerUnavailable, find_url, listen, require_gradio


def test_a_taken_port_gives_the_next_free_one():
    with listen("127.0.0.1", 0) as taken, listen("127.0.0.1", taken.getsockname()[1]) as found:
        assert found.getsockname()[1] > taken.getsockname()[1]


def test_a_free_port_is_taken_as_asked():
    with listen("127.0.0.1", 0) as probe:
        port = probe.getsockname()[1]
    with listen("127.0.0.1", port) as found:
        assert find_url(found) == f"http://127.0.0.1:{port}"


def test_the_socket_listens_at_once_so_that_a_browser_may_wait():
    with listen("127.0.0.1", 0) as listening:
        with socket.create_connection(listening.getsockname(), timeout=300) as browser:
            browser.sendall(b"asked before anybody was there")
        listening.settimeout(5)
        with listening.accept()[0] as accepted:
            assert accepted.recv(100) == b"asked before anybody was there"


def test_every_address_is_shown_as_the_one_that_works_from_elsewhere():
    with listen("0.0.0.0", 0) as listening:
        port = listening.getsockname()[1]
        assert find_url(listening) == f"http://{reachable_host('0.0.0.0')}:{port}"


def test_an_address_of_another_machine_is_refused_with_a_way_out():
    with pytest.raises(ViewerUnavailable, match=r"cannot listen on '203.0.113.7'.*\n.*--host"):
        listen("203.0.113.7", 7860)


def test_without_gradio_the_command_to_install_it_is_said(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ViewerUnavailable, match=r'pip install "nemo-gym\[viewer\]"'):
        require_gradio()
