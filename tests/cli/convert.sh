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

# The tokenizer travels with the model: byte and character ids fit into other programs' files.
tr '\n' ' ' <"$tmp/text" >"$tmp/line" && printf 'é€🤗' >>"$tmp/line"
"$WEFT" tokenize --char --quiet --val-fraction 0 --out "$tmp/chars" "$tmp/line"
"$WEFT" train --quiet --data "$tmp/chars" --model L=1,H=2,C=16,T=16 --batch 2 --steps 1 \
    --threads 1 --out "$tmp/char-run"
for run in run char-run; do
    from=$tmp/$run
    for to in safetensors weft gguf weft; do
        "$WEFT" convert --from "$from" --to "$to" --out "$from.$to" 2>"$tmp/log" ||
            fail "$from to $to: $(cat "$tmp/log")"
        grep -q "warning" "$tmp/log" && fail "$from to $to: $(cat "$tmp/log")"
        from=$from.$to
        "$WEFT" generate --model "$from" --prompt "static " --max-tokens 9 --temperature 0 \
            >"$from.text"
        "$WEFT" generate --model "$tmp/$run" --prompt "static " --max-tokens 9 \
            --temperature 0 | cmp - "$from.text" || fail "$from: another text"
        "$WEFT" info "$from" | grep -q "^tokens_json .*/" || fail "$from: no tokenizer"
    done
done
grep -q '"code_points"' "$from/tokens.json" || fail "characters are no characters any more"
# What knows of no tokenizer says so.
"$WEFT" convert --from "$golden/tiny_a_model.bin" --to gguf --out "$tmp/bare.gguf" 2>"$tmp/log"
grep -q "warning: .*found no tokenizer" "$tmp/log" || fail "does not say what is missing"

# What info says of the run, and of one that has no checkpoint yet.
"$WEFT" info "$tmp/run" >"$tmp/info"
grep -q "step-000.* whole$" "$tmp/info" || fail "info does not say what it looked at"
grep -q "^  loss  *[0-9][0-9.]*$" "$tmp/info" || fail "info does not show the last loss"
# One changed byte of the newest checkpoint, its size right; the one before is named then.
mkdir "$tmp/runs"
cp -r "$tmp/run" "$tmp/runs/hurt"
newest=$(ls -d "$tmp"/runs/hurt/checkpoints/step-*)
cp -r "$newest" "$tmp/runs/hurt/checkpoints/step-000000"
printf '\377\376' | dd of="$newest/state-00000-of-00001.bin" bs=1 seek=999 conv=notrunc 2>/dev/null
rc=0
"$WEFT" info "$tmp/runs/hurt" >"$tmp/info" 2>"$tmp/log" || rc=$?
[ "$rc" -eq 1 ] || fail "exit code $rc for a run whose newest checkpoint is damaged"
grep -q "error: $newest/state.*damaged" "$tmp/log" || fail "does not name the damage"
grep -q "^newest .*step-000000$" "$tmp/info" || fail "does not name the one before"
# Folders of runs and of checkpoints: what to ask for is said.
for path in runs runs/hurt/checkpoints; do
    "$WEFT" info "$tmp/$path" 2>"$tmp/log" && fail "$path: exit code 0"
    grep -q "needs .*$tmp/runs/hurt" "$tmp/log" || fail "$path: $(cat "$tmp/log")"
done
for run in z m b y a; do # made in another order than that of their names
    mkdir -p "$tmp/many/$run"
    : >"$tmp/many/$run/config.ini"
done
"$WEFT" info "$tmp/many" 2>"$tmp/log" && fail "many: exit code 0"
grep -q "them: $tmp/many/a, $tmp/many/b, $tmp/many/m, \.\.\.$" "$tmp/log" ||
    fail "not in order: $(cat "$tmp/log")"
mkdir "$tmp/begun"
: >"$tmp/begun/config.ini"
rc=0
"$WEFT" generate --model "$tmp/begun" 2>"$tmp/log" || rc=$?
[ "$rc" -eq 1 ] || fail "exit code $rc for a run without a checkpoint"
grep -q "begun: no checkpoint yet" "$tmp/log" || fail "does not say that there is none"

# A vocabulary without a line break has another first character.
"$WEFT" generate --model "$tmp/char-run" --max-tokens 5 >"$tmp/generated"
[ "$(wc -c <"$tmp/generated")" -eq 6 ] || fail "not five characters and a line break"

# GPT-2's vocabulary goes through all of them, its table byte for byte.
vocab=${WEFT_VOCAB:-$WEFT_SOURCE/vocab/vocab.bpe}
if [ -e "$vocab" ]; then
    head -c 3000 "$tmp/text" >"$tmp/short"
    "$WEFT" tokenize --vocab "$vocab" --quiet --val-fraction 0 --out "$tmp/bpe" "$tmp/short"
    "$WEFT" train --quiet --data "$tmp/bpe" --model L=1,H=1,C=4,T=16 --batch 2 --steps 1 \
        --threads 1 --out "$tmp/bpe-run"
    from=$tmp/bpe-run
    for to in gguf safetensors weft llmc; do
        "$WEFT" convert --from "$from" --to "$to" --out "$tmp/bpe.$to"
        from=$tmp/bpe.$to
    done
    cmp "$vocab" "$tmp/bpe.safetensors/merges.txt" || fail "not the table"
    cmp "$vocab" "$tmp/bpe.weft/vocab.bpe" || fail "not the table"
    [ ! -e "${vocab%vocab.bpe}encoder.json" ] || python3 -c 'import json, sys
a, b = (json.load(open(p, encoding="utf-8")) for p in sys.argv[1:])
sys.exit(a != b)' "${vocab%vocab.bpe}encoder.json" "$tmp/bpe.safetensors/vocab.json" ||
        fail "vocab.json is not OpenAI's encoder.json"
    # --vocab gives a model its tokenizer.
    "$WEFT" convert --from "$tmp/bpe.llmc" --to gguf --vocab "$vocab" --out "$tmp/again"
    cmp "$tmp/again" "$tmp/bpe.gguf" || fail "another GGUF file"

    # More ids than the model has.
    rc=0
    "$WEFT" convert --from "$tmp/run.bin" --to gguf --vocab "$vocab" --out "$tmp/large" \
        2>"$tmp/log" || rc=$?
    [ "$rc" -eq 2 ] || fail "exit code $rc for a tokenizer too large"
    grep -q "tokenizer of 50257 ids, needs at most the model's 257" "$tmp/log" ||
        fail "does not name both sizes"
    rc=0
    "$WEFT" generate --model "$tmp/run.bin" --vocab "$vocab" 2>"$tmp/log" || rc=$?
    [ "$rc" -eq 2 ] || fail "exit code $rc for a vocabulary too large"
    grep -q "found 50257 ids.* has 257" "$tmp/log" || fail "does not name both sizes"
fi
rm -rf "$tmp"
