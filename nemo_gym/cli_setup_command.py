# SPDX-License-Identifier: Apache-2.0
"""Compatibility alias of `nemo_gym.cli.setup_command`."""

from typing import TYPE_CHECKING

from nemo_gym._util.moved_names import find_names

if not TYPE_CHECKING:
    __getattr__ = find_names(__name__)
