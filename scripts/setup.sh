# shellcheck shell=sh disable=SC2034,SC2154 # read and set by the scripts that source it
# SPDX-License-Identifier: MIT
# setup.sh - what ./quickstart, ./runtests and .ci/run share. Sourced, not run; the caller
# sets `me` (its name in messages) and has changed to the project's folder.

packages_build="clang-19 libomp-19-dev cmake make pkg-config libopenmpi-dev openmpi-bin
libdnnl-dev libpcre2-dev libjansson-dev libxxhash-dev libinih-dev zlib1g-dev libzstd-dev"
packages_quickstart="bible-kjv"
packages_tests="libcmocka-dev python3 iproute2"

say() {
    printf '%s: %s\n' "$me" "$*"
}

die() {
    printf '%s: error: %s\n' "$me" "$*" >&2
    exit 1
}

# Shows a command in a form that can be pasted, then runs it.
run() {
    printf '+'
    for word in "$@"; do
        case "$word" in
        *[!A-Za-z0-9_./:=,@%+-]*) printf " '%s'" "$word" ;;
        *) printf ' %s' "$word" ;;
        esac
    done
    printf '\n'
    "$@"
}

# ---- parts: named, timed, and the end of the script when one fails -----------------------

timings=""
started_s=$(date +%s)

# part NAME COMMAND...
part() {
    part_name=$1
    shift
    part_start=$(date +%s)
    say "$part_name"
    part_rc=0
    "$@" || part_rc=$?
    timings="$timings$(printf '%6d s  %s' $(($(date +%s) - part_start)) "$part_name")
"
    if [ "$part_rc" -ne 0 ]; then
        die "$part_name: failed with exit code $part_rc"
    fi
}

print_timings() {
    printf '%s%6d s  in all\n' "$timings" $(($(date +%s) - started_s))
}

# ---- packages ----------------------------------------------------------------------------

is_debian() {
    [ -f /etc/debian_version ] && command -v apt-get >/dev/null &&
        command -v dpkg-query >/dev/null
}

# missing_packages NAME...: those not installed, on one line
missing_packages() {
    for package in "$@"; do
        state=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) || state=none
        [ "$state" = installed ] || printf '%s ' "$package"
    done
}

# Runs a command as root, showing it first.
as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        run "$@"
    elif command -v sudo >/dev/null; then
        run sudo "$@"
    else
        die "needs root or sudo to install packages; as root run: apt-get install $missing"
    fi
}

# Tools that must be found where packages are somebody else's business.
check_tools() {
    absent=""
    for tool in cmake make pkg-config; do
        command -v "$tool" >/dev/null || absent="$absent $tool"
    done
    command -v mpicc.openmpi >/dev/null || command -v mpicc >/dev/null || absent="$absent mpicc"
    command -v clang-19 >/dev/null || command -v cc >/dev/null || absent="$absent clang-19"
    [ -z "$absent" ] || die "not found:$absent"
}

# install_packages NAME...: installs what is missing; does nothing when all is there.
install_packages() {
    if ! is_debian; then
        say "this is no Debian system: nothing is installed, these Debian packages" \
            "(or their like) must be there:"
        say "$@"
        check_tools
        return 0
    fi
    missing=$(missing_packages "$@")
    if [ -z "$missing" ]; then
        say "all packages are installed"
        return 0
    fi
    say "to be installed with apt-get: $missing"
    as_root apt-get -q update || return 1
    # shellcheck disable=SC2086 # a list of names
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends \
        $missing
}

# ---- building ----------------------------------------------------------------------------

count_cores() {
    nproc 2>/dev/null || getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1
}

# ---- several ranks on this machine -------------------------------------------------------

# Open MPI's refusals that make no sense on a machine of one's own: more ranks than cores,
# and root (the usual user of a container).
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1
# Containers often forbid reading another process's memory; copying through shared memory
# works everywhere.
export OMPI_MCA_btl_vader_single_copy_mechanism="${OMPI_MCA_btl_vader_single_copy_mechanism:-none}"

find_mpirun() {
    if command -v mpirun.openmpi >/dev/null; then
        echo mpirun.openmpi
    else
        echo mpirun
    fi
}
