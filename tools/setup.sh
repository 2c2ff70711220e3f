#!/usr/bin/env bash
# Makes a fresh Debian 12 ready to build Entrain (written to work on Ubuntu 24.04 too; untested there).
#
# Usage: tools/setup.sh [--core | --fuzz | --check | --docs | --parity]
#   --core   only what the torch-free core needs: no torch in .venv
#   --fuzz   the same, and clang with its sanitizers and fuzzer
#   --check  the same as --fuzz
#   --docs   the same as --core, and mkdocs with its theme in .venv
#   --parity the same, and transformers and other trainers with a torch of their own in .venv-parity
#
# As root, missing distribution packages are installed; otherwise the exact command is printed and the
# exit status is 3. Then .venv is made with torch 2.13.0, unless a usable torch (>= 2.11) is there.
#   ENTRAIN_PIP_INDEX   another package index for pip, for those who want a CPU-only torch
#   ENTRAIN_PYTHON      the interpreter for .venv (default: python3)
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(g++ cmake ninja-build ccache make git python3 python3-dev python3-venv clang-format-14
  libcli11-dev libtomlplusplus-dev nlohmann-json3-dev libfmt-dev libjpeg-dev libpng-dev libwebp-dev libgif-dev
  libsndfile1-dev libmpg123-dev libogg-dev libzmq3-dev cppzmq-dev libarchive-dev zlib1g-dev libxxhash-dev libgtest-dev libbenchmark-dev iproute2)

if [[ ${1:-} == --check || ${1:-} == --fuzz ]]; then
  packages+=(clang-14 libclang-rt-14-dev chromium fonts-dejavu-core)
fi

missing=()
for package in "${packages[@]}"; do
  if ! dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed'; then
    missing+=("$package")
  fi
done
if ((${#missing[@]} > 0)); then
  if [[ $(id -u) -ne 0 ]]; then
    echo "Distribution packages are missing. Install them with:" >&2
    echo "  sudo apt-get install --no-install-recommends ${missing[*]}" >&2
    echo "then run this again." >&2
    exit 3
  fi
  echo "setup: installing ${missing[*]}"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

python=${ENTRAIN_PYTHON:-python3}
if [[ ! -x .venv/bin/python ]]; then
  echo "setup: creating .venv with $($python --version)"
  "$python" -m venv .venv
fi
pip=(.venv/bin/python -m pip install --quiet --disable-pip-version-check)
if [[ -n ${ENTRAIN_PIP_INDEX:-} ]]; then
  pip+=(--index-url "$ENTRAIN_PIP_INDEX")
fi

echo "setup: Python tools"
"${pip[@]}" -r tools/requirements.txt
if [[ -z ${1:-} ]]; then
  if .venv/bin/python - <<'PY' 2>/dev/null
import torch
version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
raise SystemExit(0 if version >= (2, 11) else 1)
PY
  then
    echo "setup: torch $(.venv/bin/python -c 'import torch; print(torch.__version__)') is there"
  else
    echo "setup: installing torch 2.13.0 (this downloads once)"
    "${pip[@]}" torch==2.13.0
  fi
  # `python -m entrain` and `torchrun -m entrain` of this .venv find the package where it is built.
  packages_folder=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
  echo "$PWD/build/release/python" >"$packages_folder/entrain.pth"
  touch .venv/.entrain-engine-ready
fi
if [[ ${1:-} == --check || ${1:-} == --fuzz ]]; then
  touch ".venv/.entrain-${1#--}-ready"
fi
if [[ ${1:-} == --docs ]]; then
  "${pip[@]}" -r tools/requirements-docs.txt
  touch .venv/.entrain-docs-ready
fi
if [[ ${1:-} == --parity ]]; then
  [[ -x .venv-parity/bin/python ]] || "$python" -m venv .venv-parity
  echo "setup: transformers in .venv-parity (this downloads once)"
  parity=(.venv-parity/bin/python "${pip[@]:1}")
  "${parity[@]}" torch==2.13.0
  "${parity[@]}" -r tools/requirements-parity.txt
  # Their interfaces alone are used; what they depend on does not fit together.
  "${parity[@]}" --no-deps torchtitan==0.3.0 megatron-core==0.16.1 veomni==0.1.12
  touch .venv-parity/.entrain-parity-ready
fi
touch .venv/.entrain-core-ready
