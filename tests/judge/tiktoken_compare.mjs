// SPDX-License-Identifier: MIT
// Texts for the tokenizer and what tiktoken, OpenAI's own, says of them.
//
//   make FOLDER LONG             writes the texts, one file each; LONG: letters of the longest word
//   compare FOLDER SHARD STRIDE  compares a shard of all of FOLDER's files with tiktoken, STRIDE of
//                                every 2 bytes a token (4 for 32-bit shards)
//   golden FILE                  writes the tricky strings with tiktoken's ids
//
// tiktoken is found in $TIKTOKEN, the folder of the npm package.
import { createRequire } from "node:module";
import fs from "node:fs";
import path from "node:path";

const require = createRequire(import.meta.url);
const endOfText = 50256;

// A generator of its own, so that the texts are the same everywhere.
let state = 12345;
function below(n) {
  state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
  return Math.floor((state / 4294967296) * n);
}
const pick = (list) => list[below(list.length)];

const isScalar = (c) => c < 0xd800 || c > 0xdfff;

// Every code point in one surrounding, a line each.
function everyCodePoint(around) {
  const lines = [];
  for (let c = 0; c < 0x110000; c++) if (isScalar(c)) lines.push(around(String.fromCodePoint(c)));
  return lines.join("\n");
}

const surroundings = {
  alone: (c) => c,
  letters: (c) => `a${c}b`,
  numbers: (c) => `1${c}2`,
  signs: (c) => `!${c}!`,
  space_before: (c) => ` ${c}`,
  space_after: (c) => `x${c} ${c}  ${c}`,
  twice: (c) => `${c}${c} ${c}${c}x`,
  spaces: (c) => `x  ${c}\t\t${c}`,
  apostrophe: (c) => `it'${c}s'${c}'s`,
};

const spaces = [
  " ", "  ", "\n", "\n\n", "\t", "\r\n", "\u00a0", "\u0085", "\u2003", "\u3000", "\u180e", "\ufeff",
  "\u200b", "\v", "\f", "\u001c", "\u2028", "\u1680",
];
const bits = [
  "a", "aa", "ab", "the", "The", "ing", "tion", "e", "E", "é", "e\u0301", "ß", "ſ", "K", "Å", "ı", "İ",
  "0", "1", "2024", "٣", "Ⅷ", "½", "²", "'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'LL", "’s",
  "'", "''", '"', "!", "!!", "?", "...", "—", "-", "--", "==", "^", "^^", "_", "{", "}", "\\", "/",
  "中", "中文", "の", "한국", "привет", "ß", "ا", "हि", "ก", "😀", "👩‍👩‍👧", "🇩🇪", "\u0000", "\u0007",
  "\u007f", "\u009f", "\ufffd", "\ufffe", "\u{10ffff}", "\u{e000}", "<|endoftext|>", "http://", "@", "#",
];

function randomText(count, lists) {
  const parts = [];
  for (let i = 0; i < count; i++) parts.push(pick(pick(lists)));
  return parts.join("");
}

function randomWord(n, letters) {
  const parts = [];
  for (let i = 0; i < n; i++) parts.push(letters[below(letters.length)]);
  return parts.join("");
}

function randomWords(count, longest, letters) {
  const parts = [];
  for (let i = 0; i < count; i++) parts.push(randomWord(1 + below(longest), letters));
  return parts.join(" ");
}

function randomScalars(n, limit) {
  const parts = [];
  while (parts.length < n) {
    const c = below(limit);
    if (isScalar(c)) parts.push(String.fromCodePoint(c));
  }
  return parts.join("");
}

function make(folder, long) {
  const write = (name, text) => fs.writeFileSync(path.join(folder, name), text);
  const english = "etaoinshrdlucmfwypvbgkjqxz";
  for (const [name, around] of Object.entries(surroundings)) write(`every_${name}.txt`, everyCodePoint(around));
  write("random_bits.txt", randomText(400000, [spaces, bits, bits]));
  write("random_spaces.txt", randomText(200000, [spaces, spaces, bits]));
  write("random_scalars.txt", randomScalars(100000, 0x110000));
  write("random_low.txt", randomScalars(300000, 0x3000));
  // Few letters: many ways to merge the same run.
  write("random_words_2.txt", randomWords(40000, 40, "ab"));
  write("random_words_a.txt", randomWords(40000, 40, "aaaaaaaat"));
  write("random_words.txt", randomWords(60000, 40, english));
  write("random_signs.txt", randomWords(60000, 40, "^-=*#~.!/|_"));
  write("long_word.txt", randomWord(long, english));
  write("long_a.txt", "a".repeat(long / 2));
  write("long_spaces.txt", "x" + " ".repeat(long / 2) + "y");
  write("long_carets.txt", "^".repeat(long / 2));
  write("long_signs.txt", randomWord(long / 4, "-=*#"));
  write("long_breaks.txt", "\n".repeat(long / 4) + "\u3000".repeat(long / 16));
  write("crlf.txt", "one\r\ntwo \r\n\r\n three\r\n");
  write("one_byte.txt", "x");
  write("special.txt", "A<|endoftext|>B <|endoftext|>");
}

