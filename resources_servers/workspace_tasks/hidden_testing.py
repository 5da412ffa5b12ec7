# SPDX-License-Identifier: Apache-2.0
"""Run the hidden tests of a task on what a program has made of the repository.

Each test has two processes of its own in a sandbox: one runs the repository, the other the test, which calls what it
tests from afar and gets plain values back. The code under test never sees a test, and no answer of it is a verdict.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from nemo_gym.code_execution import CodePool, Harness
from resources_servers.workspace_tasks.tampering import find_ending_tampering
from resources_servers.workspace_tasks.tasks import HiddenTests

_SHOWN_CHARS = 300
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
    """By name of the test: why, in one line."""
    tampering: list[str] = field(default_factory=list)


async def run_hidden_tests(
    pool: CodePool, tests: HiddenTests, files: Mapping[str, str], *, timeout_s: float
) -> Verdict:
    """Run every test on the repository that consists of `files`; SandboxLost says nothing about them."""
    program = _PROGRAM.format(files=dict(files), imports=tests.imports)
    harness = Harness(tests.source, tests.entry_points, is_apart=True)
    calls = [pool.call(program, name, harness=harness, timeout_s=timeout_s) for name in tests.names]
    verdict = Verdict()
    for name, result in zip(tests.names, await asyncio.gather(*calls), strict=True):
        if result.status == "ok":
            verdict.passed.append(name)
        else:
            verdict.failed[name] = result.error[:_SHOWN_CHARS]
        verdict.tampering += find_ending_tampering(f"{result.stdout}\n{result.stderr}")
    verdict.tampering = list(dict.fromkeys(verdict.tampering))
    return verdict
