#!/bin/sh
# crowd.sh N PROGRAM: runs PROGRAM N times at once; fails if any of them does.
n=$1
shift
pids=
while [ "$n" -gt 0 ]; do
    "$@" >/dev/null 2>&1 &
    pids="$pids $!"
    n=$((n - 1))
done
rc=0
for pid in $pids; do
    wait "$pid" || rc=1
done
exit $rc
