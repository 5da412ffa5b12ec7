# SPDX-License-Identifier: Apache-2.0
"""Run a task's hidden tests on the changed repository.

Each test has its own two processes in a sandbox: one runs the repository, the other the test, which calls the code
remotely and gets plain values back. The code under test never sees a test, and cannot decide its outcome.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from nemo_gym.code_execution import CodePool, Harness
from resources_servers.workspace_tasks.tampering import find_tampering_in_output
from resources_servers.workspace_tasks.tasks import HiddenTests

_MAX_ERROR_CHARS = 300
_PROGRAM = """
import os as _os
for _name, _text in {files!r}.items():
    _os.makedirs(_os.path.dirname(_name) or ".", exist_ok=True)
    with open(_name, "w", encoding="utf-8", errors="surrogateescape", newline="") as _file:
        _file.write(_text)
{imports}
"""


@dataclass
class Verdict:
    """How the hidden tests went."""

    passed: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    """Why each test failed, by its name."""
    tampering: list[str] = field(default_factory=list)


async def run_hidden_tests(
    pool: CodePool, tests: HiddenTests, files: Mapping[str, str], *, timeout_s: float
) -> Verdict:
    """Run every test on the repository `files`; SandboxLost means that there is no verdict."""
    program = _PROGRAM.format(files=dict(files), imports=tests.imports)
    harness = Harness(tests.source, tests.entry_points, is_apart=True)
    calls = [pool.call(program, name, harness=harness, timeout_s=timeout_s) for name in tests.names]
    verdict = Verdict()
    for name, result in zip(tests.names, await asyncio.gather(*calls), strict=True):
        if result.status == "ok":
            verdict.passed.append(name)
        else:
            verdict.failed[name] = result.error[:_MAX_ERROR_CHARS]
        verdict.tampering += find_tampering_in_output(f"{result.stdout}\n{result.stderr}")
    verdict.tampering = list(dict.fromkeys(verdict.tampering))
    return verdict
