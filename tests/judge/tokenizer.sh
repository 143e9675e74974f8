#!/bin/sh
# SPDX-License-Identifier: MIT
# Compares weft's GPT-2 ids with those of tiktoken (npm, the real one as WebAssembly): every
# code point in nine surroundings, the King James Bible where it is installed, random text
# and pathological text.
#
#   tokenizer.sh                 the comparison; needs WEFT, WEFT_TMP, WEFT_BUILD, WEFT_SOURCE
#   tokenizer.sh --full          with a word of 200,000 letters (tiktoken takes a minute for it)
#   tokenizer.sh --golden FILE   writes tests/golden/tokenizer/strings.json anew
#
# Skips itself (77) without node, npm, the network or a table; WEFT_VOCAB names a table.
set -eu

package=tiktoken@1.0.22
long=40000

skip() {
    echo "skipped: $*"
    exit 77
}

: "${WEFT_SOURCE:=$(cd "$(dirname "$0")/../.." && pwd)}"
: "${WEFT_BUILD:=$WEFT_SOURCE/build}"
script=$WEFT_SOURCE/tests/judge/tiktoken_compare.mjs
home=$WEFT_BUILD/judge-tiktoken

for program in node npm; do
    command -v "$program" >/dev/null || skip "needs $program"
done
if [ ! -e "$home/node_modules/tiktoken/package.json" ]; then
    mkdir -p "$home"
    npm install --prefix "$home" --no-audit --no-fund --ignore-scripts --loglevel error \
        "$package" >"$home/npm.log" 2>&1 || skip "npm cannot fetch $package"
fi
export TIKTOKEN="$home/node_modules/tiktoken"

if [ "${1:-}" = --golden ]; then
    exec node "$script" golden "$2"
fi
[ "${1:-}" = --full ] && long=200000

vocab=${WEFT_VOCAB:-$WEFT_SOURCE/vocab/vocab.bpe}
if [ ! -e "$vocab" ]; then
    vocab=$home/vocab/vocab.bpe
    "$WEFT_SOURCE/scripts/get-vocab" "$home/vocab" >/dev/null || skip "no table"
fi

rm -rf "$WEFT_TMP"
mkdir -p "$WEFT_TMP/texts"
node "$script" make "$WEFT_TMP/texts" "$long"
if command -v bible >/dev/null; then
    bible -f 'Gen1:1-Rev22:21' </dev/null >"$WEFT_TMP/texts/kjv_references.txt"
    sed -E 's/^[A-Za-z0-9]+:[0-9]+ //' "$WEFT_TMP/texts/kjv_references.txt" \
        >"$WEFT_TMP/texts/kjv.txt"
fi
"$WEFT" tokenize --vocab "$vocab" --val-fraction 0 --shard-tokens 2000000000 \
    --out "$WEFT_TMP/out" "$WEFT_TMP/texts"
status=0
node "$script" compare "$WEFT_TMP/texts" "$WEFT_TMP/out/text_train_000001.bin" 2 || status=1
rm -rf "$WEFT_TMP"
exit "$status"
