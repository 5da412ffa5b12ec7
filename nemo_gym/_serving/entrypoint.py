# SPDX-License-Identifier: Apache-2.0
"""From a server's folder to its class: import the entrypoint as a module and find the class that it runs."""

import ast
import importlib
import sys
from pathlib import Path
from typing import Any

from nemo_gym.errors import ConfigError


def load_server_class(folder: Path, entrypoint: str, base: type) -> type[Any]:
    """The subclass of `base` that `folder/entrypoint` runs when it is started as a script."""
    path = folder / entrypoint
    module = _import_module(path, ".".join((folder.parent.name, folder.name, *Path(entrypoint).with_suffix("").parts)))
    name = _class_that_runs(path.read_text())
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


def _import_module(path: Path, name: str) -> Any:
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
    elif package not in ("nemo_gym", folder.parent.name):
        error.add_note(f"hint: if {package!r} is a package, name it in {folder / 'requirements.txt'}")


def _class_that_runs(source: str) -> str | None:
    """The `X` of a top-level `X.run_webserver()`."""
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "run_webserver"
            and isinstance(node.func.value, ast.Name)
        ):
            return node.func.value.id
    return None
