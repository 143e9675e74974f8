/* SPDX-License-Identifier: MIT */
/* The tokenizers: ids on a small table worked out by hand, the two ways to merge against
 * a third, damaged tables, cuts, bytes that are no UTF-8, tokens.json. GPT-2's own table
 * is used where it is found ($WEFT_VOCAB, or vocab/vocab.bpe of the source). */
#include "data/tokenizer_private.h"

#include <unistd.h>

#include "base/rng.h"
#include "shard_file.h"

/* Ġ is the table's way to write a space. */
static const char small_table[] = "#version: 0.2\n"
                                  "h e\n"               /* 256 */
                                  "l l\n"               /* 257 */
                                  "he ll\n"             /* 258 */
                                  "hell o\n"            /* 259 */
                                  "\304\240 w\n"        /* 260: " w" */
                                  "\304\240w o\n"       /* 261 */
                                  "a a\n"               /* 262 */
                                  "aa a\n"              /* 263 */
                                  "aa aa\n"             /* 264 */
                                  "\303\203 \302\251\n" /* 265: é, C3 A9 */
                                  "' s\n";              /* 266 */
enum { SMALL_MERGES = 11 };

/* Ids of single bytes: '!' is the first of the table's alphabet. */
enum { SPACE = 220, BYTE_FF = 187 };
static uint32_t id_of(char c)
{
    return (uint32_t)(c - '!');
}

static const char *write_text(const char *name, const char *text, size_t bytes)
{
    const char *path = scratch_path(name);

    assert_int_equal(file_write_all(path, text, bytes), ST_OK);
    return path;
}

static struct tokenizer *small(void)
{
    struct tokenizer *t = NULL;
    const char *path = write_text("small.bpe", small_table, strlen(small_table));

    if (tokenizer_new_merges(path, SMALL_MERGES, &t) != ST_OK)
        fail_msg("%s", fail_text());
    return t;
}

static void assert_ids(const struct tokenizer *t, const char *text, size_t bytes,
                       const uint32_t *want, size_t n)
{
    struct token_list l = {0};

    assert_int_equal(tokenizer_encode(t, text, bytes, &l), ST_OK);
    assert_int_equal(l.count, n);
    assert_memory_equal(l.ids, want, n * sizeof *want);
    token_list_release(&l);
}

#define ASSERT_IDS(t, text, ...)                                                         \
    assert_ids(t, text, strlen(text), (const uint32_t[]){__VA_ARGS__},                   \
               sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))

/* Decoding what was encoded gives the bytes back; returns the count of tokens. */
static size_t assert_round_trip(const struct tokenizer *t, const char *text, size_t bytes)
{
    struct token_list l = {0};
    size_t at = 0;

    assert_int_equal(tokenizer_encode(t, text, bytes, &l), ST_OK);
    for (size_t i = 0; i < l.count; i++) {
        size_t n;
        const char *part = tokenizer_bytes(t, l.ids[i], &n);

        assert_true(n > 0 && n <= bytes - at);
        assert_memory_equal(part, text + at, n);
        at += n;
    }
    assert_int_equal(at, bytes);
    size_t count = l.count;
    token_list_release(&l);
    return count;
}

