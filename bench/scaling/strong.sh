#!/bin/bash
#SBATCH --job-name=weft-strong
#SBATCH --exclusive
# SPDX-License-Identifier: MIT
# shellcheck disable=SC2034 # common.sh reads what is set here
# Strong scaling: the same work on more ranks. See --help.
set -eu -o pipefail

mode=strong
what="a step has always as many
sequences, and each rank its share of them"
batch_help="sequences a step, of all ranks together; a multiple of each number
                    of ranks (default 64)"
batch=64
more=()

# batch_of P: sequences a rank.
batch_of() {
    [ $((batch % $1)) -eq 0 ] || complain "--batch $batch: needs a multiple of $1, the ranks"
    echo $((batch / $1))
}

# Slurm runs a copy of this file; it was submitted from the project's folder, or WEFT_ROOT
# names that.
folder=$(dirname "$0")
[ -e "$folder/common.sh" ] ||
    folder=${WEFT_ROOT:-${SLURM_SUBMIT_DIR:-.}}/bench/scaling
# shellcheck source=bench/scaling/common.sh
. "$folder/common.sh"

read_options "$@"
find_place
run_all
