# SPDX-License-Identifier: Apache-2.0
import asyncio
import sys

import pytest

from nemo_gym._servers.direct_calls.running_apps import NamedApp, work_for
from nemo_gym._servers.processes.server_logs import route_output


async def chatty(scope, receive, send):
    print("hello")
    await asyncio.sleep(0)
    print("half a ", end="")
    print("line", file=sys.stdout)
    print("careful", file=sys.stderr)


async def call(app):
    await app({"type": "http"}, None, None)


async def test_lines_of_servers_carry_their_names_and_others_do_not(capsys):
    with route_output(None):
        print("from the host itself")
        await asyncio.gather(call(NamedApp(chatty, "one")), call(NamedApp(chatty, "two")))
    out, err = capsys.readouterr()
    assert out == "from the host itself\n"
    assert sorted(err.splitlines()) == sorted(
        f"({name}) {text}" for name in ("one", "two") for text in ("hello", "half a line", "careful")
    )


async def test_with_a_folder_every_server_has_a_file_of_its_own(tmp_path, capsys):
    for _ in range(2):
        with route_output(tmp_path / "logs"):
            await call(NamedApp(chatty, "one"))
    assert (tmp_path / "logs" / "one.log").read_text() == "hello\nhalf a line\ncareful\n" * 2
    assert capsys.readouterr().err == ""


async def test_a_server_that_calls_another_gets_its_own_name_back(capsys):
    async def outer(scope, receive, send):
        await NamedApp(chatty, "inner")(scope, receive, send)
        print("outer again")

    with route_output(None):
        await call(NamedApp(outer, "outer"))
        with work_for("builder"):
            print("building")
    err = capsys.readouterr().err
    assert "(inner) hello" in err
    assert "(outer) outer again" in err
    assert "(builder) building" in err


def test_the_streams_are_given_back():
    before = sys.stdout, sys.stderr
    with pytest.raises(RuntimeError), route_output(None):
        raise RuntimeError
    assert (sys.stdout, sys.stderr) == before
