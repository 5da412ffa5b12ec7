# SPDX-License-Identifier: Apache-2.0
"""Sandboxes on this machine, with bubblewrap where it works."""

from nemo_gym.sandbox.providers.local.provider import LocalProvider as LocalProvider
