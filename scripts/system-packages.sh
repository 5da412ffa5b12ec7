#!/usr/bin/env bash
# Install system packages that tests use where they can be had; say so where they cannot. Arguments: command=package ...
set -uo pipefail
missing=()
for pair in "$@"; do
  command -v "${pair%%=*}" >/dev/null || missing+=("${pair#*=}")
done
[ ${#missing[@]} -eq 0 ] && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "system packages: installing ${missing[*]}"
  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"; } \
    >/dev/null 2>&1 && exit 0
  echo "system packages: apt-get could not install ${missing[*]}; the tests that need them are skipped" >&2
else
  echo "system packages: ${missing[*]} not found; the tests that need them are skipped" >&2
  echo "hint: apt-get install ${missing[*]}" >&2
fi
exit 0
