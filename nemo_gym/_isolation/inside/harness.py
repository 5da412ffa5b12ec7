# SPDX-License-Identifier: Apache-2.0
"""Run the tests of a program: a harness with names of its own, which takes from the program only what it tests.

A function, builtin or module of the program never replaces one of the same name in the harness.
"""

import sys
from collections.abc import Callable, Collection, Mapping
from types import CodeType, ModuleType
from typing import Any

from nemo_gym._isolation.inside.private_copies import BUILTINS

__builtins__ = BUILTINS  # type: ignore[assignment]
FILE_NAME = "tests.py"


def run(
    module_name: str,
    task: Mapping[str, Any],
    trusted: Mapping[str, Any],
    program: Mapping[str, Any],
    share: Callable[[Mapping[str, Any]], None],
) -> Any:
    """Return the result of the harness's function.

    `trusted` holds the names from before the program ran, and `program` those that it defined. `share` gets the names
    of the harness before its function is called.
    """
    code = compile(task["harness"], FILE_NAME, "exec", dont_inherit=True)
    tested = choose_tested(code, program.keys(), {*BUILTINS, *trusted}, task["entry_points"])
    module = ModuleType(module_name)
    module.__dict__.update(trusted)
    module.__dict__.update(__name__=module_name, __file__=FILE_NAME, __builtins__=dict(BUILTINS))
    module.__dict__.update((name, program[name]) for name in tested)
    sys.modules[module_name] = module
    exec(code, module.__dict__)
    share(module.__dict__)
    return module.__dict__[task["function"]](*task["arguments"])


def choose_tested(
    code: CodeType, defined: Collection[str], trusted: Collection[str], entry_points: Collection[str] | None
) -> list[str]:
    """Return the names that the harness takes from the program.

    If the row does not list them, they are those that the harness uses and only the program defines: a program's `abs`
    is taken only if there is nothing else to test.
    """
    if entry_points is None:
        used = sorted(_collect_names(code).intersection(defined))
        return [name for name in used if name not in trusted] or used
    missing = [name for name in entry_points if name not in defined]
    if missing:
        raise NameError(f"the code defines no {', '.join(map(repr, missing))}")
    return list(entry_points)


def _collect_names(code: CodeType) -> set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _collect_names(constant)
    return names
