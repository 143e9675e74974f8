#!/bin/sh
# failures.sh MPIRUN PROGRAM LIBPMPI COMM: one rank fails and the whole job must end at once,
# with the right exit code and a line that says why.
set -u
mpirun=$1
program=$2
pmpi=$3
comm=$4
output=$(mktemp)
trap 'rm -f "$output"' EXIT

# expect CODE PATTERN COMMAND...: exit code (x: any but 0) and, unless empty,
# a line of the output.
expect() {
    code=$1
    pattern=$2
    shift 2
    begin=$(date +%s)
    timeout 40 "$@" >"$output" 2>&1
    found=$?
    seconds=$(($(date +%s) - begin))
    if [ "$found" = 77 ]; then
        cat "$output"
        exit 77
    fi
    if [ "$code" = x ] && [ "$found" -ne 0 ] && [ "$found" -ne 124 ]; then
        found=x
    fi
    if [ "$found" != "$code" ] || { [ -n "$pattern" ] && ! grep -q "$pattern" "$output"; }; then
        echo "$*: found exit code $found after $seconds s, needs $code and '$pattern':"
        cat "$output"
        exit 1
    fi
    if [ "$seconds" -gt 15 ]; then
        echo "$*: took $seconds s"
        exit 1
    fi
    echo "ok: exit code $code, '$pattern', $seconds s"
}

expect 3 "" "$mpirun" 2 "$program" abort
expect 70 "rank 1: error: bug at .*broken invariant" "$mpirun" 2 "$program" bug
expect x "" "$mpirun" 2 "$program" exit
if [ "$comm" = tampi ]; then
    expect 2 "TAMPI needs MPI_THREAD_MULTIPLE" \
        "$mpirun" 2 env LD_PRELOAD="$pmpi" WEFT_PMPI_THREAD_LEVEL=funneled "$program"
else
    expect 0 "warning: .*found thread level MPI_THREAD_SINGLE" \
        "$mpirun" 2 env LD_PRELOAD="$pmpi" WEFT_PMPI_THREAD_LEVEL=single "$program"
    expect 0 "PASSED" \
        "$mpirun" 2 env LD_PRELOAD="$pmpi" WEFT_PMPI_THREAD_LEVEL=funneled "$program"
fi
# Launched by something that is not this program's MPI: every process is alone.
expect 2 "found 1 rank, but the launcher has started 3" \
    env OMPI_COMM_WORLD_SIZE=3 "$program"
expect 2 "found 1 rank, but the launcher has started 4" env SLURM_STEP_NUM_TASKS=4 "$program"
expect 0 "PASSED" env SLURM_NTASKS=4 "$program"