static void merges_as_worked_out_by_hand(void **state)
{
    struct tokenizer *t = small();

    (void)state;
    assert_int_equal(tokenizer_kind_of(t), TOKENIZER_GPT2);
    assert_int_equal(tokenizer_vocab(t), 256 + SMALL_MERGES + 1);
    assert_int_equal(tokenizer_end_of_text(t), 256 + SMALL_MERGES);
    ASSERT_IDS(t, "hello", 259);
    ASSERT_IDS(t, "hell", 258);
    ASSERT_IDS(t, "helo", 256, id_of('l'), id_of('o'));
    ASSERT_IDS(t, "hello wo", 259, 261);
    ASSERT_IDS(t, "hello  w", 259, SPACE, 260);
    ASSERT_IDS(t, "\303\251", 265);
    ASSERT_IDS(t, "a", id_of('a'));
    ASSERT_IDS(t, "aa", 262);
    ASSERT_IDS(t, "aaa", 263);
    /* "aa aa" is the later line: aa a, made first, wins wherever it can. */
    ASSERT_IDS(t, "aaaa", 264);
    ASSERT_IDS(t, "aaaaa", 262, 263);
    ASSERT_IDS(t, "aaaaaaa", 264, 263);
    /* No merge crosses a piece: 's is one, and the quote of "' s" is not its own. */
    ASSERT_IDS(t, "hello's", 259, 266);
    ASSERT_IDS(t, "he!'s", 256, id_of('!'), id_of('\''), id_of('s'));
    ASSERT_IDS(t, "h\ne", id_of('h'), 198, id_of('e'));
    assert_ids(t, "", 0, NULL, 0);
    tokenizer_free(t);
}

/* "abc" is a token, but "ab" is made first and leaves no "bc": merging decides. */
static void a_token_that_merging_never_reaches(void **state)
{
    struct tokenizer *t = NULL;
    const char *path = write_text("never.bpe", "a b\nb c\na bc\n", 13);

    (void)state;
    assert_int_equal(tokenizer_new_merges(path, 3, &t), ST_OK);
    ASSERT_IDS(t, "abc", 256, id_of('c'));
    ASSERT_IDS(t, "bc", 257);
    tokenizer_free(t);
}

static void end_of_text_is_plain_text(void **state)
{
    struct tokenizer *t = small();
    struct token_list l = {0};
    size_t n = 1;

    (void)state;
    assert_int_equal(tokenizer_encode(t, "<|endoftext|>", 13, &l), ST_OK);
    assert_int_equal(l.count, 13);
    token_list_release(&l);
    (void)tokenizer_bytes(t, (uint32_t)tokenizer_end_of_text(t), &n);
    assert_int_equal(n, 0);
    tokenizer_free(t);
}

static void keeps_bytes_that_are_no_utf8(void **state)
{
    struct tokenizer *t = small();
    char noise[3001];

    (void)state;
    ASSERT_IDS(t, "hello\377he", 259, BYTE_FF, 256);
    /* Cut short, overlong, surrogate, above the last code point. */
    ASSERT_IDS(t, "he\303", 256, id_of('!') + 127);
    assert_round_trip(t, "he\303", 3);
    assert_round_trip(t, "\300\200a\355\240\200b\364\220\200\200c\360\237\231", 15);
    for (uint64_t seed = 0; seed < 40; seed++) {
        for (size_t i = 0; i < sizeof noise; i++)
            noise[i] = (char)(rng_bits(seed, 0, i) % (seed < 20 ? 256 : 200));
        assert_round_trip(t, noise, sizeof noise - seed);
    }
    tokenizer_free(t);
}

/* With and without JIT the same; a machine may have none. */
static void interprets_without_jit(void **state)
{
    struct tokenizer *t = small();
    struct tokenizer *plain = small();
    char text[5003];
    struct token_list a = {0};
    struct token_list b = {0};
    static const char *const bits[] = {"hello",    " ",    "  ",          "\n", "'s",
                                       "'",        "aaa",  "1",           "!!", "\t",
                                       "\303\251", "\377", "\342\200\211"};

    (void)state;
    bpe_disable_jit(plain->bpe);
    size_t n = 0;
    for (uint64_t i = 0; n + 8 < sizeof text; i++) {
        const char *bit = bits[rng_bits(7, 0, i) % (sizeof bits / sizeof *bits)];

        memcpy(text + n, bit, strlen(bit));
        n += strlen(bit);
    }
    assert_int_equal(tokenizer_encode(t, text, n, &a), ST_OK);
    assert_int_equal(tokenizer_encode(plain, text, n, &b), ST_OK);
    assert_int_equal(a.count, b.count);
    assert_memory_equal(a.ids, b.ids, a.count * sizeof *a.ids);
    token_list_release(&a);
    token_list_release(&b);
    tokenizer_free(t);
    tokenizer_free(plain);
}

