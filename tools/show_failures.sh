#!/usr/bin/env bash
# What failed in ctest's last run of a build folder, at the end of a long output: each failed
# assertion with its place and values, each failed Python test with its traceback.
# Usage: tools/show_failures.sh BUILD
set -euo pipefail
log="$1/Testing/Temporary/LastTest.log"
[ -f "$log" ] || exit 0
echo
echo "what failed, from $log:"
awk '
  /^Command: /               { command = $0 }
  /: Failure$/               { shown = 40 }
  /^(FAIL|ERROR): /          { shown = 60 }
  shown > 0                  { if (command != "") { print command; command = "" } print "  " $0 }
  /^\[ +FAILED +\]|^Ran /    { shown = 0 }
  shown > 0                  { --shown }
' "$log"
