#!/usr/bin/env bash
# What CI runs beside `make test`: format, lint, warnings as errors, core's files one by one, what mutexes
# guard, one definition of every type in the whole program, core and engine under address and
# undefined-behaviour sanitizers, ThreadComm and executor under the thread sanitizer, the long tests.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=${JOBS:-$(nproc)}

echo "check: format"
git ls-files '*.h' '*.cc' | xargs clang-format-14 --dry-run --Werror
.venv/bin/ruff format --quiet --check --line-length 100 tools tests benchmarks examples entrain/python
.venv/bin/ruff check --quiet --line-length 100 tools tests benchmarks examples entrain/python

echo "check: each file of core by itself"
cmake --preset each-file >/dev/null
cmake --build --preset each-file -j "$jobs" --target entrain

echo "check: what a mutex guards is used under it"
if git grep -nE 'std::(mutex|lock_guard|unique_lock|scoped_lock)' -- \
    'entrain/*.h' 'entrain/*.cc' ':!*_test.cc' ':!entrain/core/base/thread_safety.h'; then
  echo "check: use Mutex and MutexLock of entrain/core/base/thread_safety.h" >&2
  exit 1
fi
torch=$(.venv/bin/python -c 'import os, torch; print(os.path.dirname(torch.__file__))')/include
for part in core engine; do
  flags=()
  if [[ $part == engine ]]; then
    flags=(-isystem "$torch" -isystem "$torch/torch/csrc/api/include")
  fi
  # As one unit, since compile time is that of headers.
  git grep -l thread_safety.h -- "entrain/$part/" | sed 's/\.h$/.cc/' | sort -u | sed 's/.*/#include "&"/' |
    clang++-14 -std=c++20 -fsyntax-only -Wthread-safety -Werror -I. "${flags[@]}" \
      -DENTRAIN_VERSION='""' -DENTRAIN_TORCH_VERSION='""' -x c++ -
done

# Not optimised: types are compared, and nothing of it runs.
echo "check: one definition of every type in the whole program, engine and commands without warnings"
cmake --preset lto >/dev/null
cmake --build --preset lto -j "$jobs" --target entrain

echo "check: core under asan and ubsan, warnings as errors"
cmake --preset asan >/dev/null
cmake --build --preset asan -j "$jobs"
ctest --preset asan -LE '^long$' -j "$jobs" || { tools/show_failures.sh build/asan; exit 1; }

echo "check: engine under asan and ubsan"
cmake --preset asan-engine >/dev/null
engine_tests=(entrain_{comm,models,data,checkpoint,pipeline,profiler,train}_test)
cmake --build --preset asan-engine -j "$jobs" --target "${engine_tests[@]}"
# Torch is not instrumented and frees nothing of its own at exit: no leaks. Tests ask for memory that nobody has,
# and for signals that the program itself handles.
ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:handle_segv=0:handle_abort=0 UBSAN_OPTIONS=print_stacktrace=1 \
  ctest --preset asan-engine -R '^engine/' -j "$jobs" || { tools/show_failures.sh build/asan-engine; exit 1; }

echo "check: ThreadComm and executor under tsan"
cmake --preset tsan >/dev/null
cmake --build --preset tsan -j "$jobs" --target entrain_comm_test entrain_pipeline_test
# Torch's own loops on one thread: how OpenMP's threads wait for each other is not instrumented, so that every
# buffer which they share would be reported. Our threads are all there.
OMP_NUM_THREADS=1 TSAN_OPTIONS="suppressions=$PWD/tools/tsan.supp halt_on_error=1 allocator_may_return_null=1" \
  ctest --preset tsan -R '^engine/(comm|pipeline)$' || { tools/show_failures.sh build/tsan; exit 1; }

echo "check: the long tests"
make --no-print-directory long-test JOBS="$jobs"
echo "check: all passed"
