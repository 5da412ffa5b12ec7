# SPDX-License-Identifier: Apache-2.0
"""A benchmark's `prepare.py`: loaded, checked for what it can be called with, and run.

What a script raises is its author's; it is turned into one error that names the script. Which scripts to run, and
whether the rows they wrote fit a prompt, is left to the caller.
"""

import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any

from nemo_gym._util.nearest import did_you_mean
from nemo_gym.errors import GymError


class PrepareError(GymError):
    """The data of a benchmark could not be prepared."""


def load_prepare(script: Path, roots: Sequence[Path]) -> Callable[..., Any]:
    """Return the function `prepare` of `script`, which may import its neighbours by their path below a root."""
    if not script.is_file():
        raise PrepareError(f"the prepare script {str(script)!r} is not there.\nhint: correct `prepare_script`")
    try:
        module = _import_by_name(script, roots) or _load_by_path(script)
    except Exception as error:  # a script can fail in any way while it is loaded
        raise PrepareError(_explain_load_failure(script, error)) from error
    function = getattr(module, "prepare", None)
    if not callable(function):
        defined = [name for name, value in vars(module).items() if inspect.isfunction(value)]
        raise PrepareError(
            f"{script}: has no function `prepare`. {did_you_mean('prepare', defined)}\n"
            "hint: `def prepare() -> Path:` writes the rows and returns where they are"
        )
    if inspect.iscoroutinefunction(function):
        raise PrepareError(f"{script}: `prepare` is an `async def`, but it is called without await")
    loaded: Callable[..., Any] = function
    return loaded


def check_arguments(script: Path, prepare: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    """Refuse arguments that `prepare` does not take, before anything runs."""
    signature = inspect.signature(prepare)
    try:
        signature.bind(**arguments)
    except TypeError as error:
        raise PrepareError(
            f"{script}: prepare{signature} cannot be called with {dict(arguments)}: {error}.\n"
            "hint: arguments are given as `++prepare_script_args.<name>=<value>`"
        ) from error


def run_prepare(script: Path, prepare: Callable[..., Any], arguments: Mapping[str, Any]) -> Path:
    """Call `prepare`; what it prints goes to stderr. The file that it says it wrote, which exists."""
    try:
        with redirect_stdout(sys.stderr):
            result = prepare(**arguments)
    except Exception as error:  # a script can fail in any way
        raise PrepareError(f"{script}: prepare() failed: {type(error).__name__}: {error}") from error
    if not isinstance(result, str | Path):
        raise PrepareError(f"{script}: prepare() returned {result!r}, not the path of the file that it wrote")
    path = Path(result)
    if not path.is_file():
        raise PrepareError(f"{script}: prepare() says that it wrote {str(path)!r}, but there is no such file")
    return path


def _import_by_name(script: Path, roots: Sequence[Path]) -> ModuleType | None:
    """Return the script as the module that it is below a root, if importing that name leads to this very file."""
    root = next((root for root in roots if script.resolve().is_relative_to(root.resolve())), None)
    if root is None:
        return None
    parts = script.resolve().relative_to(root.resolve()).with_suffix("").parts
    if not all(part.isidentifier() for part in parts):
        return None
    name = ".".join(parts)
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError:
        return None
    if spec is None or spec.origin is None or Path(spec.origin).resolve() != script.resolve():
        return None
    return importlib.import_module(name)


def _load_by_path(script: Path) -> ModuleType:
    digest = hashlib.sha256(str(script.resolve()).encode()).hexdigest()[:12]
    name = f"_nemo_gym_prepare_{digest}"
    spec = importlib.util.spec_from_file_location(name, script)
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


def _explain_load_failure(script: Path, error: Exception) -> str:
    text = f"{script}: cannot be loaded: {type(error).__name__}: {error}"
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"{text}\nhint: install what it needs, as in `uv pip install {error.name.partition('.')[0]}`"
    return text
