#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 hybridstate contributors
# SPDX-License-Identifier: Apache-2.0

# Everything that only a GPU can show, in under four minutes on an A100, H100 or H200:
#
#   bench/gpu/run.sh                    builds (preset cuda), then runs
#   bench/gpu/run.sh --prebuilt [DIR]   runs what was built before, on a machine without a GPU
#                                       perhaps, in DIR (build/cuda)
#
# The kernels against the CPU first, then the table of their speed. Exit 1: a kernel is wrong.
# Exit 2: nothing was built, or there is no device.
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
  cmake --build --preset cuda --target test_gpu bench_kernels
fi
for program in "$build/tests/test_gpu" "$build/bench/gpu/kernels"; do
  [[ -x $program ]] || { echo "run.sh: $program is not built" >&2; exit 2; }
done

"$build/bench/gpu/kernels" --device || exit 2
"$build/tests/test_gpu" || exit 1
"$build/bench/gpu/kernels"
