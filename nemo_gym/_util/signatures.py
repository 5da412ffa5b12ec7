# SPDX-License-Identifier: Apache-2.0
"""Signatures of functions that stand in for others."""

import inspect
from collections.abc import Callable
from typing import Any


def resolve_signature(function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of `function`, with hints that are written as strings looked up where it was defined.

    Older versions of FastAPI would look them up in the module of whatever wraps it.
    """
    try:
        return inspect.signature(function, eval_str=True)
    except NameError:  # a name that exists only while type checking; FastAPI decides whether it needs it
        return inspect.signature(function)
