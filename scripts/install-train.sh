#!/usr/bin/env bash
# Set up the virtual environment of `make train-demo`: torch for the CPU, TRL, and this package.
set -euo pipefail
python="${PYTHON:-python3}"
venv="${TRAIN_VENV:-.venv-train}"
# The pin is this script's own: it is the build that the demo's figures were measured with. With another torch, such as
# one for a GPU, run: make train-demo TORCH='torch>=2.6'
torch="${TORCH:-torch==2.13.0}"

fail() { printf 'install-train: %s\n' "$@" >&2; exit 1; }

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
  || fail "$("$python" --version) is too old; Python 3.11 or newer is needed." "hint: make train-demo PYTHON=/path/to/python3.11"
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv" \
  || fail "could not create $venv." "hint: on Debian or Ubuntu: apt-get install python3-venv"
pip=("$venv/bin/python" -m pip install --quiet --disable-pip-version-check)
echo "install-train: setting up $venv with $torch"
# pip and not uv: some registries have the CPU build only where pip finds it.
"${pip[@]}" "$torch" \
  || fail "could not install '$torch'." "hint: name a torch that your registry has: make train-demo TORCH='torch>=2.6'"
# The last four are for the tests of all this: make train-test
"${pip[@]}" --editable '.[train,viewer]' pytest pytest-asyncio pytest-timeout hypothesis
