# SPDX-License-Identifier: Apache-2.0
"""The error of this package: something cannot be shown, and the user can do something about it."""

from nemo_gym.errors import GymError


class ReportError(GymError, ValueError):
    """A file cannot be shown, or a report cannot be written, as it is asked for."""
