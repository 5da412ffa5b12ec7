# SPDX-License-Identifier: Apache-2.0
"""`gym <group> <command> [flags] [+key=value ...]`: find the command, turn its flags into overrides, run it.

This is the boundary where whatever a command raises becomes a message and an exit code.
"""

import gc
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import TextIO, cast

from nemo_gym._util.known_secrets import MaskedStream
from nemo_gym._util.nearest import suggest
from nemo_gym._util.process_list import hide_secret_arguments
from nemo_gym.cli import help_pages, render
from nemo_gym.cli.command_table import COMMANDS, GROUPS, VERSION
from nemo_gym.cli.flags import RUNNING, VERBOSE, Command, UsageError, load, to_overrides
from nemo_gym.errors import CommandLineError, ConfigProblems, GymError

_HELP_FLAGS = frozenset({"-h", "--help"})
_HELP_KEYS = frozenset({"help", "h"})
_VERBOSE_FLAGS = frozenset({VERBOSE.name, VERBOSE.short})


def main(argv: Sequence[str] | None = None) -> None:
    """Run one command, by default the one on this process's command line; raise SystemExit unless it succeeds.

    The exit code is 2 for a usage error, and 1 for most other errors.
    """
    if argv is not None:
        code = run_command(argv)
    else:
        with own_process():
            code = run_command(sys.argv[1:])
    if code:
        sys.exit(code)


@contextmanager
def own_process() -> Iterator[None]:
    """Prepare this process for a single command: hide its secrets, and start fast."""
    gc.disable()  # what the process loads stays, so there is no garbage to look for
    hide_secret_arguments()
    sys.stderr = cast("TextIO", MaskedStream(sys.stderr))
    try:
        yield
    finally:
        gc.enable()


def run_command(argv: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    arguments = list(argv)
    verbose = bool(_VERBOSE_FLAGS & set(arguments)) or _is_set("verbose", arguments)
    if verbose:
        import logging

        logging.basicConfig(level=logging.DEBUG)
    try:
        found = _find_command(arguments)
        if isinstance(found, int):
            return found
        name, command, tokens = found
        if _HELP_FLAGS & set(tokens):
            render.data(help_pages.command(name, command))
            return 0
        if any(map(_is_set_to_help, tokens)):
            render.data(help_pages.parameters(command))
            return 0
        RUNNING.set(command)
        overrides = to_overrides(command, tokens)
        implementation: Callable[[list[str]], int] = load(command.implementation)
        if not gc.isenabled():
            gc.freeze()
            gc.enable()
        return implementation(overrides)
    except GymError as error:
        problems = error.problems if isinstance(error, ConfigProblems) else [error]
        is_usage_error = any(isinstance(one, UsageError | CommandLineError) for one in problems)
        return _report_failure(error, 2 if is_usage_error else 1, verbose)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Python flushes stdout once more at exit; give it somewhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        if error.filename is None:
            raise
        return _report_failure(error, 1, verbose)


def program_name() -> str:
    """Return how to call this program: by its name if that finds it, else by its path."""
    here = Path(sys.argv[0])
    found = shutil.which("gym")
    if here.name not in ("gym", "ng") or (found is not None and Path(found).resolve() == here.resolve()):
        return "gym"
    absolute = here.absolute()
    if absolute.is_relative_to(Path.cwd()):
        return str(absolute.relative_to(Path.cwd()))
    return str(here)


def _report_failure(error: GymError | OSError, code: int, verbose: bool) -> int:
    if verbose:
        import traceback

        render.note("".join(traceback.format_exception(error)).rstrip())
    if isinstance(error, OSError) and not isinstance(error, GymError):
        render.error(_explain_os_error(error))
    else:
        render.error(str(error))
    return code


def _explain_os_error(error: OSError) -> str:
    """Return what the operating system refused, and what to do about it."""
    hints = {
        PermissionError: "choose a path that you may write to, or ask for permission",
        NotADirectoryError: "there is a file where a folder is needed",
        FileExistsError: "there is a file where a folder is needed",
        IsADirectoryError: "there is a folder where a file is needed",
    }
    text = f"{str(error.filename)!r}: {error.strerror}"
    if hint := hints.get(type(error)):
        text += f"\nhint: {hint}"
    return text


def _find_command(arguments: list[str]) -> tuple[str, Command, list[str]] | int:
    """Return the named command and the rest of `arguments`; an exit code if they only ask for a page."""
    leading = [*takewhile(_VERBOSE_FLAGS.__contains__, arguments)]
    arguments = arguments[len(leading) :]
    if len(arguments) > 1:  # commands accept them too, and pass them to their servers
        arguments += leading
    first = "".join(arguments[:1])
    if first == "--version" or (first == "--json" and "--version" in arguments):
        return "--version", VERSION, [token for token in arguments if token != "--version"]
    if first in ("--complete", "--show-completion", "--install-completion"):
        from nemo_gym.cli import completion

        return completion.run(first, arguments[1:])
    if not first or first in _HELP_FLAGS or _is_set_to_help(first):
        render.data(help_pages.root())
        return 0 if first else 1
    if first.startswith("-"):
        raise UsageError(f"unknown flag {first!r}.{suggest(first, help_pages.ROOT_FLAGS)}\nhint: gym --help")
    if (both := " ".join(arguments[:2])) in COMMANDS:
        return both, COMMANDS[both], arguments[2:]
    if first in COMMANDS:
        return first, COMMANDS[first], arguments[1:]
    return _find_in_group(first, arguments[1:])


def _find_in_group(group: str, arguments: list[str]) -> tuple[str, Command, list[str]] | int:
    commands = GROUPS.get(group)
    if commands is None:
        guess = suggest(group, [*GROUPS, *COMMANDS])
        if elsewhere := [f"{other} {group}" for other, known in GROUPS.items() if group in known]:
            guess = f" Did you mean 'gym {elsewhere[0]}'?"
        raise UsageError(f"there is no command {group!r}.{guess}\nhint: gym --help")
    if not arguments or arguments[0] in _HELP_FLAGS or _is_set_to_help(arguments[0]):
        render.data(help_pages.group(group))
        return 0 if arguments else 1
    name, *tokens = arguments
    if name not in commands:
        raise UsageError(f"`gym {group}` has no command {name!r}.{suggest(name, commands)}\nhint: gym {group} -h")
    return f"{group} {name}", commands[name], tokens


def _is_set_to_help(token: str) -> bool:
    return any(_is_set(key, [token]) for key in _HELP_KEYS)


def _is_set(key: str, tokens: Iterable[str]) -> bool:
    """Return whether a token sets `key` to true."""
    return any(token.lstrip("+").lower() in (f"{key}=true", f"{key}=1") for token in tokens)


if __name__ == "__main__":
    main()
