# SPDX-License-Identifier: Apache-2.0
"""Tab completion: a small script per shell asks `gym --complete` for candidates.

Candidates come from the table of commands and from folder names, so they appear at once. Paths are left to the shell,
which completes them when there are no candidates.
"""

import os
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

from nemo_gym import component_search_roots
from nemo_gym._authoring.config_catalog import config_names, find_server_configs, flavor_names
from nemo_gym._authoring.foreign_systems import SYSTEMS
from nemo_gym._config.command_flags import Flag
from nemo_gym.cli import help_pages, render
from nemo_gym.cli.command_table import COMMANDS, GROUP_HELP, GROUPS, VERSION
from nemo_gym.cli.flags import Command, UsageError, list_flags, list_names, require_choice, search_first

SHELLS = ("bash", "zsh", "fish")
_BASH = """\
_gym_completion() {
    local IFS=$'\\n'
    COMPREPLY=($("${COMP_WORDS[0]}" --complete bash "$COMP_CWORD" "${COMP_WORDS[@]:1}" 2>/dev/null))
}
complete -o default -F _gym_completion gym ng
"""
_ZSH = """\
#compdef gym ng
_gym_completion() {
    local -a found
    found=("${(@f)$("${words[1]}" --complete zsh $((CURRENT - 1)) "${(@)words[2,-1]}" 2>/dev/null)}")
    if [[ -n "${found[1]}" ]]; then _describe -V gym found; else _files; fi
}
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit; }
compdef _gym_completion gym ng
"""
_FISH = """\
function _gym_completion
    set -l words (commandline -opc) (commandline -ct)
    $words[1] --complete fish (math (count $words) - 1) $words[2..-1] 2>/dev/null
end
complete -c gym -a '(_gym_completion)'
complete -c ng -a '(_gym_completion)'
"""
SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}

Candidates = dict[str, str]
"""The candidates, each with its description."""


def run(option: str, arguments: Sequence[str]) -> int:
    """Run `--complete SHELL INDEX WORD...`, `--show-completion [SHELL]` or `--install-completion [SHELL]`."""
    shell = arguments[0] if arguments else Path(os.environ.get("SHELL", "")).name
    if not arguments and shell not in SHELLS:
        raise UsageError(f"which shell? gym {option} {'|'.join(SHELLS)}")
    require_choice(option, shell, SHELLS)
    if option == "--show-completion":
        render.data(SCRIPTS[shell].rstrip())
    elif option == "--install-completion":
        _install(shell, Path.home())
    else:
        index, *words = arguments[1:]
        found = candidates(words[: int(index)] if len(words) >= int(index) else [*words, ""])
        if found:
            render.data("\n".join(_format_lines(shell, found)))
    return 0


def candidates(words: Sequence[str]) -> Candidates:
    """Return the completions of the last of `words`, the arguments of `gym` so far."""
    *before, current = words
    given = [word for word in before if word not in ("-v", "--verbose")]
    if (both := " ".join(given[:2])) in COMMANDS and len(given) > 1:
        given[:2] = [both]
    if not given:
        alone = {name: command.help for name, command in COMMANDS.items() if " " not in name}
        return _keep_matches({**{name: GROUP_HELP[name] for name in GROUPS}, **alone, **help_pages.ROOT_FLAGS}, current)
    if given[0] in GROUPS and len(given) == 1:
        return _keep_matches({name: command.help for name, command in GROUPS[given[0]].items()}, current)
    if given[0].endswith("-completion"):
        return _keep_matches(dict.fromkeys(SHELLS, ""), current)
    words_of_name = 1
    command = {**COMMANDS, "--version": VERSION}.get(given[0])
    if given[0] in GROUPS:
        words_of_name = 2
        command = GROUPS[given[0]].get(given[1])
    if command is None:
        return {}
    folders = [value for flag, value in pairwise(given) if flag == "--search-dir"]
    search_first([folder for folder in folders if Path(folder).is_dir()])
    found = _complete_command(command, given[words_of_name:], current, noun="".join(given[1:2]))
    if len(given) == 1:  # `gym bench plan` is a command next to `gym bench`
        below = {name.partition(" ")[2]: one.help for name, one in COMMANDS.items() if name.startswith(f"{given[0]} ")}
        found = {**below, **found}
    return _keep_matches(found, current)


def _complete_command(command: Command, given: Sequence[str], current: str, noun: str) -> Candidates:
    flags = list_flags(command)
    asked = flags.get("".join(given[-1:]))
    if asked is not None and asked.kind != "switch":
        return dict.fromkeys(_list_values(asked), "")
    name, has_value, _ = current.partition("=")
    if has_value and name in flags:
        return {f"{name}={value}": "" for value in _list_values(flags[name])}
    if not current.startswith("-") and command.positionals:
        wanted = command.positionals[0]
        if wanted.name == "SYSTEM:ID":
            return {f"{name}:": system.id_form for name, system in SYSTEMS.items()}
        if wanted.key == "component_name":
            return dict.fromkeys(_list_catalog(noun), "")
        return dict.fromkeys(wanted.choices, "")
    return {flag.name: flag.help for flag in flags.values() if flag.name not in given or flag.kind == "config"}


def _list_values(flag: Flag) -> Iterable[str]:
    if flag.kind == "entrypoint":
        return _list_folders(flag.key)
    if flag.kind in ("collection", "component"):
        return list_names(flag, component_search_roots())
    return flag.choices


_SERVERS = {"models": "responses_api_models", "resources-servers": "resources_servers"}


def _list_catalog(noun: str) -> Iterable[str]:
    roots = component_search_roots()
    if noun in ("benchmarks", "environments"):
        return sorted({name for root in roots for name in config_names(root / noun)})
    if noun in _SERVERS:
        return flavor_names(_SERVERS[noun], roots)
    return _list_folders("responses_api_agents" if noun == "agents" else "resources_servers")


def _list_folders(servers: str) -> list[str]:
    return sorted({name for root in component_search_roots() for name in find_server_configs(root / servers)})


def _keep_matches(found: Candidates, current: str) -> Candidates:
    return {name: text for name, text in found.items() if name.startswith(current)}


def _format_lines(shell: str, found: Candidates) -> list[str]:
    if shell == "bash":
        return list(found)
    if shell == "fish":
        return [f"{name}\t{text}" if text else name for name, text in found.items()]
    return [name.replace(":", "\\:") + (f":{text}" if text else "") for name, text in found.items()]


# --- installing -------------------------------------------------------------------------------------------------------


def _install(shell: str, home: Path) -> None:
    """Install the script where the shell reads it at startup; a second time changes nothing."""
    if shell == "fish":
        config = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
        for name in ("gym", "ng"):
            script = config / "fish" / "completions" / f"{name}.fish"
            _write(script, SCRIPTS[shell])
            render.data(f"wrote {script}")
    else:
        script = Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share") / "nemo-gym" / f"completion.{shell}"
        _write(script, SCRIPTS[shell])
        folder = home
        if shell == "zsh":
            folder = Path(os.environ.get("ZDOTDIR") or home)
        startup = folder / f".{shell}rc"
        line = f"[ -f {str(script)!r} ] && source {str(script)!r}"
        present = ""
        if startup.exists():
            present = startup.read_text()
        if present and not present.endswith("\n"):
            present += "\n"
        if line not in present.splitlines():
            startup.write_text(f"{present}{line}\n")
        render.data(f"wrote {script}, which {startup} reads")
    render.note("hint: start a new shell to use it")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
