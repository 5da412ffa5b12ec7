# SPDX-License-Identifier: Apache-2.0
"""What can be wrong with what a model endpoint sent. Transport problems (status codes, timeouts) are not here."""

from nemo_gym.errors import GymError


class InvalidModelReply(GymError):
    """A model endpoint answered with success, but what it sent is not a usable reply."""

    def __init__(self, message: str, reply: str = "") -> None:
        super().__init__(message, reply)
        self.message, self.reply = message, reply

    def __str__(self) -> str:
        return f"{self.message}\nreply: {self.reply}" if self.reply else self.message
