# SPDX-License-Identifier: Apache-2.0
"""A pydantic model whose private attributes are read about as fast as any others."""

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel


class QuickState(BaseModel):
    """For servers: they keep their state in private attributes, and pydantic's own way to one takes five times as long.

    Nothing else is different: what is no private attribute, or is not set, goes pydantic's way.
    """

    if not TYPE_CHECKING:  # a type checker would take every name for an attribute

        def __getattr__(self, name: str) -> Any:
            private = object.__getattribute__(self, "__pydantic_private__")
            return private[name] if private and name in private else super().__getattr__(name)
