#!/usr/bin/env bash
# requirements.lock: every version with its hashes and no address, for all extras and the build backend.
# It is compiled for Python 3.11, the oldest: later Pythons need the same versions, and less (`make pythons` tries it).
# Versions that still fit are kept; `tools/lock.sh --upgrade` takes the newest.
set -euo pipefail
cd "$(dirname "$0")/.."
tool=$(mktemp -d)
trap 'rm -rf "$tool"' EXIT
python3 -m venv "$tool/venv"
"$tool/venv/bin/pip" install --quiet --disable-pip-version-check uv
printf 'hatchling\neditables\n' > "$tool/build.in"
"$tool/venv/bin/uv" pip compile --quiet --python-version 3.11 --python-platform x86_64-manylinux_2_28 --all-extras \
  --generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links --no-emit-package gapless \
  "$@" pyproject.toml "$tool/build.in" --output-file requirements.lock
