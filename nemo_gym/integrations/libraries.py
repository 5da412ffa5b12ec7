# SPDX-License-Identifier: Apache-2.0
"""Import a trainer's library when it is needed, and say which version our side was made for."""

import importlib
import importlib.metadata
import logging
from typing import Any

from nemo_gym.errors import GymError

LOG = logging.getLogger(__name__)


class MissingLibrary(GymError, ImportError):
    """A trainer's library is not installed, or lacks what we use of it."""


def import_library(module: str, *names: str, package: str, version: str) -> Any:
    """Return `module`, which must have `names`; MissingLibrary if `package` is not installed, or lacks them.

    `version` is the one that our side was made for and tested with. Another one is used with a warning.
    """
    try:
        found = importlib.import_module(module)
        missing = [name for name in names if not hasattr(found, name)]
        if missing:
            raise ImportError(f"{module} has no {', '.join(missing)}")
    except ImportError as error:
        raise MissingLibrary(
            f"{package} cannot be used here: {error}\ninstalled: {_find_version(package) or 'no'}\n"
            f"hint: `pip install {package}=={version}`, the version that this integration was made for and tested with"
        ) from error
    installed = _find_version(package)
    if installed not in (None, version):
        LOG.warning("%s %s is installed; this integration was made for and tested with %s", package, installed, version)
    return found


def _find_version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
