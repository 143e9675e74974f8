#!/bin/sh
# SPDX-License-Identifier: MIT
# weft convert: llm.c -> trained run -> llm.c, and the errors.
set -eu
tmp=$WEFT_TMP
golden=$WEFT_SOURCE/tests/golden

fail() {
    echo "FAILED: $*"
    exit 1
}

rm -rf "$tmp"
mkdir -p "$tmp"

# A file read and written again is the same file.
"$WEFT" convert --from "$golden/tiny_a_model.bin" --to llmc --out "$tmp/a.bin" 2>"$tmp/log"
cmp "$golden/tiny_a_model.bin" "$tmp/a.bin" || fail "not the same bytes"
grep -q "llm.c model" "$tmp/log" || fail "does not say what it wrote"

# An existing file is not written over.
rc=0
"$WEFT" convert --from "$golden/tiny_b_model.bin" --to llmc --out "$tmp/a.bin" 2>"$tmp/log" ||
    rc=$?
[ "$rc" -eq 2 ] || fail "exit code $rc for a file that is there"
cmp -s "$golden/tiny_a_model.bin" "$tmp/a.bin" || fail "the file was touched"

rc=0
"$WEFT" convert --from "$golden/README.md" --to llmc --out "$tmp/b.bin" 2>"$tmp/log" || rc=$?
[ "$rc" -eq 1 ] || fail "exit code $rc for a text"
[ ! -e "$tmp/b.bin" ] || fail "a file was left"
rc=0
"$WEFT" convert --from "$tmp/a.bin" --to gguff --out "$tmp/b.bin" 2>"$tmp/log" || rc=$?
[ "$rc" -eq 2 ] || fail "exit code $rc for an unknown format"
rc=0
"$WEFT" convert --out "$tmp/b.bin" 2>"$tmp/log" || rc=$?
[ "$rc" -eq 2 ] || fail "exit code $rc without --from"

# What a run trained, its checkpoint and its llm.c file say the same.
head -c 20000 "$WEFT_SOURCE/src/cmd/tokenize.c" >"$tmp/text"
"$WEFT" tokenize --bytes --quiet --out "$tmp/tokens" "$tmp/text"
"$WEFT" train --quiet --data "$tmp/tokens" --model L=1,H=2,C=16,T=16 --batch 2 --steps 3 \
    --threads 1 --out "$tmp/run"
"$WEFT" convert --from "$tmp/run" --to llmc --out "$tmp/run.bin"
cp "$tmp"/run/checkpoints/step-*/tokens.json "$tmp/tokens.json"
for model in run run.bin; do
    "$WEFT" generate --model "$tmp/$model" --prompt "static " --max-tokens 20 \
        --temperature 0 >"$tmp/$model.text"
done
cmp "$tmp/run.text" "$tmp/run.bin.text" || fail "the texts differ"

# What info says of the run, and of one that has no checkpoint yet.
"$WEFT" info "$tmp/run" >"$tmp/info"
grep -q "sizes right" "$tmp/info" || fail "info does not say what it looked at"
grep -q "^  loss  *[0-9][0-9.]*$" "$tmp/info" || fail "info does not show the last loss"
mkdir "$tmp/begun"
: >"$tmp/begun/config.ini"
rc=0
"$WEFT" generate --model "$tmp/begun" 2>"$tmp/log" || rc=$?
[ "$rc" -eq 1 ] || fail "exit code $rc for a run without a checkpoint"
grep -q "begun: no checkpoint yet" "$tmp/log" || fail "does not say that there is none"

# A vocabulary without a line break has another first character.
tr '\n' ' ' <"$tmp/text" >"$tmp/line"
"$WEFT" tokenize --char --quiet --out "$tmp/chars" "$tmp/line"
"$WEFT" train --quiet --data "$tmp/chars" --model L=1,H=2,C=16,T=16 --batch 2 --steps 1 \
    --threads 1 --out "$tmp/char-run"
"$WEFT" generate --model "$tmp/char-run" --max-tokens 5 >"$tmp/generated"
[ "$(wc -c <"$tmp/generated")" -eq 6 ] || fail "not five characters and a line break"

# More ids than the model has.
vocab=${WEFT_VOCAB:-$WEFT_SOURCE/vocab/vocab.bpe}
if [ -e "$vocab" ]; then
    rc=0
    "$WEFT" generate --model "$tmp/run.bin" --vocab "$vocab" 2>"$tmp/log" || rc=$?
    [ "$rc" -eq 2 ] || fail "exit code $rc for a vocabulary too large"
    grep -q "found 50257 ids.* has 257" "$tmp/log" || fail "does not name both sizes"
fi
rm -rf "$tmp"
