# SPDX-License-Identifier: Apache-2.0
import os
import pty
import re
import subprocess
import sys

import pytest

TABLE = (
    "from nemo_gym.cli import render; render.table([('Name', 'About'), ('x', '[b]not markup[/b] ' * 9)], title='T (1)')"
)
ERROR = "from nemo_gym.cli import render; render.error('no')"


def on_a_terminal(code: str, **environment: str) -> str:
    """What a program writes to a terminal of 60 columns."""
    ours, theirs = pty.openpty()
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "60", **environment}
    process = subprocess.Popen([sys.executable, "-c", code], stdout=theirs, stderr=theirs, env=env)
    os.close(theirs)
    written = b""
    try:
        while chunk := os.read(ours, 4096):
            written += chunk
    except OSError:  # the end of a terminal, as Linux reports it
        pass
    os.close(ours)
    assert process.wait() == 0
    return written.decode()


def in_a_pipe(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)


def test_a_table_fits_a_terminal():
    shown = on_a_terminal(TABLE, NO_COLOR="1")
    lines = re.sub(r"\x1b\[[0-9;]*m|\r", "", shown).splitlines()
    assert max(map(len, lines)) <= 60
    assert len(lines) > 5
    assert "T (1)" in shown
    assert "[b]not markup[/b]" in shown


def test_a_table_in_a_pipe_is_plain_and_as_wide_as_it_is():
    title, headings, rule, row = in_a_pipe(TABLE).stdout.splitlines()
    assert (title, headings, row.split()[0]) == ("T (1)", "Name  About", "x")
    assert len(rule) > 150


@pytest.mark.parametrize(
    ("environment", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_an_error_is_red_only_where_colours_are_welcome(environment, coloured):
    assert ("\x1b[" in on_a_terminal(ERROR, **environment)) is coloured


def test_an_error_in_a_pipe_is_plain():
    assert in_a_pipe(ERROR).stderr == "Error: no\n"
