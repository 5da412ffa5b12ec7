# SPDX-License-Identifier: Apache-2.0
"""The sandbox providers, one package each, and the registry that looks them up by name."""

from nemo_gym.sandbox.providers import base as _base, registry as _registry
from nemo_gym.sandbox.providers.base import *  # noqa: F403  its `__all__` is the list of names
from nemo_gym.sandbox.providers.registry import *  # noqa: F403

__all__ = [*_base.__all__, *_registry.__all__]  # noqa: PLE0604