/* Merging by its definition: the lowest line of the table, leftmost first. */
static void merge_plainly(const uint32_t (*table)[2], uint32_t merges, uint32_t *ids,
                          size_t *n)
{
    for (uint32_t m = 0; m < merges; m++)
        for (size_t i = 0; i + 1 < *n; i++)
            if (ids[i] == table[m][0] && ids[i + 1] == table[m][1]) {
                ids[i] = 256 + m;
                memmove(ids + i + 1, ids + i + 2, (*n - i - 2) * sizeof *ids);
                --*n;
            }
}

enum { RANDOM_MERGES = 60, RANDOM_WORD = 700 };

/* A table over the letters a, b, c: few enough that runs and overlaps abound. */
static struct tokenizer *random_tokenizer(uint64_t seed, uint32_t table[][2])
{
    char words[RANDOM_MERGES + 3][64] = {"a", "b", "c"};
    char text[RANDOM_MERGES * 130] = "";
    struct tokenizer *t = NULL;
    uint32_t made = 0;

    for (uint64_t i = 0; made < RANDOM_MERGES; i++) {
        uint64_t left = rng_bits(seed, 1, i) % (made + 3);
        uint64_t right = rng_bits(seed, 2, i) % (made + 3);
        char joined[130];
        bool known = false;

        snprintf(joined, sizeof joined, "%s%s", words[left], words[right]);
        for (uint32_t k = 0; k < made + 3; k++)
            known = known || !strcmp(words[k], joined);
        if (known || strlen(joined) > 60)
            continue;
        snprintf(words[made + 3], sizeof words[0], "%s", joined);
        table[made][0] = left < 3 ? id_of('a') + (uint32_t)left : 253 + (uint32_t)left;
        table[made][1] = right < 3 ? id_of('a') + (uint32_t)right : 253 + (uint32_t)right;
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s %s\n", words[left],
                 words[right]);
        made++;
    }
    const char *path = write_text("random.bpe", text, strlen(text));
    if (tokenizer_new_merges(path, RANDOM_MERGES, &t) != ST_OK)
        fail_msg("%s", fail_text());
    return t;
}

static void both_ways_to_merge_agree_with_the_definition(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 60; seed++) {
        uint32_t table[RANDOM_MERGES][2];
        struct tokenizer *t = random_tokenizer(seed, table);
        struct bpe_scratch *s = NULL;

        assert_int_equal(bpe_scratch_new(t->bpe, &s), ST_OK);
        for (uint64_t round = 0; round < 40; round++) {
            uint32_t word[RANDOM_WORD];
            uint32_t plain[RANDOM_WORD];
            uint32_t merged[RANDOM_WORD];
            size_t n =
                1 + rng_bits(seed, 3, round) % (round % 2 ? BPE_SHORT : RANDOM_WORD);
            size_t n_plain = n;
            size_t n_merged = n;

            for (size_t i = 0; i < n; i++)
                word[i] = id_of('a') +
                          (uint32_t)(rng_bits(seed, 4 + round, i) % (round % 3 ? 3 : 1));
            memcpy(plain, word, sizeof word);
            memcpy(merged, word, sizeof word);
            merge_plainly((const uint32_t(*)[2])table, RANDOM_MERGES, plain, &n_plain);
            assert_int_equal(bpe_merge_long(t->bpe, s, merged, &n_merged), ST_OK);
            assert_int_equal(n_merged, n_plain);
            assert_memory_equal(merged, plain, n_plain * sizeof *plain);
            if (n > BPE_SHORT)
                continue;
            bpe_merge_short(t->bpe, word, &n);
            assert_int_equal(n, n_plain);
            assert_memory_equal(word, plain, n_plain * sizeof *plain);
        }
        bpe_scratch_free(s);
        tokenizer_free(t);
    }
}