// Strings that went wrong somewhere once, or could.
function trickyStrings() {
  const list = [
    "A<|endoftext|>B", "<|endoftext|>", " <|endoftext|> ", "Hello world", " Hello  world ", "\n", "\n\n", " \n ",
    "it's", "it'S", "IT'S", "don't won't can't I'm we're they've he'll she'd", "'s's's", "' s", " 's", "''s",
    "\t\tindent", "    four", "a    b", "trailing   ", "\r\n\r\n", "x\r\ny", "\u00a0", "a\u00a0b", "a\u0085b",
    "\u0085\u0085", "a\u180eb", "\u180e ", " \ufeff", "\ufeffabc", "\u200b\u200b", "a\u2028b\u2029c", "\u3000\u3000a",
    "naïve café", "\u1c89's", "\u{1e4f0}'s", "a\u{31350}'ll", "e\u0301", "ΑΒΓ αβγ", "привет мир", "مرحبا", "नमस्ते", "ภาษาไทย", "中文字符", "こんにちは", "한국어",
    "😀", "👩‍👩‍👧‍👦", "🇩🇪🇫🇷", "🤗", "a😀b", "1️⃣", "½ ² ٣ Ⅷ", "1234567890", "3.14159", "1e-5", "0x1F", "100%",
    "#include <stdio.h>", "for (int i = 0; i < n; i++) {", "    return x;\n}\n", "std::vector<int>", "a->b", "==!=<=>=",
    "http://example.org/a?b=c&d=e#f", "me@example.org", "__init__", "C:\\path\\to", "$100", "\\n", "^^^^^^^^", "--------",
    "................", "!!!!!!!!!", "                ", "\n\n\n\n\n", "\t\t\t\t\t", "aaaaaaaaaaaaaaaaaaaaaaaa",
    "abababababababababab", "\u0000", "\u0000\u0000", "a\u0000b", "\u0001\u0002\u001c\u001d\u001e\u001f", "\u007f",
    "\ufffd", "\ufffe\uffff", "\u{10ffff}", "\u{e000}", "ſ'ſ", "ı'İ", "ßẞ", "ﬁ", "Å", "K", "supercalifragilisticexpialidocious",
    "antidisestablishmentarianism", "Lorem ipsum dolor sit amet", "THE QUICK BROWN FOX", "tHe QuIcK bRoWn",
    "In the beginning God created the heaven and the earth.", "x".repeat(130), "-".repeat(129), " ".repeat(200) + "z",
    randomWord(300, "etaoinshrdlu"), randomWord(200, "ab"), randomWord(100, "=-*"),
  ];
  for (const s of spaces) list.push(s, `a${s}`, `${s}a`, `a${s}b`, `${s}${s}1`, `! ${s} !`);
  for (let i = 0; i < 150; i++) list.push(randomText(2 + below(12), [spaces, bits, bits]));
  return list;
}

function tiktoken() {
  return require(path.resolve(process.env.TIKTOKEN)).get_encoding("gpt2");
}

function golden(file) {
  const encoding = tiktoken();
  const rows = trickyStrings().map((text) => {
    // ASCII only, so that no editor or tool changes a character on the way.
    const quoted = JSON.stringify(text).replace(/[\u007f-\uffff]/g, (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));
    return `{"text":${quoted},"ids":[${Array.from(encoding.encode_ordinary(text)).join(",")}]}`;
  });
  fs.writeFileSync(file, `[\n${rows.join(",\n")}\n]\n`);
  console.log(`${rows.length} strings`);
}

function compare(folder, shard, stride) {
  const encoding = tiktoken();
  const data = fs.readFileSync(shard);
  const count = data.readInt32LE(8);
  const id = (i) => (stride === 2 ? data.readUInt16LE(1024 + 2 * i) : data.readUInt32LE(1024 + 4 * i));
  let at = 0;
  let bad = 0;
  let bytes = 0;
  // Files in byte order of their names, as weft reads folders.
  const names = fs.readdirSync(folder).sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
  for (const [n, name] of names.entries()) {
    const text = fs.readFileSync(path.join(folder, name));
    const want = encoding.encode_ordinary(text.toString("utf8"));
    let where = 0;
    let i = 0;
    if (n > 0 && id(at++) !== endOfText) {
      console.log(`${name}: no end-of-text before it`);
      return 1;
    }
    while (i < want.length && at + i < count && id(at + i) === want[i])
      where += encoding.decode_single_token_bytes(want[i++]).length;
    if (i < want.length) {
      const found = at + i < count ? id(at + i) : "the end";
      const near = JSON.stringify(text.subarray(Math.max(0, where - 20), where + 20).toString("utf8"));
      console.log(`${name}: token ${i} (byte ${where}) is ${found}, needs ${want[i]}, near ${near}`);
      bad++;
      while (at < count && id(at) !== endOfText) at++;
    } else {
      at += i;
    }
    bytes += text.length;
    console.log(`${name}: ${text.length} bytes, ${want.length} tokens`);
  }
  if (at !== count) {
    console.log(`the shard has ${count} tokens, needs ${at}`);
    bad++;
  }
  console.log(`${names.length} texts, ${bytes} bytes, ${count} tokens, ${bad} differ`);
  return bad === 0 ? 0 : 1;
}

const [mode, a, b, c] = process.argv.slice(2);
if (mode === "make") make(a, Number(b));
else if (mode === "compare") process.exitCode = compare(a, b, Number(c));
else if (mode === "golden") golden(a);
else {
  console.error("usage: tiktoken_compare.mjs make FOLDER LONG | compare FOLDER SHARD STRIDE | golden FILE");
  process.exitCode = 2;
}
