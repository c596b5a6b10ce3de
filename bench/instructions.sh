#!/bin/sh
# SPDX-FileCopyrightText: 2026 hybridstate contributors
# SPDX-License-Identifier: Apache-2.0

# Counts the instructions per block of lookup, admit and release from 10^3 to 10^6 units and fails
# when they differ by more than 5 %:
#
#   bench/instructions.sh [build/release/bench/callgrind_cache] [paper|path-safe] [UNITS...]
#
# Needs valgrind; the largest pool takes about a minute.
set -eu

program=${1:-build/release/bench/callgrind_cache}
order=${2:-paper}
if [ $# -gt 2 ]; then shift 2; else set -- 1000 10000 100000 1000000; fi
command -v valgrind >/dev/null || { echo "instructions.sh: valgrind is missing" >&2; exit 2; }
[ -x "$program" ] || { echo "instructions.sh: $program is not built" >&2; exit 2; }

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
for units in "$@"; do
  blocks=$(valgrind --tool=callgrind --callgrind-out-file="$scratch/out" \
    --toggle-collect='*counted_requests*' "$program" "$units" "$order" 2>"$scratch/log") ||
    { cat "$scratch/log" >&2; exit 1; }
  instructions=$(sed -n 's/^summary: *//p;s/^totals: *//p' "$scratch/out" | head -n 1)
  awk -v u="$units" -v i="$instructions" -v b="$blocks" \
    'BEGIN { printf "%9d units: %8.2f instructions per block\n", u, i / b }' | tee -a "$scratch/table"
done
awk '{ v = $3; if (NR == 1 || v < low) low = v; if (v > high) high = v }
     END { spread = 100 * (high / low - 1)
           printf "spread %.2f %% (target 5 %%)\n", spread
           exit spread > 5 }' "$scratch/table"
