#!/usr/bin/env bash
# Builds, runs the tests with the label `gpu`, and prints a summary.
#
# Usage: tools/gpu_check.sh
#   ENTRAIN_PYTHON   the Python whose torch to build against (default: .venv/bin/python); torch >= 2.11
#   ENTRAIN_DEPS     folder of tools/collect_deps.sh, where the distribution's packages are missing
#   JOBS             of the build (default: all cores)
#
# Exit status: 0 the tests passed, 1 one failed or the build did, 77 there is no GPU and all were skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${ENTRAIN_PYTHON:-$PWD/.venv/bin/python}
settings=(-DENTRAIN_PYTHON="$python")
[[ -n ${ENTRAIN_DEPS:-} ]] && settings+=(-DENTRAIN_DEPS="$(realpath "$ENTRAIN_DEPS")")

"$python" - <<'PY'
import sys
import torch

version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
if version < (2, 11):
    sys.exit(f"gpu-check: torch {torch.__version__}; at least 2.11 is needed")
if not torch.compiled_with_cxx11_abi():
    sys.exit("gpu-check: this torch was built with the old C++ ABI")
devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
names = ", ".join(torch.cuda.get_device_name(i) for i in range(devices))
print(f"gpu-check: Python {sys.version.split()[0]}, torch {torch.__version__}, "
      f"CUDA {torch.version.cuda}, GPUs: {names or 'none'}")
PY

# A tree of its own: another torch must not disturb build/release.
generator=()
command -v ninja >/dev/null && generator=(-G Ninja)
cmake -S . -B build/gpu "${generator[@]}" -DCMAKE_BUILD_TYPE=Release "${settings[@]}" >/dev/null
begun=$SECONDS
cmake --build build/gpu -j "${JOBS:-$(nproc)}" --target gpu_tests entrain
built=$((SECONDS - begun))
log=build/gpu/gpu_check.log
status=0
ctest --test-dir build/gpu -L '^gpu$' --output-on-failure | tee "$log" || status=1
skipped=$(grep -cE 'Test +#[0-9]+: .*\*\*\*Skipped' "$log" || true)
passed=$(grep -cE 'Test +#[0-9]+: .* Passed' "$log" || true)
failed=$(grep -cE 'Test +#[0-9]+: .*\*\*\*(Failed|Exception|Timeout)' "$log" || true)
echo "gpu-check: built in $built s; $passed passed, $failed failed, $skipped skipped"
if ((status != 0)); then
  exit 1
fi
if ((passed == 0)); then
  echo "gpu-check: no GPU was used"
  exit 77
fi
