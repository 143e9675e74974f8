# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154
# What strong.sh and weak.sh share: options, ways to start ranks, the loop over numbers of
# ranks. The script that sources this has set mode, what and batch_help.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

usage() {
    cat <<END
usage: sbatch [SBATCH OPTIONS] bench/scaling/$mode.sh [OPTIONS] [-- OPTIONS OF bench update]
       bench/scaling/$mode.sh --hostfile FILE --ranks "1 2 4 8" [OPTIONS] [-- ...]
       bench/scaling/$mode.sh --local --ranks "1 2 4" [OPTIONS] [-- ...]

Runs 'weft bench update' on growing numbers of ranks: $what.
Under Slurm the ranks are those of the job, hosts are filled one after the other. --local
runs all ranks on this machine: it shows that the script works, and nothing about scaling.

  --weft PATH       the program (default build/weft)
  --out DIR         results (default scaling-$mode)
  --model SPEC      (default gpt2)
  --batch N         $batch_help
  --seq N           tokens a sequence (default 1024)
  --threads N       workers a rank (default: Slurm's cpus-per-task, else 1)
  --ranks "LIST"    numbers of ranks, ascending (default under Slurm: 1 2 4 ... all)
  --per-host N      ranks a host (default: Slurm's ntasks-per-node, else 1)
  --launch "WORDS"  mpirun's or srun's options instead of those made from the above
  --mpirun PATH     (default mpirun; under Slurm srun is used unless this is given)

DIR gets network.json (of the largest number), $mode-NNNN.json for each number of ranks and
$mode.md, a table with efficiencies. Example for 16 machines of 32 cores:
  sbatch --nodes=16 --ntasks-per-node=2 --cpus-per-task=16 bench/scaling/$mode.sh
END
}

complain() {
    echo "$mode.sh: $*" >&2
    exit 2
}

read_options() {
    weft=$root/build/weft
    out=scaling-$mode
    model=gpt2
    seq=1024
    threads=${SLURM_CPUS_PER_TASK:-1}
    per_host=${SLURM_NTASKS_PER_NODE:-1}
    ranks=""
    hostfile=""
    launch=""
    mpirun=""
    local_run=no
    while [ $# -gt 0 ]; do
        case $1 in
        --help | -h)
            usage
            exit 0
            ;;
        --local) local_run=yes ;;
        --)
            shift
            more=("$@")
            return
            ;;
        --weft | --out | --model | --batch | --seq | --threads | --ranks | --per-host | \
            --hostfile | --launch | --mpirun)
            [ $# -ge 2 ] || complain "$1: needs a value"
            name=${1#--}
            printf -v "${name//-/_}" '%s' "$2"
            shift
            ;;
        *) complain "found '$1'; see --help" ;;
        esac
        shift
    done
}

# Where the ranks will be, and how many there can be.
find_place() {
    if [ "$local_run" = yes ]; then
        place=local
    elif [ -n "$hostfile" ]; then
        place=hostfile
        [ -r "$hostfile" ] || complain "--hostfile $hostfile: cannot be read"
    elif [ -n "${SLURM_JOB_ID:-}" ]; then
        place=slurm
    else
        complain "needs a Slurm job, --hostfile FILE or --local"
    fi
    if [ -z "$ranks" ] && [ "$place" = slurm ]; then
        most=$((${SLURM_JOB_NUM_NODES:-1} * per_host))
        for ((p = 1; p < most; p *= 2)); do
            ranks+="$p "
        done
        ranks+=$most
    fi
    [ -n "$ranks" ] || complain "--ranks: needs numbers of ranks, such as \"1 2 4\""
    for p in $ranks; do
        [[ $p =~ ^[1-9][0-9]*$ ]] || complain "--ranks: found '$p', needs numbers"
    done
    [ -x "$weft" ] || complain "--weft $weft: no such program"
}

# start P WORDS...: runs the words on P ranks.
start() {
    local p=$1
    shift
    case $place in
    local)
        "$root/tests/support/mpirun" "$p" "$@"
        return
        ;;
    slurm)
        if [ -z "$mpirun" ]; then
            local hosts=$(((p + per_host - 1) / per_host))
            local options="--nodes=$hosts --ntasks=$p --cpus-per-task=$threads --cpu-bind=cores"

            # shellcheck disable=SC2086 # words
            srun ${launch:-$options} "$@"
            return
        fi
        ;;
    esac
    local launcher=${mpirun:-mpirun}
    local options="--map-by ppr:$per_host:node:PE=$threads --bind-to core"
    local file=--hostfile

    if ! "$launcher" --version 2>&1 | grep -q -e "Open MPI" -e OpenRTE; then
        options="-ppn $per_host -bind-to core:$threads"
        file=-f
    fi
    # shellcheck disable=SC2086 # words
    "$launcher" ${hostfile:+$file "$hostfile"} -n "$p" ${launch:-$options} "$@"
}

# run_all: the network at the largest number of ranks, then each number.
run_all() {
    local most=1
    local -a network=()

    mkdir -p "$out"
    for p in $ranks; do
        [ "$p" -gt "$most" ] && most=$p
        batch_of "$p" >/dev/null
    done
    if [ "$most" -gt 1 ]; then
        start "$most" "$weft" bench network --quiet --bytes 64..16M --repeat 3 \
            --json "$out/network.json"
        network=(--network "$out/network.json")
    fi
    for p in $ranks; do
        echo "$mode.sh: $p ranks" >&2
        start "$p" "$weft" bench update --model "$model" --batch "$(batch_of "$p")" \
            --seq "$seq" --threads "$threads" --json "$(printf '%s/%s-%04d.json' "$out" "$mode" "$p")" \
            "${network[@]}" "${more[@]}"
    done
    local -a files=()
    for p in $ranks; do
        files+=("$(printf '%s/%s-%04d.json' "$out" "$mode" "$p")")
    done
    python3 "$root/bench/scaling/table.py" "${files[@]}" | tee "$out/$mode.md"
}