/* Two million letters in one word: quadratic merging would take hours. */
static void a_long_word_is_linear(void **state)
{
    const size_t n = 2000000;
    uint32_t table[RANDOM_MERGES][2];
    struct tokenizer *t = random_tokenizer(3, table);
    char *text = malloc(n);

    (void)state;
    assert_non_null(text);
    for (size_t i = 0; i < n; i++)
        text[i] = "abc"[rng_bits(1, 1, i) % 3];
    assert_true(assert_round_trip(t, text, n) < n);
    memset(text, 'a', n);
    assert_round_trip(t, text, n);
    memset(text, ' ', n);
    assert_round_trip(t, text, n);
    free(text);
    tokenizer_free(t);
}

static void refused_table(const char *text, enum status want, const char *says)
{
    struct tokenizer *t = (struct tokenizer *)scratch; /* any non-NULL pointer */
    const char *path = write_text("bad.bpe", text, strlen(text));

    assert_int_equal(tokenizer_new_merges(path, 0, &t), want);
    assert_null(t);
    assert_fail_text("bad.bpe", says, NULL);
}

static void names_the_damaged_line(void **state)
{
    struct tokenizer *t;

    (void)state;
    refused_table("#version: 0.2\nh e\nhe\n", ST_FORMAT, ":3: needs two tokens");
    refused_table("h e\n\nl l\n", ST_FORMAT, ":2: needs two tokens");
    refused_table("h e l\n", ST_FORMAT, ":1: needs two tokens");
    refused_table("h  e\n", ST_FORMAT, ":1: needs two tokens");
    refused_table("h e \n", ST_FORMAT, ":1: needs two tokens");
    refused_table("h e\nl\tl\n", ST_FORMAT, ":2: needs two tokens");
    refused_table("h e\n\xff l\n", ST_FORMAT, ":2: needs two tokens");
    refused_table("h e\n\xc5\x90 l\n", ST_FORMAT, ":2: needs two tokens");
    refused_table("#version: 0.2\nh e\nhe llo\n", ST_FORMAT, ":3: the right token");
    refused_table("#version: 0.2\nhell o\n", ST_FORMAT, ":2: the left token");
    refused_table("h e\nl l\nh e\n", ST_FORMAT, ":3: makes a token that an earlier");
    assert_int_equal(tokenizer_new_merges(scratch_path("none.bpe"), 0, &t), ST_IO);
    assert_fail_text("none.bpe", "No such file", NULL);
    assert_int_equal(tokenizer_new_merges(scratch, 0, &t), ST_IO);
    assert_fail_text("not a regular file", NULL);
    /* A table for another model, whole but short. */
    const char *path = write_text("small.bpe", small_table, strlen(small_table));
    assert_int_equal(tokenizer_new_gpt2(path, &t), ST_FORMAT);
    assert_fail_text("small.bpe", "found 11 merges", "needs 50000", NULL);
    assert_null(t);
}

static void accepts_the_spellings_of_a_table(void **state)
{
    static const char *const same[] = {
        "h e\nl l\nhe ll\n",
        "h e\nl l\nhe ll",
        "#version: 0.2\nh e\nl l\nhe ll\n",
        "#version: 0.2 - trained somewhere\r\nh e\r\nl l\r\nhe ll\r\n",
        "h e\r\nl l\r\nhe ll",
        "h e\nl l\nhe ll\n\n",
    };

    (void)state;
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        struct tokenizer *t = NULL;
        const char *path = write_text("same.bpe", same[i], strlen(same[i]));

        assert_int_equal(tokenizer_new_merges(path, 3, &t), ST_OK);
        ASSERT_IDS(t, "hell", 258);
        tokenizer_free(t);
    }
    /* A merge may begin with the sign that begins the heading. */
    struct tokenizer *t = NULL;
    const char *path = write_text("hash.bpe", "# #\n## ##\n", 10);
    assert_int_equal(tokenizer_new_merges(path, 2, &t), ST_OK);
    ASSERT_IDS(t, "####", 257);
    tokenizer_free(t);
}

