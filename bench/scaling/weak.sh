#!/bin/bash
#SBATCH --job-name=weft-weak
#SBATCH --exclusive
# SPDX-License-Identifier: MIT
# shellcheck disable=SC2034 # common.sh reads what is set here
# Weak scaling: more work on more ranks. See --help.
set -eu -o pipefail

mode=weak
what="each rank has always as
many sequences a step"
batch_help="sequences a rank and step (default 4)"
batch=4
more=()

# batch_of P: sequences a rank.
batch_of() {
    echo "$batch" # whatever $1, the ranks, are
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
