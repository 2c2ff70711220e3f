#!/usr/bin/env bash
# Configures a preset and builds targets of it; says first how much there is to compile.
#
# Usage: tools/build.sh PRESET [TARGET]...   (no target: all)
#   JOBS   units compiled at once (default: all cores)
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1
shift
jobs=${JOBS:-$(nproc)}
cmake --preset "$preset" >/dev/null

# A copy, since a dry run of the file itself ends with CMake's check of folders for new files.
cp "build/$preset/build.ninja" "build/$preset/units.ninja"
units=$(ninja -C "build/$preset" -f units.ninja -n "$@" | grep -c 'Building CXX' || true)
if ((units > 0)); then
  # Processor seconds of a unit, on average: benchmarks/results/build_time_2core_202611.md.
  seconds=$((units * 10 / jobs))
  echo "building $units units, about $((seconds / 60 + 1)) minutes on $jobs cores"
fi
build=(cmake --build --preset "$preset" -j "$jobs")
if (($# > 0)); then
  build+=(--target "$@")
fi
"${build[@]}"
