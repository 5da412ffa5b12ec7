# SPDX-License-Identifier: Apache-2.0
"""Check whether something answers at a URL, without an event loop."""

import urllib.error
import urllib.request
from typing import Literal

ServerStatus = Literal["success", "connection_error", "timeout", "unknown_error"]


def status_of(url: str, timeout_s: float) -> ServerStatus:
    """Return whether a server answers at all; any HTTP status is an answer."""
    try:
        with urllib.request.urlopen(f"{url}/", timeout=timeout_s):
            return "success"
    except urllib.error.HTTPError:
        return "success"
    except TimeoutError:
        return "timeout"
    except urllib.error.URLError as error:
        return "timeout" if isinstance(error.reason, TimeoutError) else "connection_error"
    except OSError:
        return "connection_error"
    except ValueError:
        return "unknown_error"
