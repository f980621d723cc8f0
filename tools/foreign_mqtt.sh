#!/usr/bin/env bash
# Run mosquitto's own broker tests against our node, in place of mosquitto, and print a table of them.
#   tools/foreign_mqtt.sh [PATTERN ...]        patterns of test names: '01-*' '04-retain-*'; default: the groups we mean
# The tests come from Debian's source package, into out/foreign_mqtt; nothing of them is kept in this repository.
set -euo pipefail
cd "$(dirname "$0")/.."
here=$PWD
work=$here/out/foreign_mqtt
mkdir -p "$work"
if ! compgen -G "$work/mosquitto-*/test/broker/test.py" > /dev/null; then
  mkdir -p "$work/sources.d" "$work/lists/partial"
  for file in /etc/apt/sources.list.d/*.sources; do
    [ -e "$file" ] && sed 's/^Types: deb *$/Types: deb deb-src/' "$file" > "$work/sources.d/$(basename "$file")"
  done
  [ -e /etc/apt/sources.list ] && sed -n 's/^deb /deb-src /p' /etc/apt/sources.list > "$work/sources.d/more.list"
  apt=(apt-get -qq -o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$work/sources.d"
    -o "Dir::State::lists=$work/lists" -o APT::Sandbox::User=root)
  "${apt[@]}" update
  (cd "$work" && "${apt[@]}" --download-only source mosquitto && tar xf mosquitto_*.orig.tar.gz)
fi
exec .venv/bin/python tools/foreign_mqtt.py "$(echo "$work"/mosquitto-*/)" "$@"
