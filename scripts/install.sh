#!/usr/bin/env bash
# Set up the clone's virtual environment: everything comes from the package registry, nothing from the machine.
set -euo pipefail
python="${PYTHON:-python3}"
venv="${VENV:-.venv}"

fail() { printf 'install: %s\n' "$@" >&2; exit 1; }

command -v "$python" >/dev/null || fail "no '$python' on PATH." "hint: install Python 3.11 or newer, or run: make install PYTHON=/path/to/python"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
  || fail "$("$python" --version) is too old; Python 3.11 or newer is needed." "hint: make install PYTHON=/path/to/python3.11"
if [ ! -x "$venv/bin/python" ]; then
  "$python" -m venv "$venv" || fail "could not create $venv." "hint: on Debian or Ubuntu: apt-get install python3-venv"
fi
[ -x "$venv/bin/uv" ] || "$venv/bin/python" -m pip install --quiet --disable-pip-version-check uv
echo "install: setting up $venv"
"$venv/bin/uv" pip install --quiet --python "$venv/bin/python" --constraint constraints.txt --editable '.[dev,azure,profiling,local,data,viewer,environments,docs]'