static void bytes_are_their_own_ids(void **state)
{
    struct tokenizer *t = NULL;
    char all[256];

    (void)state;
    for (int i = 0; i < 256; i++)
        all[i] = (char)i;
    assert_int_equal(tokenizer_new_bytes(&t), ST_OK);
    assert_int_equal(tokenizer_vocab(t), 257);
    assert_int_equal(tokenizer_end_of_text(t), 256);
    ASSERT_IDS(t, "Az\377", 'A', 'z', 255);
    assert_int_equal(assert_round_trip(t, all, sizeof all), 256);
    tokenizer_free(t);
}

static void characters_in_ascending_order(void **state)
{
    static const uint32_t points[] = {'\n', ' ', 'a', 'b', 0xE9, 0x20AC, 0x10FFFF};
    static const uint32_t doubled[] = {'a', 'a'};
    static const uint32_t surrogate[] = {'a', 0xD800};
    struct tokenizer *t = NULL;
    struct token_list l = {0};
    size_t n;

    (void)state;
    assert_int_equal(tokenizer_new_char(points, 7, &t), ST_OK);
    assert_int_equal(tokenizer_vocab(t), 7);
    assert_int_equal(tokenizer_end_of_text(t), -1);
    ASSERT_IDS(t, "ab \303\251\342\202\254\364\217\277\277\n", 2, 3, 1, 4, 5, 6, 0);
    assert_memory_equal(tokenizer_bytes(t, 5, &n), "\342\202\254", 3);
    assert_int_equal(n, 3);
    assert_int_equal(tokenizer_encode(t, "abc", 3, &l), ST_FORMAT);
    assert_fail_text("byte 2", "U+0063", "vocabulary of 7", NULL);
    assert_int_equal(tokenizer_encode(t, "a\342\202b", 4, &l), ST_FORMAT);
    assert_fail_text("byte 1", "0xE2", "UTF-8", NULL);
    token_list_release(&l);
    tokenizer_free(t);
    assert_int_equal(tokenizer_new_char(points, 0, &t), ST_FORMAT);
    assert_null(t);
    assert_int_equal(tokenizer_new_char(doubled, 2, &t), ST_FORMAT);
    assert_fail_text("entry 1", "U+0061", NULL);
    assert_int_equal(tokenizer_new_char(surrogate, 2, &t), ST_FORMAT);
}

/* Ids above 65,535 are ids as any other. */
static void seventy_thousand_characters(void **state)
{
    enum { N = 70000 };
    uint32_t *points = malloc(N * sizeof *points);
    struct tokenizer *t = NULL;

    (void)state;
    assert_non_null(points);
    for (uint32_t i = 0; i < N; i++)
        points[i] = 0x10000 + i;
    assert_int_equal(tokenizer_new_char(points, N, &t), ST_OK);
    /* U+20000 and U+2116F, the 65,537th and the last. */
    ASSERT_IDS(t, "\360\240\200\200\360\241\205\257", 65536, 69999);
    tokenizer_free(t);
    free(points);
}

static void marks_the_characters_of_a_text(void **state)
{
    bool *seen = calloc(CODE_POINTS, sizeof *seen);
    size_t count = 0;

    (void)state;
    assert_non_null(seen);
    assert_int_equal(tokenizer_mark_chars("a\303\251a", 4, seen), 4);
    assert_int_equal(tokenizer_mark_chars("ab\377c", 4, seen), 2);
    assert_int_equal(tokenizer_mark_chars("x\303", 2, seen), 1);
    for (size_t i = 0; i < CODE_POINTS; i++)
        count += seen[i];
    assert_true(seen['a'] && seen['b'] && seen['x'] && seen[0xE9]);
    assert_int_equal(count, 4);
    free(seen);
}

