#!/bin/sh
# logged.sh MPIRUN RANKS PROGRAM LIBPMPI PMPI_CHECK: runs a few steps with every MPI call
# logged and delayed at random, then lets pmpi_check.py judge the logs.
set -u
mpirun=$1
ranks=$2
program=$3
pmpi=$4
check=$5
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

for seed in 1 2 3; do
    "$mpirun" "$ranks" env LD_PRELOAD="$pmpi" WEFT_PMPI_LOG="$folder/log" \
        WEFT_PMPI_DELAY_MS=50 WEFT_PMPI_DELAY_TOTAL_MS=1500 WEFT_PMPI_SEED=$seed \
        "$program" logged >"$folder/output" 2>&1
    code=$?
    if [ $code -ne 0 ]; then
        cat "$folder/output"
        exit $code
    fi
    python3 "$check" "$folder/log" "$ranks" || exit 1
done
