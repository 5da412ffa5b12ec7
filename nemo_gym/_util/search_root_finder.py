# SPDX-License-Identifier: Apache-2.0
"""Import server folders from several search roots: of two folders with the same name, the first one is used alone.

Python alone would do something else: a folder with `__init__.py` beats an earlier one without, two folders without are
merged into one namespace, and an `__init__.py` directly in `resources_servers/` hides every other root.
"""

import importlib.util
import os
import sys
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

SERVER_TYPES = ("resources_servers", "responses_api_agents", "responses_api_models")
COLLECTIONS = ("environments", "benchmarks")

_SERVER_FILES = frozenset({"requirements.txt", "pyproject.toml"})


def holds_code(folder: str | os.PathLike[str]) -> bool:
    """Return whether `folder` is a server or a library; one with only data or configs hides no code of a later root."""
    try:
        with os.scandir(folder) as entries:
            return any(entry.name.endswith(".py") or entry.name in _SERVER_FILES for entry in entries)
    except OSError:
        return False


def find_server_folder(server_type: str, name: str, roots: Iterable[Path]) -> Path | None:
    """Return the folder of a server, the same that `import` uses: the first one of this name in `roots` with code.

    If none has code, return the first folder of this name, so that an error can say what it lacks.
    """
    places = [root / server_type / name for root in roots]
    return next((place for is_it in (holds_code, Path.is_dir) for place in places if is_it(place)), None)


def split_server_folder(folder: Path) -> tuple[Path, tuple[str, ...]]:
    """Return the root that holds a server's folder, and the names from its kind down.

    Folders may be nested, as in `responses_api_agents/conversational_tool_use/simulation`.
    """
    kind = next((place for place in folder.parents if place.name in SERVER_TYPES), folder.parent)
    return kind.parent, folder.relative_to(kind.parent).parts


class ServerFolderFinder:
    """Finds `resources_servers` and the like, and the folders directly below them; the rest is left to Python."""

    @staticmethod
    def find_spec(
        fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return what to import as `fullname`; None leaves it to the finders that follow."""
        collection, _, name = fullname.partition(".")
        if collection not in (*SERVER_TYPES, *COLLECTIONS) or "." in name:
            return None
        return _find_folder(fullname, path or ()) if name else _find_collection(collection)


def install_finder() -> None:
    """Let `import` find server folders this way, and forget those that an earlier root now hides."""
    if ServerFolderFinder not in sys.meta_path:
        sys.meta_path.insert(0, ServerFolderFinder)
    loaded = [(name, list(getattr(module, "__path__", ()))) for name, module in sys.modules.items() if _is_folder(name)]
    for name, path in loaded:
        spec = ServerFolderFinder.find_spec(name)
        if path and spec is not None and _real(spec.submodule_search_locations) != _real(path):
            _forget(name)


def import_file(name: str, path: Path) -> ModuleType:
    """Return the module that `path` holds, under a name of our own; a file that raises leaves nothing behind."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _find_collection(collection: str) -> ModuleSpec | None:
    spec = PathFinder.find_spec(collection)
    if spec is not None and spec.loader is not None and spec.submodule_search_locations is not None:
        # A package, by an `__init__.py` in one root; the folders of the other roots belong to it as well.
        spec.submodule_search_locations = [place for place in _places(collection) if os.path.isdir(place)]
    return spec


def _find_folder(fullname: str, path: Iterable[str]) -> ModuleSpec | None:
    collection, _, name = fullname.partition(".")
    # By `sys.path` as it is now: the `__path__` of a package stays what it was when it was imported.
    for place in dict.fromkeys([*_places(collection), *path]):
        folder = os.path.join(place, name)
        if os.path.isdir(folder) and not holds_code(folder):
            continue
        spec = PathFinder.find_spec(fullname, [place])
        if spec is not None:
            if spec.loader is None:
                spec.submodule_search_locations = _NamespacePath([folder])
            return spec
    return None


class _NamespacePath(list[str]):
    """The path of a folder without `__init__.py` that no other folder is merged into."""

    def __repr__(self) -> str:
        return f"_NamespacePath({super().__repr__()})"  # importlib.resources knows a namespace by this word


def _places(collection: str) -> list[str]:
    return [os.path.join(entry or os.getcwd(), collection) for entry in sys.path]


def _is_folder(module: str) -> bool:
    return module.startswith(SERVER_TYPES) and module.count(".") == 1


def _real(path: Iterable[str] | None) -> list[str]:
    return [os.path.realpath(place) for place in path or ()]


def _forget(name: str) -> None:
    modules = {key: one for key, one in sys.modules.items() if key == name or key.startswith(f"{name}.")}
    if any(getattr(one.__spec__, "_initializing", False) for one in modules.values()):
        return  # Python has begun to import it, which cannot be taken back: it stays what it is, whole
    for key in modules:
        del sys.modules[key]
    collection, _, folder = name.partition(".")
    if collection in sys.modules:
        vars(sys.modules[collection]).pop(folder, None)