static void cuts_before_white_space(void **state)
{
    (void)state;
    assert_int_equal(tokenizer_cut("ab cd", 5, 0), 2);
    assert_int_equal(tokenizer_cut("ab cd", 5, 2), 2);
    assert_int_equal(tokenizer_cut("ab cd", 5, 3), 5);
    assert_int_equal(tokenizer_cut("ab  cd", 6, 3), 6);
    assert_int_equal(tokenizer_cut(" ab\n", 4, 0), 3);
    assert_int_equal(tokenizer_cut(" a\vb\fc", 6, 3), 4);
    /* Not after a letter beyond ASCII, which a byte alone cannot judge. */
    assert_int_equal(tokenizer_cut("\303\251 a b", 6, 0), 4);
    assert_int_equal(tokenizer_cut("", 0, 0), 0);
    assert_int_equal(tokenizer_cut("a b", 3, 9), 3);
}

static void cuts_change_no_id(void **state)
{
    static const char *const bits[] = {
        "hello", " ",  "  ",       "\n",   "'s",           "'",   "aaa", "1",
        "!!",    "\t", "\303\251", "\377", "\342\200\211", " 's", "\r\n"};
    struct tokenizer *t = small();

    (void)state;
    for (uint64_t seed = 0; seed < 300; seed++) {
        char text[400];
        size_t n = 0;
        struct token_list whole = {0};
        struct token_list parts = {0};

        for (uint64_t i = 0; n + 8 < sizeof text; i++) {
            const char *bit = bits[rng_bits(seed, 0, i) % (sizeof bits / sizeof *bits)];

            memcpy(text + n, bit, strlen(bit));
            n += strlen(bit);
        }
        assert_int_equal(tokenizer_encode(t, text, n, &whole), ST_OK);
        for (size_t at = 0, k = 0; at < n; k++) {
            size_t step = tokenizer_cut(text + at, n - at, rng_bits(seed, 1, k) % 40);

            assert_true(step > 0);
            assert_int_equal(tokenizer_encode(t, text + at, step, &parts), ST_OK);
            at += step;
        }
        assert_int_equal(whole.count, parts.count);
        assert_memory_equal(whole.ids, parts.ids, whole.count * sizeof *whole.ids);
        token_list_release(&whole);
        token_list_release(&parts);
    }
    tokenizer_free(t);
}

/* tokens.json -------------------------------------------------------------------- */

static void tokens_json_brings_the_tokenizer_back(void **state)
{
    static const uint32_t points[] = {'\n', 'a', 0xE9, 0x1F600};
    const struct tokens_note note = {.train_tokens = 1234567890123,
                                     .val_tokens = 7,
                                     .documents = 3,
                                     .text_bytes = 99,
                                     .text_xxh3 = 0xFEDCBA9876543210u};
    struct tokenizer *t = NULL;
    struct tokenizer *back = NULL;
    char *text;
    size_t bytes;

    (void)state;
    assert_int_equal(tokenizer_new_char(points, 4, &t), ST_OK);
    assert_int_equal(tokenizer_save(t, &note, scratch_path("tokens.json")), ST_OK);
    assert_int_equal(tokenizer_load(scratch_path("tokens.json"), &back), ST_OK);
    assert_int_equal(tokenizer_kind_of(back), TOKENIZER_CHAR);
    ASSERT_IDS(back, "\360\237\230\200\303\251a\n", 3, 2, 1, 0);
    tokenizer_free(t);
    tokenizer_free(back);
    assert_int_equal(file_read_all(scratch_path("tokens.json"), &text, &bytes), ST_OK);
    assert_non_null(strstr(text, "\"train_tokens\": 1234567890123"));
    assert_non_null(strstr(text, "\"text_xxh3\": \"fedcba9876543210\""));
    assert_non_null(strstr(text, "\"end_of_text\": null"));
    free(text);

    assert_int_equal(tokenizer_new_bytes(&t), ST_OK);
    assert_int_equal(tokenizer_save(t, &note, scratch_path("tokens.json")), ST_OK);
    assert_int_equal(tokenizer_load(scratch_path("tokens.json"), &back), ST_OK);
    assert_int_equal(tokenizer_vocab(back), 257);
    tokenizer_free(t);
    tokenizer_free(back);
}

