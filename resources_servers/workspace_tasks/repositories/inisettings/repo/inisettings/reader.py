# SPDX-License-Identifier: Apache-2.0
"""Reads text such as:

# a comment
[server]
port = 80
name = "My # server"
"""

Settings = dict[str, dict[str, str]]


def read(text: str) -> Settings:
    """Return the settings of each section; those before the first section belong to the section `main`."""
    settings: Settings = {}
    section = "main"
    for number, line in enumerate(text.splitlines(), start=1):
        line = cut_comment(line).strip()
        if not line:
            continue
        if line.startswith("["):
            if not line.endswith("]"):
                raise ValueError(f"line {number}: the name of a section is not closed")
            section = line[1:-1].strip().lower()
            settings.setdefault(section, {})
            continue
        key, sign, value = line.partition("=")
        if not sign or not key.strip():
            raise ValueError(f"line {number}: {line!r} sets nothing")
        settings.setdefault(section, {})[key.strip().lower()] = unquote(value.strip())
    return settings


def cut_comment(line: str) -> str:
    """Return a line without its comment; a # in quotes begins none."""
    quoted = False
    for position, char in enumerate(line):
        if char == '"':
            quoted = not quoted
        elif char == "#" and not quoted:
            return line[:position]
    return line


def unquote(value: str) -> str:
    """Return a value without the quotes around it."""
    is_quoted = len(value) >= 2 and value[0] == value[-1] == '"'
    return value[1:-1] if is_quoted else value
