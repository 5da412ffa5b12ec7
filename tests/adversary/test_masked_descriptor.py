# SPDX-License-Identifier: Apache-2.0
"""What is written to file descriptor 2 past Python holds no secret, and all of it arrives."""

import subprocess
import sys

import pytest

SECRET = "q7Xb2Zt9LmR4vN8s"
SETUP = f"""
import os, subprocess, sys
from nemo_gym._util.known_secrets import KNOWN_SECRETS, MaskedStream
from nemo_gym._util.masked_descriptor import mask_descriptor
sys.stderr = MaskedStream(sys.stderr)
mask_descriptor()
KNOWN_SECRETS.add(["{SECRET}"])
"""


def run(code: str, command: list[str] | None = None) -> str:
    done = subprocess.run(
        [*(command or []), sys.executable, "-c", SETUP + code], capture_output=True, text=True, timeout=500, check=False
    )
    assert SECRET not in done.stderr
    return done.stderr


@pytest.mark.fault(
    place="Inline server",
    fault="It writes a key to file descriptor 2, past `sys.stderr`: a C library does, or a child process",
    outcome="The key is masked like anywhere else; nothing is lost, also where the process ends at once.",
)
@pytest.mark.parametrize("end", ["", "os._exit(3)", "os.kill(os.getpid(), 9)", "raise SystemExit(1)"])
def test_a_raw_write_is_masked_and_arrives_however_the_process_ends(end):
    code = f"""
os.write(2, b"raw {SECRET}\\n")
subprocess.run(["sh", "-c", "echo child {SECRET} >&2"])
os.write(2, b"cut {SECRET[:5]}"); os.write(2, b"{SECRET[5:]} in two")
{end}
"""
    assert run(code).splitlines() == ["raw ****", "child ****", "cut **** in two"]


def test_more_than_a_pipe_holds_is_no_deadlock_while_the_interpreter_is_held():
    # PyDLL keeps the interpreter locked during the call.
    code = """
import ctypes
line = b"x" * 99 + b"\\n"
ctypes.PyDLL(None).write(2, line * 5000, len(line) * 5000)
"""
    assert run(code).count("x" * 99) == 5000


def test_python_still_writes_to_the_real_stream():
    code = f"""
print("python {SECRET}", file=sys.stderr)
print(os.fstat(sys.stderr.fileno()).st_ino != os.fstat(2).st_ino, file=sys.stderr)
"""
    assert run(code).splitlines() == ["python ****", "True"]


def test_no_process_is_left_behind():
    code = """
from nemo_gym._util import masked_descriptor
print(masked_descriptor._masking._process.pid, file=sys.stderr)
"""
    pid = int(run(code))
    assert subprocess.run(["kill", "-0", str(pid)], capture_output=True, check=False).returncode != 0


def test_a_process_whose_stderr_is_not_masked_is_left_alone():
    code = "from nemo_gym._util.masked_descriptor import mask_descriptor, _masking; mask_descriptor(); print(_masking)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout == "None\n"
