# SPDX-License-Identifier: Apache-2.0
"""Whole files that are either complete or not there: written beside their place, then renamed into it.

Append-only logs are not written this way; see `nemo_gym._util.jsonl_files` for reading them.
"""

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

# Few and large writes: many small ones cost more than what is written.
_BUFFER_BYTES = 1 << 20
_FULL = (errno.ENOSPC, errno.EDQUOT)


@contextlib.contextmanager
def atomic_writer(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A binary file that takes the place of `path` when the block ends well, and leaves no trace when it does not."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name[:100]}.{secrets.token_hex(4)}.tmp")
    try:
        with open(draft, "xb", buffering=_BUFFER_BYTES) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, target)
    except BaseException as error:
        draft.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno in _FULL and error.filename is None:
            error.filename = str(target)  # a write says only that the disk is full, not which
        raise


def write_atomically(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Write `content` (text as UTF-8) so that a reader sees the old file or the new one, never a part."""
    with atomic_writer(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)
