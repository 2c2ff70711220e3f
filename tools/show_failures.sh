#!/usr/bin/env bash
# What failed in ctest's last run of a build folder, at the end of a long output. Of each failed entry:
# its failed assertions with their places and values, or its failed Python tests with tracebacks; where
# it has none, as after a crash or a timeout, the last lines that it printed.
# Usage: tools/show_failures.sh BUILD
set -euo pipefail
log="$1/Testing/Temporary/LastTest.log"
[ -f "$log" ] || exit 0
echo
echo "what failed, from $log:"
awk -v most=200 -v last=15 '
  /^[0-9]+\/[0-9]+ Test: /    { name = $3; read = 0; lines = 0; found = 0; failure = 0 }
  /^Output:$/ && !read        { read = 1; next }
  /^<end of output>$/         { read = 0 }
  read {
    line[lines++] = $0
    if ($0 ~ /: Failure$|^(FAIL|ERROR): /) failure = 1
    if (failure && found < most) shown[found++] = $0
    if ($0 ~ /^\[ +FAILED +\]|^Ran /) failure = 0
  }
  /^Test (Failed\.|Fail Reason:)$/ {
    print name ":"
    for (i = 0; i < found; ++i) print "  " shown[i]
    for (i = lines < last ? 0 : lines - last; !found && i < lines; ++i) print "  " line[i]
  }
' "$log"
