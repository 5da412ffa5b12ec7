# SPDX-License-Identifier: Apache-2.0
"""What hidden tests share."""


def error_of(call, *arguments):
    """Return the name of the error that a call raises; None if it raises none."""
    try:
        call(*arguments)
    except Exception as error:
        return type(error).__name__
    return None
