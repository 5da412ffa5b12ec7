# SPDX-License-Identifier: Apache-2.0
"""Finds uv, and runs it or another installer as a child that never outlives the wait for it.

What uv is asked to do is the caller's business; its settings (`UV_INDEX_URL`, uv.toml, ...) reach it as they are.
"""

import asyncio
import codecs
import contextlib
import os
import shutil
import signal
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

from nemo_gym.errors import GymError

KEPT_LINES = 20


class InstallerFailed(GymError):
    """uv or npm ended with an error; `output` is the end of what it said."""

    def __init__(self, what: str, output: str) -> None:
        super().__init__(what, output)
        self.what = what
        self.output = output

    def __str__(self) -> str:
        return f"{self.what}\n{self.output}".rstrip()


def find_uv() -> Path:
    """Return the uv that nemo-gym depends on, or the one on the PATH."""
    with contextlib.suppress(ImportError, FileNotFoundError):
        import uv

        return Path(uv.find_uv_bin())
    found = shutil.which("uv")
    if found is None:
        raise GymError(
            "uv, which builds the virtual environments of servers, is neither installed beside nemo-gym nor on the "
            "PATH.\nhint: pip install uv"
        )
    return Path(found)


async def run_tool(
    command: Sequence[str | Path],
    *,
    cwd: Path,
    timeout_s: float,
    on_line: Callable[[str], None],
    inherited_fd: int | None = None,
) -> None:
    """Run `command` to its end; its whole process group is killed if the caller is cancelled or `timeout_s` passes.

    `inherited_fd` is handed down: should this process be killed, a lock on it is held until the tool is gone too.
    """
    last: deque[str] = deque(maxlen=KEPT_LINES)
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=cwd,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
        pass_fds=() if inherited_fd is None else (inherited_fd,),
    )
    name = " ".join([Path(command[0]).name, *(str(word) for word in command[1:3])])
    try:
        async with asyncio.timeout(timeout_s):
            async for line in _read_lines(process):
                last.append(line)
                on_line(line)
            code = await process.wait()
    except TimeoutError as error:
        raise InstallerFailed(f"`{name}` was killed after {timeout_s:g} s", "\n".join(last)) from error
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if code != 0:
        raise InstallerFailed(f"`{name}` ended with exit code {code}", "\n".join(last))


async def _read_lines(process: asyncio.subprocess.Process) -> AsyncIterator[str]:
    """Yield what the process writes, line by line, however long the lines are."""
    assert process.stdout is not None
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    rest = ""
    while chunk := await process.stdout.read(65536):
        *lines, rest = (rest + decoder.decode(chunk)).split("\n")
        for line in lines:
            yield line.rstrip()
    if rest.strip():
        yield rest.rstrip()
