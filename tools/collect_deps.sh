#!/usr/bin/env bash
# Gathers headers and libraries of the distribution packages that the build needs into one folder, for
# machines that can install nothing.
#
# Usage: tools/collect_deps.sh [FOLDER]     (default: build/deps)
#        tools/collect_deps.sh --list       (prints the files, copies none)
#
# Run it where the packages are installed (tools/setup.sh); copy the tree with FOLDER to the other
# machine and configure there with -DENTRAIN_DEPS=FOLDER. The other machine needs a compiler, CMake,
# Ninja or make, a C library at least as new, and for the engine a Python with torch
# (-DENTRAIN_PYTHON=…).
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-build/deps}

packages=(libcli11-dev libtomlplusplus-dev nlohmann-json3-dev libfmt-dev libjpeg-dev libjpeg62-turbo-dev
  libpng-dev libwebp-dev libgif-dev libsndfile1-dev libmpg123-dev libogg-dev libzmq3-dev cppzmq-dev libarchive-dev zlib1g-dev
  libxxhash-dev libgtest-dev googletest libbenchmark-dev libbenchmark1debian libjpeg62-turbo libpng16-16
  libwebp7 libwebpdemux2 libsharpyuv0 libgif7 zlib1g libxxhash0 libfmt9 libsndfile1 libflac12 libogg0
  libvorbis0a libvorbisenc2 libopus0 libmpg123-0 libmp3lame0 libzmq5 libsodium23 libpgm-5.3-0 libnorm1
  libgssapi-krb5-2 libkrb5-3 libk5crypto3 libkrb5support0 libcom-err2 libkeyutils1 libbsd0 libmd0)

installed=()
for package in "${packages[@]}"; do
  if dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed'; then
    installed+=("$package")
  elif [[ $package == googletest || $package == *-dev && $package != libjpeg62-turbo-dev ]]; then
    echo "collect_deps: package $package is not installed; run tools/setup.sh first" >&2
    exit 3
  fi
done

# Files that a build reads, whatever package they are in.
list_files() {
  dpkg -L "${installed[@]}" |
    grep -E '^/(usr/)?(include|lib)/|^/usr/share/(cmake|pkgconfig)/|^/usr/src/googletest/googletest/(include|src)/' |
    grep -vE '/python|/debug/|/sndfile/tests/' | sort -u |
    while read -r path; do
      if [[ -f $path || -L $path ]] && [[ ! -d $path || -L $path ]]; then
        echo "$path"
      fi
    done
}
if [[ $folder == --list ]]; then
  list_files
  exit 0
fi

partial=$folder.partial-$$
rm -rf "$partial"
mkdir -p "$partial"
trap 'rm -rf "$partial"' EXIT
# Links are kept, so that a library and its versions stay together.
list_files |
  while read -r path; do
    target=$path
    [[ $target == /lib/* ]] && target=/usr$target
    mkdir -p "$partial$(dirname "$target")"
    cp -a "$path" "$partial$target"
  done
rm -rf "$folder"
mkdir -p "$(dirname "$folder")"
mv "$partial" "$folder"
trap - EXIT
echo "collect_deps: $(find "$folder" -type f | wc -l) files, $(du -sh "$folder" | cut -f1), in $folder"
echo "collect_deps: configure with  cmake --preset release -DENTRAIN_DEPS=$(realpath "$folder")"