static void refused_json(const char *text, const char *says)
{
    struct tokenizer *t = (struct tokenizer *)scratch;
    const char *path = write_text("tokens.json", text, strlen(text));

    assert_int_equal(tokenizer_load(path, &t), ST_FORMAT);
    assert_null(t);
    assert_fail_text("tokens.json", says, NULL);
}

static void refuses_a_damaged_tokens_json(void **state)
{
    struct tokenizer *t;

    (void)state;
    refused_json("{\"format\":", "not JSON");
    refused_json("[]", "found format none");
    refused_json("{\"format\":\"weft-tokens\",\"version\":2}",
                 "found version 2, needs 1");
    refused_json("{\"format\":\"weft-tokens\",\"version\":1,\"kind\":\"words\"}",
                 "found kind words");
    refused_json(
        "{\"format\":\"weft-tokens\",\"version\":1,\"kind\":\"bytes\",\"vocab\":9}",
        "found vocab 9, needs 257");
    refused_json(
        "{\"format\":\"weft-tokens\",\"version\":1,\"kind\":\"char\",\"vocab\":2,"
        "\"code_points\":[5,4]}",
        "code_points");
    refused_json(
        "{\"format\":\"weft-tokens\",\"version\":1,\"kind\":\"char\",\"vocab\":0}",
        "code_points");
    refused_json("{\"format\":\"weft-tokens\",\"version\":1,\"kind\":\"gpt2\"}",
                 "table_path");
    assert_int_equal(tokenizer_load(scratch_path("no.json"), &t), ST_IO);
}

/* GPT-2's own table ---------------------------------------------------------------- */

static const char *gpt2_table(void)
{
    static char path[4096];
    const char *named = getenv("WEFT_VOCAB");
    const char *here = __FILE__;
    const char *tail = strstr(here, "tests/unit/data/");

    snprintf(path, sizeof path, "%s", named ? named : "");
    if (!named && tail)
        snprintf(path, sizeof path, "%.*svocab/vocab.bpe", (int)(tail - here), here);
    if (!file_exists(path)) {
        print_message("skipped: no %s; scripts/get-vocab fetches it\n", path);
        skip();
    }
    return path;
}

static void gpt2_ids(void **state)
{
    struct tokenizer *t = NULL;
    size_t n;

    (void)state;
    assert_int_equal(tokenizer_new_gpt2(gpt2_table(), &t), ST_OK);
    assert_int_equal(tokenizer_vocab(t), 50257);
    assert_int_equal(tokenizer_end_of_text(t), GPT2_END_OF_TEXT);
    ASSERT_IDS(t, "Hello world", 15496, 995);
    ASSERT_IDS(t, "A<|endoftext|>B", 32, 27, 91, 437, 1659, 5239, 91, 29, 33);
    /* A character of three tokens, one at a time; a token that is a zero byte. */
    assert_memory_equal(tokenizer_bytes(t, 8582, &n), "\360\237", 2);
    assert_int_equal(n, 2);
    assert_memory_equal(tokenizer_bytes(t, 97, &n), "\244", 1);
    assert_memory_equal(tokenizer_bytes(t, 245, &n), "\227", 1);
    assert_memory_equal(tokenizer_bytes(t, 188, &n), "\0", 1);
    assert_int_equal(n, 1);
    (void)tokenizer_bytes(t, GPT2_END_OF_TEXT, &n);
    assert_int_equal(n, 0);
    tokenizer_free(t);
}

