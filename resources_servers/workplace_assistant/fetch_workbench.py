# SPDX-License-Identifier: Apache-2.0
"""Download the tables of the office in which NeMo Gym's rows play: those of the WorkBench benchmark, under MIT.

    python -m resources_servers.workplace_assistant.fetch_workbench [FOLDER]

The folder is where the server looks for them, unless another is given, which `world_dir` has to name then.
"""

import sys
import tempfile
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from resources_servers.workplace_assistant.offices import ADDRESSES, COLUMNS, WORKBENCH_DIR, OfficeError, read_office

COMMIT = "42f1b6dc18986f47701ca83de2d63dd4f95c59a0"
SOURCE = f"https://raw.githubusercontent.com/olly-styles/WorkBench/{COMMIT}"
FILES = ("LICENSE", f"data/raw/{ADDRESSES}", *(f"data/processed/{name}" for name in COLUMNS))
TIMEOUT_S = 60


def fetch(folder: Path = WORKBENCH_DIR, source: str = SOURCE) -> Path:
    """Write the tables and their license to `folder`, all of them or none."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".partial-") as partial:
        for path in FILES:
            (Path(partial) / Path(path).name).write_bytes(_download(f"{source}/{path}"))
        read_office(Path(partial))
        folder.mkdir(exist_ok=True)
        for file in Path(partial).iterdir():
            file.replace(folder / file.name)
    return folder


def _download(url: str) -> bytes:
    try:
        with urlopen(url, timeout=TIMEOUT_S) as reply:
            return bytes(reply.read())
    except (URLError, OSError) as error:
        raise OfficeError(
            f"{url!r} could not be downloaded: {error}\n"
            "hint: on a machine without access, copy `data` of github.com/olly-styles/WorkBench there and name that "
            "folder as `world_dir`"
        ) from error


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{fetch(*map(Path, sys.argv[1:2]))}\n")
    except OfficeError as error:
        sys.exit(str(error))
