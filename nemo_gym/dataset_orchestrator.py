# SPDX-License-Identifier: Apache-2.0
"""The older address of the dataset commands, which are in `nemo_gym.cli.dataset`."""

from typing import TYPE_CHECKING

from nemo_gym._util.moved_names import find_names

if not TYPE_CHECKING:
    __getattr__ = find_names(__name__)