/* Every token's bytes give that token back: what lets whole words skip the merging. */
static void gpt2_tokens_encode_to_themselves(void **state)
{
    struct tokenizer *t = NULL;
    struct bpe_scratch *s = NULL;
    uint32_t ids[256];

    (void)state;
    assert_int_equal(tokenizer_new_gpt2(gpt2_table(), &t), ST_OK);
    assert_int_equal(bpe_scratch_new(t->bpe, &s), ST_OK);
    for (uint32_t id = 0; id < GPT2_END_OF_TEXT; id++) {
        size_t n;
        const char *text = tokenizer_bytes(t, id, &n);

        assert_true(n <= 128);
        for (size_t i = 0; i < n; i++)
            ids[i] = bpe_byte_id(t->bpe, (unsigned char)text[i]);
        assert_int_equal(bpe_merge_long(t->bpe, s, ids, &n), ST_OK);
        assert_int_equal(n, 1);
        assert_int_equal(ids[0], id);
    }
    bpe_scratch_free(s);
    tokenizer_free(t);
}

static void gpt2_tokens_json_checks_the_table(void **state)
{
    const char *table = gpt2_table();
    const struct tokens_note note = {0};
    struct tokenizer *t = NULL;
    struct tokenizer *back = NULL;
    char copy[512];
    char *text;
    size_t bytes;

    (void)state;
    snprintf(copy, sizeof copy, "%s/moved.bpe", scratch);
    assert_int_equal(file_read_all(table, &text, &bytes), ST_OK);
    assert_int_equal(file_write_all(copy, text, bytes), ST_OK);
    assert_int_equal(tokenizer_new_gpt2(copy, &t), ST_OK);
    assert_int_equal(tokenizer_save(t, &note, scratch_path("tokens.json")), ST_OK);
    assert_int_equal(tokenizer_load(scratch_path("tokens.json"), &back), ST_OK);
    ASSERT_IDS(back, "Hello world", 15496, 995);
    tokenizer_free(back);
    /* Gone; then beside tokens.json; then the same merges without the heading, which is a
     * table, but not the one of the checksum. */
    unlink(copy);
    assert_int_equal(tokenizer_load(scratch_path("tokens.json"), &back), ST_IO);
    assert_fail_text("tokens.json", "moved.bpe", "gone", NULL);
    snprintf(copy, sizeof copy, "%s/vocab.bpe", scratch);
    assert_int_equal(file_write_all(copy, text, bytes), ST_OK);
    assert_int_equal(tokenizer_load(scratch_path("tokens.json"), &back), ST_OK);
    tokenizer_free(back);
    assert_int_equal(file_write_all(copy, text + strlen("#version: 0.2\n"),
                                    bytes - strlen("#version: 0.2\n")),
                     ST_OK);
    assert_int_equal(tokenizer_load(scratch_path("tokens.json"), &back), ST_FORMAT);
    assert_fail_text("vocab.bpe", "checksum", NULL);
    free(text);
    tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merges_as_worked_out_by_hand),
        cmocka_unit_test(a_token_that_merging_never_reaches),
        cmocka_unit_test(end_of_text_is_plain_text),
        cmocka_unit_test(keeps_bytes_that_are_no_utf8),
        cmocka_unit_test(interprets_without_jit),
        cmocka_unit_test(both_ways_to_merge_agree_with_the_definition),
        cmocka_unit_test(a_long_word_is_linear),
        cmocka_unit_test(names_the_damaged_line),
        cmocka_unit_test(accepts_the_spellings_of_a_table),
        cmocka_unit_test(bytes_are_their_own_ids),
        cmocka_unit_test(characters_in_ascending_order),
        cmocka_unit_test(seventy_thousand_characters),
        cmocka_unit_test(marks_the_characters_of_a_text),
        cmocka_unit_test(cuts_before_white_space),
        cmocka_unit_test(cuts_change_no_id),
        cmocka_unit_test(tokens_json_brings_the_tokenizer_back),
        cmocka_unit_test(refuses_a_damaged_tokens_json),
        cmocka_unit_test(gpt2_ids),
        cmocka_unit_test(gpt2_tokens_encode_to_themselves),
        cmocka_unit_test(gpt2_tokens_json_checks_the_table),
    };

    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
