#!/usr/bin/env bash
# The set-up: .venv from requirements.lock, this package into it, and the system packages that the tests need.
# Safe to repeat: a stamp in .venv says for which lock it was made.
set -euo pipefail
cd "$(dirname "$0")/.."

# need COMMAND PACKAGE: the command is there, or Debian's package is installed, or we say what to install.
need() {
  if command -v "$1" > /dev/null 2>&1; then return; fi
  if [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null 2>&1; then
    echo "installing $2 (for the command $1)" >&2
    if apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$2" >&2; then
      return
    fi
  fi
  echo "setup: the command '$1' is missing: install the package '$2' (Debian's name) and try again" >&2
  exit 2
}

need java openjdk-17-jre-headless

stamp=".venv/.gapless-$(cat requirements.lock pyproject.toml | sha256sum | cut -c1-16)"
if [ -f "$stamp" ]; then exit 0; fi
python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
  echo "setup: Python 3.11 or later is needed; python3 is $(python3 --version)" >&2
  exit 2
}
echo "setting up .venv (once; some minutes)" >&2
[ -x .venv/bin/python ] || python3 -m venv .venv
.venv/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
.venv/bin/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
touch "$stamp"
