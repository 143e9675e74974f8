#!/bin/sh
# SPDX-License-Identifier: MIT
# Runs one fuzzer for some seconds: smoke.sh PROGRAM CORPUS WORK SECONDS
#
# Starts from CORPUS; what it learns goes to WORK, and so does an input that shows a fault.
set -eu
program=$1
corpus=$2
work=$3
seconds=$4

mkdir -p "$work/learned"
cd "$work"
ASAN_OPTIONS=allocator_may_return_null=1:detect_leaks=1${ASAN_OPTIONS:+:$ASAN_OPTIONS} \
    exec "$program" -max_total_time="$seconds" -max_len=8192 -timeout=20 -rss_limit_mb=2048 \
    -close_fd_mask=0 -print_final_stats=1 -verbosity=0 learned "$corpus"
