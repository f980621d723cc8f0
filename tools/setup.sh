#!/usr/bin/env bash
# The set-up: .venv from requirements.lock, this package into it, and the system packages that the tests need.
# Safe to repeat: a stamp in .venv says for which lock it was made.
set -euo pipefail
cd "$(dirname "$0")/.."

# Numba keeps what it has compiled beside the bytecode, and reads all of it: made before its source changed, it may name
# classes that are gone.
for source in spec/statemachines_spec/explorer/walker_numba.py spec/statemachines_spec/liveness/fair_graph_numba.py; do
  find spec -name '*.nb[ic]' ! -newer "$source" -delete
done

# present COMMAND: the command is there, and new enough where that matters.
present() {
  PATH="$PATH:/usr/sbin" command -v "$1" > /dev/null 2>&1 || return 1
  case "$1" in
    java) [ "$(java_major)" -ge 17 ] ;;
  esac
}

# java_major: 17 for "17.0.15", 8 for "1.8.0_292", 0 where java does not start.
java_major() {
  local version
  version=$(java -version 2>&1 | sed -nE 's/.* version "(1\.)?([0-9]+).*/\2/p' | head -n 1)
  echo "${version:-0}"
}

# COMMAND PACKAGE|PACKAGE...: what must be there, and Debian's packages that bring it: the first that the system has.
needed="java openjdk-17-jre-headless|openjdk-21-jre-headless|openjdk-25-jre-headless|default-jre-headless
chromium chromium
pg_ctlcluster postgresql
pgbouncer pgbouncer
redis-server redis-server
nats-server nats-server
mosquitto_sub mosquitto-clients
mosquitto mosquitto
spin spin
gcc gcc
node nodejs"
# Spark 4 runs on Java 17 or later; tests look at the HTML page in Chromium and keep groups in PostgreSQL, also behind
# pgbouncer; one of the foreign Borrowers is JavaScript; mosquitto's clients come to our nodes for MQTT; the benchmarks
# compare with Redis and mosquitto, the demo with nats-server; SPIN (its verifiers are compiled by gcc) is the second judge of the explorer.

# missing: the lines of `needed` whose command is not there.
missing() {
  local command package
  while read -r command package; do present "$command" || echo "$command $package"; done <<< "$needed"
}

# first_of PACKAGE|PACKAGE...: the first that apt can install here; the last where it knows none.
first_of() {
  local package last=""
  for package in ${1//|/ }; do
    last=$package
    if apt-cache policy "$package" 2> /dev/null | grep -q 'Candidate: [^(]'; then break; fi
  done
  echo "$last"
}

# install_missing: Debian's packages in one go, where that is possible.
install_missing() {
  [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null 2>&1 || return 0
  local command names packages=""
  apt-get update -qq >&2 || return 0
  while read -r command names; do packages="$packages $(first_of "$names")"; done <<< "$(missing)"
  echo "installing" $packages >&2
  # shellcheck disable=SC2086
  DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq -o Dpkg::Use-Pty=0 --no-install-recommends $packages >&2 || true
  hash -r
}

if [ -n "$(missing)" ]; then
  install_missing
  still=$(missing)
  if [ -n "$still" ]; then
    while read -r command package; do
      echo "setup: the command '$command' is missing or too old: install the package '${package//|/ or }' (Debian's name) and try again" >&2
    done <<< "$still"
    exit 2
  fi
fi

sum=$(cat requirements.lock pyproject.toml | cksum)
stamp=.venv/.gapless-setup
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$sum" ]; then exit 0; fi

python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
  echo "setup: Python 3.11 or later is needed; python3 is $(python3 --version)" >&2
  exit 2
}
echo "setting up .venv (once; some minutes)" >&2
rm -f "$stamp" # an interrupted set-up is done again
[ -x .venv/bin/pip ] || python3 -m venv .venv
.venv/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
.venv/bin/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
echo "$sum" > "$stamp"
