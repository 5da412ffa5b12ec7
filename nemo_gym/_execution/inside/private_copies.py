# SPDX-License-Identifier: Apache-2.0
"""What the trusted part of a child uses after untrusted code ran in its process: copies that no assignment reaches.

A program that replaces `builtins.len` or `json.dumps` changes them for itself only.
"""

import builtins
import importlib.util
from types import ModuleType
from typing import Any

BUILTINS: dict[str, Any] = dict(vars(builtins))


def _load_again(name: str) -> ModuleType:
    """Return a module that is not the one others get by this name, with builtins of its own."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.loader is None:
        raise ImportError(name)
    module = importlib.util.module_from_spec(spec)
    module.__dict__["__builtins__"] = BUILTINS
    spec.loader.exec_module(module)
    return module


encode_json = _load_again("json.encoder").JSONEncoder().encode
decode_json = _load_again("json.decoder").JSONDecoder().decode
