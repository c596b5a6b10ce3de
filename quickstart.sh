#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 hybridstate contributors
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

usage() {
  cat <<'TEXT'
Usage: ./quickstart.sh [test] [--no-install]

  (nothing)      install what is missing, build, and run the main job: the paper's workload on four
                 memory organizations at three budgets; tables, JSON and pages go to out/
  test           install what is missing, build everything and run the tests
  --no-install   install nothing: name what is missing and exit 2

Packages are installed with apt-get on Debian and Ubuntu, as root only.
TEXT
}

say() { printf 'quickstart: %s\n' "$*"; }
die() {
  printf 'quickstart: %s\n' "$*" >&2
  exit 2
}

mode="run"
install=yes
for argument in "$@"; do
  case "$argument" in
    test) mode="test" ;;
    --no-install) install=no ;;
    -h | --help)
      usage
      exit 0
      ;;
    *)
      usage >&2
      die "unknown argument '$argument'"
      ;;
  esac
done

cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")"
readonly oldest_gcc=12 oldest_cmake=3.25

# at_least HAVE WANT: version HAVE is WANT or newer.
at_least() { [[ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" == "$2" ]]; }

have_compiler() { command -v g++ >/dev/null && at_least "$(g++ -dumpversion)" "$oldest_gcc"; }

have_cmake() {
  command -v cmake >/dev/null &&
    at_least "$(cmake --version | sed -n '1s/^cmake version //p')" "$oldest_cmake"
}

# have_header NAME: where the system or the compiler looks by itself.
have_header() {
  [[ -e /usr/include/$1 || -e /usr/local/include/$1 ]] ||
    { command -v g++ >/dev/null && g++ -std=c++20 -E -x c++ -include "$1" /dev/null >/dev/null 2>&1; }
}

# Fills `missing` with the Debian names of what is not there.
find_missing() {
  missing=()
  have_compiler || missing+=(g++)
  have_cmake || missing+=(cmake)
  command -v ninja >/dev/null || missing+=(ninja-build)
  have_header fmt/format.h || missing+=(libfmt-dev)
  have_header doctest/doctest.h || missing+=(doctest-dev)
  have_header CLI/CLI.hpp || missing+=(libcli11-dev)
  have_header nlohmann/json.hpp || missing+=(nlohmann-json3-dev)
  have_header benchmark/benchmark.h || missing+=(libbenchmark-dev)
}

on_debian() {
  command -v apt-get >/dev/null && [[ -r /etc/os-release ]] &&
    (
      # shellcheck source=/dev/null
      . /etc/os-release
      [[ " ${ID:-} ${ID_LIKE:-} " =~ \ (debian|ubuntu)\  ]]
    )
}

find_missing
if ((${#missing[@]} > 0)); then
  wanted="missing: ${missing[*]} (g++ >= $oldest_gcc, cmake >= $oldest_cmake)"
  if [[ $install == no ]]; then
    die "$wanted; nothing was installed, as asked"
  elif ! on_debian; then
    die "$wanted; this is neither Debian nor Ubuntu: install them under their names here, then run this again"
  elif ((EUID != 0)); then
    die "$wanted; run 'apt-get install ${missing[*]}' as root, then run this again"
  fi
  say "will install with apt-get: ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  apt-get -o DPkg::Lock::Timeout=300 update -qq </dev/null
  apt-get -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 install -y -qq --no-install-recommends "${missing[@]}" </dev/null
  find_missing
  if ((${#missing[@]} > 0)); then
    die "still missing after the installation: ${missing[*]} (g++ >= $oldest_gcc, cmake >= $oldest_cmake)"
  fi
fi

jobs=$(nproc 2>/dev/null || echo 2)
say "configuring build/release"
cmake --preset release >/dev/null

if [[ $mode == test ]]; then
  say "building everything with $jobs jobs"
  cmake --build --preset release --parallel "$jobs"
  say "running the tests"
  exec ctest --preset release
fi

say "building the runtime with $jobs jobs"
cmake --build --preset release --parallel "$jobs" --target hybridstate_cli
mkdir -p out
for budget in b63 b83 b108; do
  say "paper workload at $budget"
  build/release/hybridstate compare --workload paper --budget "$budget" --rate 3 --cap 63 \
    --requests 300 --share 1 --headroom 0 --seeds 12 --seed 42000 \
    --json "out/paper-$budget.json" --html "out/paper-$budget.html" | tee "out/paper-$budget.txt"
done
say "done: out/paper-{b63,b83,b108}.{txt,json,html}"
