#!/usr/bin/env bash
# The tests on every Python from 3.11 to 3.14 that is there: on PATH, or among those of pyenv.  Each has an environment of
# its own from the same lock, in out/pythons/VERSION.  Arguments: which tests (default: all).  PYTHONS="3.12 3.13": only
# these; JOBS=2: so many processes.
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

# make_place PYTHON PLACE SUM: an environment with what the lock names, and this package.
make_place() {
  rm -rf "$2"
  "$1" -m venv "$2" \
    && "$2/bin/pip" install --quiet --disable-pip-version-check --require-hashes -r requirements.lock \
    && "$2/bin/pip" install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable . \
    && echo "$3" > "$2/.made"
}

failed=""
for version in ${PYTHONS:-3.11 3.12 3.13 3.14}; do
  python=$(interpreter "$version")
  if [ -z "$python" ]; then
    echo "Python $version: not here"
    continue
  fi
  place=out/pythons/$version
  sum=$(cat requirements.lock pyproject.toml | cksum)
  echo "Python $version: $python"
  if [ "$(cat "$place/.made" 2> /dev/null || true)" != "$sum" ] && ! make_place "$python" "$place" "$sum"; then
    echo "Python $version: NOT INSTALLED"
    failed="$failed $version"
  elif "$place/bin/python" -m pytest -m "not long" -n "${JOBS:-3}" --dist loadfile --no-loadscope-reorder "$@"; then
    echo "Python $version: passed"
  else
    echo "Python $version: FAILED"
    failed="$failed $version"
  fi
done
[ -z "$failed" ] || { echo "failed on:$failed" >&2; exit 1; }
