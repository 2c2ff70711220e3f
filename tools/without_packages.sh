#!/usr/bin/env bash
# Runs a command on a machine that looks as if the packages of tools/collect_deps.sh had never been
# installed: their headers, link names and CMake files are gone from an overlay over /usr that only the
# command sees. Shows that a folder of collect_deps is enough to build with. Needs root.
#
# Usage: tools/without_packages.sh COMMAND [ARGUMENT...]
# Example:
#   tools/collect_deps.sh build/deps
#   ENTRAIN_DEPS=build/deps ENTRAIN_PYTHON=/opt/venv/bin/python tools/without_packages.sh make gpu-check
#
# Exit status: the command's; 3 where the overlay cannot be made.
set -euo pipefail
if [[ $# == 0 || $1 == --help ]]; then
  sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"
  exit 0
fi
collect=$(realpath "$(dirname "$0")/collect_deps.sh")
scratch=$(mktemp -d)
trap 'rmdir "$scratch"' EXIT
export collect scratch
status=0
unshare --mount bash -euc '
  files=$("$collect" --list | grep -E "^/usr/(include|share|src|lib/.*(\.a|\.so|/cmake/.*|/pkgconfig/.*)$)")
  mount -t tmpfs none "$scratch" && mkdir "$scratch/upper" "$scratch/work" &&
    mount -t overlay overlay -o "lowerdir=/usr,upperdir=$scratch/upper,workdir=$scratch/work" /usr || exit 3
  xargs -d "\n" rm -f -- <<<"$files"
  echo "without_packages: $(wc -l <<<"$files") files are out of sight" >&2
  exec "$@"' without_packages "$@" || status=$?
exit "$status"
