#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 hybridstate contributors
# SPDX-License-Identifier: Apache-2.0

# Everything that only a GPU can show, in under four minutes on an A100, H100 or H200:
#
#   bench/gpu/run.sh                    builds (preset cuda), then runs
#   bench/gpu/run.sh --prebuilt [DIR]   runs what was built before, on a machine without a GPU
#                                       perhaps, in DIR (build/cuda)
#
# The kernels against the CPU first, alone and in served runs of a small model; then the table of
# their speed, and the host's part of a decode step and tokens per second of a random model of 0.5B.
# Exit 1: a kernel is wrong. Exit 2: nothing was built, or there is no device.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."

build=build/cuda
if [[ ${1:-} == --prebuilt ]]; then
  build=${2:-$build}
elif (($# > 0)); then
  echo "run.sh: unknown argument '$1'; give --prebuilt [DIR] or nothing" >&2
  exit 2
else
  cmake --preset cuda >/dev/null
  cmake --build --preset cuda --target test_gpu bench_kernels bench_decode_host hybridstate_cli
fi
hybridstate=$build/hybridstate
for program in "$build/tests/test_gpu" "$build/bench/gpu/kernels" "$build/bench/decode_host" \
  "$hybridstate"; do
  [[ -x $program ]] || { echo "run.sh: $program is not built" >&2; exit 2; }
done

"$build/bench/gpu/kernels" --device || exit 2
"$build/tests/test_gpu" || exit 1

models=$(mktemp -d)
trap 'rm -rf "$models"' EXIT
"$hybridstate" make-model --preset tiny --seed 7 --out "$models/tiny" >/dev/null
"$hybridstate" verify --executor cuda --model "$models/tiny" --runs 10 --scenario none || exit 1

"$build/bench/gpu/kernels"
"$hybridstate" make-model --preset falcon-h1-0.5b --seed 7 --out "$models/half" >/dev/null
"$build/bench/decode_host" 32 "$models/half"
"$hybridstate" compare --executor cuda --model "$models/half" --requests 32 --arrivals all-at-once \
  --share 0 --seeds 1 --orgs S2 --memory 4GiB --no-references
echo "all of it: $SECONDS s"
