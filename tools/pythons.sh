#!/usr/bin/env bash
# The tests on every Python from 3.11 to 3.14 that is there: on PATH, or among those of pyenv.  Each has an environment of
# its own from the same lock, in out/pythons/VERSION.  Arguments: which tests (default: all).
set -euo pipefail
cd "$(dirname "$0")/.."

# interpreter VERSION: one that starts, and is of this version.
interpreter() {
  local one
  for one in "$(command -v "python$1" || true)" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$1".*/bin/python; do
    if [ -x "$one" ] && "$one" -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$1')" 2> /dev/null; then
      echo "$one"
      return
    fi
  done
}

failed=""
for version in 3.11 3.12 3.13 3.14; do
  python=$(interpreter "$version")
  if [ -z "$python" ]; then
    echo "Python $version: not here"
    continue
  fi
  place=out/pythons/$version
  sum=$(cat requirements.lock pyproject.toml | cksum)
  if [ "$(cat "$place/.made" 2> /dev/null || true)" != "$sum" ]; then
    rm -rf "$place"
    "$python" -m venv "$place"
    "$place/bin/pip" install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
    "$place/bin/pip" install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
    echo "$sum" > "$place/.made"
  fi
  echo "Python $version: $python"
  if "$place/bin/python" -m pytest -n 3 --dist loadfile --no-loadscope-reorder "$@"; then
    echo "Python $version: passed"
  else
    echo "Python $version: FAILED"
    failed="$failed $version"
  fi
done
[ -z "$failed" ] || { echo "failed on:$failed" >&2; exit 1; }
