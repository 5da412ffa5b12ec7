# SPDX-License-Identifier: Apache-2.0
"""The entrypoint of a server: imported for the class that it runs, or run as a script in a process of its own.

    python -m nemo_gym._servers.processes.entrypoint app.py

is the first thing in such a process. It ties its life to its parent's, who holds the other end of a pipe: when the
parent is gone, however it went, the pipe closes and this process ends together with everything it started, also while
the entrypoint is still being imported.
"""

import ast
import contextlib
import importlib
import os
import runpy
import select
import signal
import sys
import threading
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any, TextIO, cast

from nemo_gym._util.known_secrets import MaskedStream
from nemo_gym._util.search_root_finder import split_server_folder
from nemo_gym.errors import ConfigError, GymError

LIFELINE_FD = "NEMO_GYM_LIFELINE_FD"
READY_FD = "NEMO_GYM_READY_FD"
LISTEN_FD = "NEMO_GYM_LISTEN_FD"

_INTERRUPTED = 130


def load_server_class(folder: Path, entrypoint: str, base: type) -> type[Any]:
    """Return the subclass of `base` that `folder/entrypoint` runs when it is started as a script."""
    path = folder / entrypoint
    _, names = split_server_folder(folder)
    module = import_server_module(path, ".".join((*names, *Path(entrypoint).with_suffix("").parts)))
    name = _find_class_name(path.read_text())
    if name is not None and isinstance(getattr(module, name, None), type):
        return getattr(module, name)  # type: ignore[no-any-return]
    own = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, base) and value.__module__ == module.__name__
    ]
    leaves = [cls for cls in own if not any(other is not cls and issubclass(other, cls) for other in own)]
    if len(leaves) != 1:
        found = ", ".join(cls.__name__ for cls in leaves) or "none"
        raise ConfigError(
            f"cannot tell which server {path} runs: it has no `<Server>.run_webserver()` and defines {found}.\n"
            'hint: end it with `if __name__ == "__main__": YourServer.run_webserver()`'
        )
    return leaves[0]


def import_server_module(path: Path, name: str) -> Any:
    """Import the file `path` of a server's folder as the module `name`."""
    if not path.is_file():
        raise ConfigError(f"the entrypoint {path} does not exist.\nhint: check `entrypoint` in the server's config")
    # Servers may import modules that lie beside them by their bare name.
    beside = str(path.parent)
    sys.path.append(beside)
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        note_missing_module(error, path.parent)
        raise
    finally:
        sys.path.remove(beside)
    if module.__file__ is None or not path.samefile(module.__file__):
        raise ConfigError(
            f"importing {name!r} gave {module.__file__}, not {path}: another folder of this name comes first on "
            "sys.path.\nhint: put the folder above the wanted one first in NEMO_GYM_EXTRA_ROOTS"
        )
    return module


def note_missing_module(error: ModuleNotFoundError, folder: Path) -> None:
    """Add to `error` how the server in `folder` gets the package that it lacks."""
    package = (error.name or "").partition(".")[0]
    if package == "ray":
        error.add_note("hint: Ray is an extra of NeMo Gym: pip install 'nemo-gym[ray]'")
    elif package not in ("nemo_gym", split_server_folder(folder)[1][0]):
        error.add_note(f"hint: if {package!r} is a package, name it in {folder / 'requirements.txt'}")


def _find_class_name(source: str) -> str | None:
    """Return the `X` of a top-level `X.run_webserver()`."""
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "run_webserver"
            and isinstance(node.func.value, ast.Name)
        ):
            return node.func.value.id
    return None


# --- in a process of its own ------------------------------------------------------------------------------------------


def take_fd(environment: MutableMapping[str, str], name: str) -> int | None:
    """Return the file descriptor that the parent passed under `name`, once: its own children must not see it."""
    given = environment.pop(name, None)
    if not given:
        return None
    os.set_inheritable(int(given), False)
    return int(given)


def end_with_parent(lifeline: int) -> None:
    """End this process and all it started as soon as the parent is gone."""
    poll = select.poll()
    poll.register(lifeline, select.POLLIN)
    # A process that the parent forked holds the parent's end of the pipe too, and may outlive it.
    with contextlib.suppress(OSError, AttributeError):  # not on every system
        poll.register(os.pidfd_open(os.getppid()), select.POLLIN)

    def wait() -> None:
        poll.poll()
        end_everything()

    threading.Thread(target=wait, name="lifeline", daemon=True).start()


def end_everything() -> None:
    """Kill this process group, and before it what has left the group to lead one of its own."""
    import psutil  # 20 ms, and only needed at the end

    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            process.kill()
    os.killpg(os.getpgrp(), signal.SIGKILL)


def say_ready(ready: int) -> None:
    """Tell the parent that this server listens."""
    os.write(ready, b"1")
    os.close(ready)


def main() -> None:
    """Run the entrypoint named on the command line, in whose folder this process was started."""
    sys.stderr = cast("TextIO", MaskedStream(sys.stderr))
    lifeline = take_fd(os.environ, LIFELINE_FD)
    if lifeline is not None:
        end_with_parent(lifeline)
    entrypoint = Path(sys.argv[1]).absolute()
    sys.argv[:] = [str(entrypoint), *sys.argv[2:]]
    sys.path.insert(0, str(entrypoint.parent))
    try:
        runpy.run_path(str(entrypoint), run_name="__main__")
    except KeyboardInterrupt:  # stopped while starting: a traceback would only look like a fault of the server
        sys.exit(_INTERRUPTED)
    except GymError as error:
        sys.exit(str(error))
    except ModuleNotFoundError as error:
        note_missing_module(error, entrypoint.parent)
        raise


if __name__ == "__main__":
    main()
