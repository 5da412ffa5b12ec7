# SPDX-License-Identifier: Apache-2.0
"""Definitions of a library out of its own installed file, where importing the file would take all that it needs."""

import ast
import sysconfig
from pathlib import Path


def take(file, names, **known):
    """Run the definitions of `names` in a file of an installed package, methods as functions, with `known` around."""
    path = Path(sysconfig.get_path("purelib")) / file
    found = {}
    for node in ast.walk(ast.parse(path.read_text())):
        if getattr(node, "name", None) in names and node.name not in found:
            found[node.name] = node
    missing = set(names) - set(found)
    assert not missing, f"{file} does not define {missing}"
    scope = dict(known)
    module = ast.Module([found[name] for name in names], type_ignores=[])
    exec(compile(module, str(path), "exec"), scope)
    return [scope[name] for name in names]
