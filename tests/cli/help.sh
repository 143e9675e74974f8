#!/bin/sh
# SPDX-License-Identifier: MIT
# The front door: overview, help of each command, version, near misses, exit codes.
set -u
bad=0

# expect CODE PATTERN ARGS...: exit code and a pattern in stdout and stderr together.
expect() {
    code=$1
    pattern=$2
    shift 2
    output=$("$WEFT" "$@" 2>&1)
    found=$?
    if [ "$found" -ne "$code" ]; then
        echo "weft $*: exit code $found, needs $code"
        bad=1
    fi
    if ! printf '%s\n' "$output" | grep -q -e "$pattern"; then
        echo "weft $*: no line like '$pattern' in: $output"
        bad=1
    fi
}

expect 2 '^usage: weft COMMAND'
expect 0 '^usage: weft COMMAND' help
expect 0 '^usage: weft COMMAND' --help
expect 0 '^weft [0-9][0-9]*\.[0-9]' --version
expect 2 "did you mean 'train'" trian
expect 2 "see 'weft help'" xyzzy
expect 2 "did you mean '--help'" --hepl
expect 2 "did you mean '--version'" --vers
expect 2 "did you mean '--help'" help --hepl
expect 2 "^weft: error: --model: found an option before the command" --model x train
expect 2 "did you mean 'train'" help trein
expect 2 'one command at most' help train info
for command in tokenize train eval generate info check bench; do
    expect 0 "$command" help "$command"
    expect 0 "$command" "$command" --help
    if [ "$("$WEFT" help "$command")" != "$("$WEFT" "$command" --help)" ]; then
        echo "weft help $command differs from weft $command --help"
        bad=1
    fi
    expect 2 'no such option' "$command" --no-such-option
done
if [ "$("$WEFT" help bench step)" != "$("$WEFT" bench step --help)" ]; then
    echo "weft help bench step differs from weft bench step --help"
    bad=1
fi
expect 2 'no such benchmark' help bench nothing
expect 2 'one command at most' help bench step update
for command in train eval generate tokenize plan; do
    lines=$("$WEFT" "$command" --no-such-option 2>&1 | wc -l)
    if [ "$lines" -ne 1 ]; then
        echo "weft $command --no-such-option: $lines lines, needs one"
        bad=1
    fi
done
# What is wrong is not said where results go.
if [ -n "$("$WEFT" 2>/dev/null)" ]; then
    echo "weft: without a command it writes to stdout"
    bad=1
fi
if "$WEFT" help >&- 2>/dev/null; then
    echo "weft help >&-: exit code 0"
    bad=1
fi
# Results that cannot be written are no success.
if [ -w /dev/full ] && "$WEFT" help >/dev/full 2>/dev/null; then
    echo "weft help >/dev/full: exit code 0"
    bad=1
fi
exit "$bad"
