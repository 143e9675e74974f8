/* SPDX-License-Identifier: MIT */
/* Reading token shards: what is refused and how it is named, and where windows lie. */
#include "data/shards.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

#include "shard_file.h"

enum { V = 50257 };

static void refused(const char *where, const char *split, enum status want)
{
    struct shards *s = (struct shards *)scratch; /* any non-NULL pointer */

    assert_int_equal(shards_open(where, split, V, &s), want);
    assert_null(s);
}

static struct shards *opened(const char *where, const char *split)
{
    struct shards *s = NULL;

    if (shards_open(where, split, V, &s) != ST_OK)
        fail_msg("%s", fail_text());
    return s;
}

/* An 8-token file of this header, then cut or grown to `bytes`. */
static const char *odd_file(const char *name, uint32_t magic, uint32_t version,
                            uint32_t count, size_t bytes)
{
    uint32_t file[512];
    const char *path = scratch_path(name);

    shard_header(file, magic, version, count);
    memset(file + 256, 0, 1024);
    assert_true(bytes <= sizeof file);
    assert_int_equal(file_write_all(path, file, bytes), ST_OK);
    return path;
}

static void make_folder(const char *name)
{
    assert_int_equal(folder_make(scratch_path(name)), ST_OK);
}

static void refuses_what_cannot_be_opened(void **state)
{
    (void)state;
    refused(scratch_path("none.bin"), NULL, ST_IO);
    assert_fail_text("none.bin", "No such file", NULL);
    refused(scratch_path("none*.bin"), "train", ST_IO);
    assert_fail_text("none*.bin", "no such file", NULL);
    refused("/dev/null", NULL, ST_IO);
    assert_fail_text("/dev/null", "not a regular file", NULL);

    /* A pipe must not be waited for. */
    const char *pipe_path = scratch_path("pipe.bin");
    assert_int_equal(mkfifo(pipe_path, 0600), 0);
    refused(pipe_path, NULL, ST_IO);
    assert_fail_text("pipe.bin", "not a regular file", NULL);
    unlink(pipe_path);
}

static void refuses_what_may_not_be_read(void **state)
{
    const char *path = scratch_path("secret.bin");
    const char *folder = scratch_path("closed");
    const uid_t nobody = 65534;
    uid_t me = geteuid();

    (void)state;
    shard_make_count("secret.bin", 20, 1);
    make_folder("closed");
    assert_int_equal(chmod(path, 0), 0);
    assert_int_equal(chmod(folder, 0), 0);
    assert_int_equal(chmod(scratch, 0755), 0);
    if (me == 0 && seteuid(nobody) != 0) {
        print_message("skipped: root cannot become another user here\n");
        skip();
    }
    struct shards *s;
    enum status file_st = shards_open(path, NULL, V, &s);
    char file_text[512];
    snprintf(file_text, sizeof file_text, "%s", fail_text());
    enum status folder_st = shards_open(folder, NULL, V, &s);
    assert_int_equal(seteuid(me), 0);

    assert_int_equal(folder_st, ST_IO);
    assert_fail_text("closed", "cannot open folder", "Permission denied", NULL);
    assert_int_equal(file_st, ST_IO);
    assert_non_null(strstr(file_text, "secret.bin"));
    assert_non_null(strstr(file_text, "Permission denied"));
    chmod(folder, 0700);
}

static void refuses_bad_headers(void **state)
{
    (void)state;
    refused(odd_file("empty.bin", 0, 0, 0, 0), NULL, ST_FORMAT);
    assert_fail_text("empty.bin", "empty file", "1024 bytes", NULL);
    refused(odd_file("one.bin", 20240520, 1, 8, 1), NULL, ST_FORMAT);
    assert_fail_text("one.bin", "has 1 bytes", "1024 bytes", NULL);
    refused(odd_file("short.bin", 20240520, 1, 8, 1023), NULL, ST_FORMAT);
    assert_fail_text("short.bin", "has 1023 bytes", "1024 bytes", NULL);

    refused(odd_file("magic.bin", 20240326, 1, 8, 1040), NULL, ST_FORMAT);
    assert_fail_text("magic.bin", "20240326", "20240520", "20240801", NULL);
    refused(odd_file("version.bin", 20240520, 7, 8, 1040), NULL, ST_FORMAT);
    assert_fail_text("version.bin", "version 7 found", "needs 1 ", "20240520", NULL);
    refused(odd_file("version32.bin", 20240801, 1, 8, 1056), NULL, ST_FORMAT);
    assert_fail_text("version32.bin", "version 1 found", "needs 7 ", "20240801", NULL);

    refused(odd_file("zero.bin", 20240520, 1, 0, 1024), NULL, ST_FORMAT);
    assert_fail_text("zero.bin", "0 tokens", "at least 1", NULL);
    /* -1 is a count that no file of this size has. */
    refused(odd_file("negative.bin", 20240520, 1, UINT32_MAX, 1040), NULL, ST_FORMAT);
    assert_fail_text("negative.bin", "has 1040 bytes", "needs 8589935614", "4294967295",
                     NULL);
}

static void refuses_sizes_that_do_not_fit_the_count(void **state)
{
    (void)state;
    refused(odd_file("cut.bin", 20240520, 1, 8, 1039), NULL, ST_FORMAT);
    assert_fail_text("cut.bin", "too short", "has 1039 bytes", "needs 1040",
                     "8 tokens of 2", NULL);
    refused(odd_file("bare.bin", 20240520, 1, 8, 1024), NULL, ST_FORMAT);
    assert_fail_text("bare.bin", "too short", "has 1024 bytes", "needs 1040", NULL);
    refused(odd_file("long.bin", 20240520, 1, 8, 1041), NULL, ST_FORMAT);
    assert_fail_text("long.bin", "too long", "has 1041 bytes", "needs 1040", NULL);
    refused(odd_file("cut32.bin", 20240801, 7, 8, 1040), NULL, ST_FORMAT);
    assert_fail_text("cut32.bin", "too short", "has 1040 bytes", "needs 1056",
                     "8 tokens of 4", NULL);
}

static void refuses_a_set_of_two_versions(void **state)
{
    uint32_t ids[9] = {0};

    (void)state;
    make_folder("mixed");
    shard_make_count("mixed/a_train_000000.bin", 9, 1);
    shard_make("mixed/a_train_000001.bin", 4, ids, 9);
    refused(scratch_path("mixed"), "train", ST_FORMAT);
    assert_fail_text("a_train_000001.bin", "has 32-bit ids", "needs 16-bit ids",
                     "a_train_000000.bin", NULL);
}

static void picks_files_by_split(void **state)
{
    struct shards *s;

    (void)state;
    make_folder("set[1]");
    refused(scratch_path("set[1]"), NULL, ST_IO);
    assert_fail_text("set[1]", "*.bin", NULL);

    shard_make_count("set[1]/w_train_000002.bin", 12, 1);
    shard_make_count("set[1]/w_train_000010.bin", 13, 1);
    shard_make_count("set[1]/Z_train_000000.bin", 11, 1);
    shard_make_count("set[1]/other.bin", 14, 1);
    shard_make_count("set[1]/w_train_000003.bin.tmp", 1, 1);
    shard_make_count("set[1]/.w_train_000004.bin", 1, 1);
    refused(scratch_path("set[1]"), "val", ST_IO);
    assert_fail_text("set[1]", "no val shards", "4 *.bin files", "*_val_*.bin", NULL);

    /* In byte order: upper case first, whatever the locale. */
    s = opened(scratch_path("set[1]/"), "train");
    assert_int_equal(shards_files(s), 3);
    assert_non_null(strstr(shards_path(s, 0), "set[1]/Z_train_000000.bin"));
    assert_non_null(strstr(shards_path(s, 2), "w_train_000010.bin"));
    assert_int_equal(shards_file_tokens(s, 0), 11);
    assert_int_equal(shards_file_tokens(s, 2), 13);
    assert_int_equal(shards_tokens(s), 36);
    shards_close(s);

    s = opened(scratch_path("set[1]"), NULL);
    assert_int_equal(shards_files(s), 4);
    shards_close(s);

    s = opened(scratch_path("set?1?/w_*.bin"), "train");
    assert_int_equal(shards_files(s), 2);
    shards_close(s);

    /* A file of that very name is no pattern. */
    s = opened(scratch_path("set[1]/other.bin"), "train");
    assert_int_equal(shards_tokens(s), 14);
    shards_close(s);
    shards_close(NULL);
}

/* Window w of a set whose tokens are their own index has to begin with `first`. */
static void check_window(const struct shards *s, size_t T, uint64_t w, int32_t first)
{
    int32_t x[64], y[64];

    assert_true(T < 64);
    x[T] = y[T] = -7;
    assert_int_equal(shards_window(s, T, w, x, y), ST_OK);
    for (size_t i = 0; i < T; i++) {
        assert_int_equal(x[i], first + (int32_t)i);
        assert_int_equal(y[i], first + (int32_t)i + 1);
    }
    assert_int_equal(x[T], -7);
    assert_int_equal(y[T], -7);
}

static void counts_windows_at_borders(void **state)
{
    static const struct {
        size_t tokens, T;
        uint64_t windows;
    } rows[] = {{100, 8, 12}, {65, 8, 8}, {64, 8, 7},  {9, 8, 1},   {8, 8, 0},
                {1, 1, 0},    {2, 1, 1},  {37, 36, 1}, {37, 37, 0}, {48, 47, 1}};

    (void)state;
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        struct shards *s =
            opened(shard_make_count("border.bin", rows[r].tokens, 1), NULL);
        size_t skipped = 99;

        assert_int_equal(shards_windows(s, rows[r].T, &skipped), rows[r].windows);
        assert_int_equal(skipped, rows[r].windows == 0);
        for (uint64_t w = 0; w < rows[r].windows; w++)
            check_window(s, rows[r].T, w, (int32_t)(w * rows[r].T));
        shards_close(s);
    }
}

/* The last target of 65 tokens is token 64, and 64 tokens have no eighth window. */
static void joins_files_without_crossing_them(void **state)
{
    struct shards *s;
    size_t skipped;

    (void)state;
    make_folder("joined");
    shard_make_count("joined/a_train_1.bin", 100, 1);
    shard_make_count("joined/b_train_1.bin", 8, 1); /* too short for a window */
    shard_make_count("joined/c_train_1.bin", 65, 1);
    shard_make_count("joined/d_train_1.bin", 1, 1);
    s = opened(scratch_path("joined"), "train");
    assert_int_equal(shards_windows(s, 8, &skipped), 12 + 8);
    assert_int_equal(skipped, 2);
    assert_int_equal(shards_windows(s, 8, NULL), 20);
    check_window(s, 8, 11, 88);
    check_window(s, 8, 12, 0);
    check_window(s, 8, 19, 56);
    shards_close(s);
}

static void reads_wide_ids(void **state)
{
    enum { N = 33 };
    uint32_t ids[N];
    int32_t x[16], y[16];
    struct shards *s;

    (void)state;
    for (uint32_t i = 0; i < N; i++)
        ids[i] = 65530 + i; /* crosses what 16 bits can say */
    const char *path = shard_make("wide.bin", 4, ids, N);
    assert_int_equal(shards_open(path, NULL, 70000, &s), ST_OK);
    assert_int_equal(shards_windows(s, 16, NULL), 2);
    assert_int_equal(shards_window(s, 16, 1, x, y), ST_OK);
    assert_int_equal(x[0], 65546);
    assert_int_equal(x[15], 65561);
    assert_int_equal(y[15], 65562);
    shards_close(s);

    /* Ids with the sign bit set are large ones and not negative ones. */
    ids[20] = 4000000000u;
    path = shard_make("wide.bin", 4, ids, N);
    assert_int_equal(shards_open(path, NULL, UINT32_MAX, &s), ST_OK);
    assert_int_equal(shards_window(s, 16, 0, x, y), ST_OK);
    assert_int_equal(shards_window(s, 16, 1, x, y), ST_FORMAT);
    assert_fail_text("wide.bin", "token 20 ", "id 4000000000", NULL);
    shards_close(s);
}

static void names_ids_outside_the_vocabulary(void **state)
{
    static const unsigned bad[] = {50257, 50303, 65535};
    /* Lengths that put token 777 inside a window, at its begin and as its last target. */
    static const size_t lengths[] = {1, 7, 16, 100, 111, 259, 777, 1024};
    static int32_t x[1024], y[1024];

    (void)state;
    for (size_t k = 0; k < 3; k++) {
        uint16_t ids[2000];
        char id_text[32];

        for (unsigned i = 0; i < 2000; i++)
            ids[i] = (uint16_t)(i % 5000);
        ids[777] = (uint16_t)bad[k];
        snprintf(id_text, sizeof id_text, "id %u,", bad[k]);
        struct shards *s = opened(shard_make("vocab.bin", 2, ids, 2000), NULL);
        for (size_t j = 0; j < sizeof lengths / sizeof lengths[0]; j++) {
            size_t T = lengths[j];
            uint64_t windows = shards_windows(s, T, NULL);
            size_t refusals = 0;

            for (uint64_t w = 0; w < windows; w++) {
                bool has = w * T <= 777 && 777 <= w * T + T;
                enum status st = shards_window(s, T, w, x, y);

                assert_int_equal(st, has ? ST_FORMAT : ST_OK);
                refusals += has;
                if (has)
                    assert_fail_text("vocab.bin: token 777 is", id_text, " 50257", NULL);
            }
            assert_true(refusals >= 1);
        }
        shards_close(s);
        /* 50256 is the last good id: a larger vocabulary takes the file. */
        assert_int_equal(shards_open(scratch_path("vocab.bin"), NULL, bad[k] + 1, &s),
                         ST_OK);
        assert_int_equal(shards_window(s, 1024, 0, x, y), ST_OK);
        assert_int_equal(x[777], bad[k]);
        shards_close(s);
    }
}

static void hashes_payloads_in_order(void **state)
{
    struct shards *s;
    uint64_t hash;

    (void)state;
    make_folder("hash");
    shard_make_count("hash/a.bin", 41, 1);
    shard_make_count("hash/b.bin", 5003, 3);
    uint16_t all[41 + 5003];
    for (size_t i = 0; i < 41; i++)
        all[i] = (uint16_t)i;
    for (size_t i = 0; i < 5003; i++)
        all[41 + i] = (uint16_t)(i / 3);
    s = opened(scratch_path("hash"), NULL);
    assert_int_equal(shards_hash(s, &hash), ST_OK);
    assert_true(hash == XXH3_64bits(all, sizeof all));
    /* Still readable afterwards. */
    check_window(s, 8, 1, 8);
    shards_close(s);
}

/* A file longer than one piece of the hashing loop. */
static void hashes_large_files(void **state)
{
    const size_t n = 17000001;
    uint16_t *ids = malloc(n * sizeof *ids);
    struct shards *s;
    uint64_t hash;

    (void)state;
    assert_non_null(ids);
    for (size_t i = 0; i < n; i++)
        ids[i] = (uint16_t)(i * 40503u >> 7);
    s = opened(shard_make("large.bin", 2, ids, n), NULL);
    assert_int_equal(shards_hash(s, &hash), ST_OK);
    assert_true(hash == XXH3_64bits(ids, n * sizeof *ids));
    shards_close(s);
    unlink(scratch_path("large.bin"));
    free(ids);
}

/* A file of zeros but for `fill` at tokens [at, at + n); false where files cannot be
 * sparse. */
static bool sparse_file(const char *path, uint32_t count, uint64_t at, uint16_t fill,
                        size_t n)
{
    uint32_t header[256];
    uint16_t ids[4096];
    struct stat info;
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    bool ok;

    assert_true(fd >= 0 && n <= 4096);
    shard_header(header, 20240520, 1, count);
    for (size_t i = 0; i < n; i++)
        ids[i] = fill;
    ok = ftruncate(fd, 1024 + 2 * (off_t)count) == 0;
    if (ok) {
        assert_int_equal(fd_write_at(fd, path, header, 1024, 0), ST_OK);
        assert_int_equal(fd_write_at(fd, path, ids, 2 * n, 1024 + 2 * at), ST_OK);
        ok = fstat(fd, &info) == 0 && info.st_blocks * 512 < 64 << 20;
    }
    close(fd);
    if (!ok) {
        unlink(path);
        print_message("skipped: this file system has no sparse files of %u tokens\n",
                      count);
    }
    return ok;
}

static long peak_kb(void)
{
    struct rusage use;

    assert_int_equal(getrusage(RUSAGE_SELF, &use), 0);
    return use.ru_maxrss;
}

static void reads_beyond_two_gigabytes(void **state)
{
    enum { T = 1024 };
    const char *path = scratch_path("big.bin");
    static int32_t x[T], y[T];
    long before = peak_kb();

    (void)state;
    if (!sparse_file(path, 1100000000, 1073741824, 7777, 4096))
        skip();
    struct shards *s = opened(path, NULL);
    assert_int_equal(shards_tokens(s), 1100000000);
    assert_int_equal(shards_windows(s, T, NULL), 1074218);
    assert_int_equal(shards_window(s, T, 1048576, x, y), ST_OK);
    for (size_t i = 0; i < T; i++)
        assert_true(x[i] == 7777 && y[i] == 7777);
    /* The window before: all 0 but its last target. */
    assert_int_equal(shards_window(s, T, 1048575, x, y), ST_OK);
    for (size_t i = 0; i < T; i++)
        assert_true(x[i] == 0 && y[i] == (i == T - 1 ? 7777 : 0));
    assert_int_equal(shards_window(s, T, 1074217, x, y), ST_OK);
    assert_true(peak_kb() - before < 100 * 1024);
    shards_close(s);
    unlink(path);
}

/* A count that is negative as an int32. */
static void reads_more_than_two_to_the_31_tokens(void **state)
{
    const uint32_t count = 2147483648u + 6;
    const char *path = scratch_path("huge.bin");
    int32_t x[5], y[5];

    (void)state;
    if (!sparse_file(path, count, count - 3, 31, 3))
        skip();
    struct shards *s = opened(path, NULL);
    assert_true(shards_tokens(s) == count);
    uint64_t last = shards_windows(s, 5, NULL) - 1;
    assert_true(last == 429496729); /* tokens 2147483645 to 2147483650 */
    assert_int_equal(shards_window(s, 5, last, x, y), ST_OK);
    assert_int_equal(x[4], 0);
    assert_int_equal(shards_window(s, 1, count - 2, x, y), ST_OK);
    assert_int_equal(x[0], 31);
    assert_int_equal(y[0], 31);
    shards_close(s);
    unlink(path);
}

static void write_meta(const char *text)
{
    assert_int_equal(file_write_all(scratch_path("meta/tokens.json"), text, strlen(text)),
                     ST_OK);
}

static void reads_meta_beside_shards(void **state)
{
    struct shards_meta m;
    char cwd[512];

    (void)state;
    make_folder("meta");
    shard_make_count("meta/a_train_000000.bin", 9, 1);
    memset(&m, 1, sizeof m);
    assert_int_equal(shards_read_meta(scratch_path("meta"), &m), ST_OK);
    assert_int_equal(m.vocab, 0);
    assert_string_equal(m.kind, "");
    assert_string_equal(m.path, "");
    assert_int_equal(shards_read_meta("/nowhere/at/all*", &m), ST_OK);
    assert_int_equal(m.vocab, 0);

    write_meta(
        "{\"format\":\"weft-tokens\",\"version\":1,\"kind\":\"bytes\",\"vocab\":257,"
        "\"end_of_text\":256,\"train_tokens\":9,\"val_tokens\":0,\"later\":[1]}\n");
    const char *where[] = {"meta",
                           "meta/",
                           "meta/a_train_000000.bin",
                           "meta/*.bin",
                           "m?ta/*_train_*.bin",
                           "meta/none-*.bin"};
    for (size_t i = 0; i < sizeof where / sizeof where[0]; i++) {
        memset(&m, 1, sizeof m);
        assert_int_equal(shards_read_meta(scratch_path(where[i]), &m), ST_OK);
        assert_int_equal(m.vocab, 257);
        assert_string_equal(m.kind, "bytes");
        assert_string_equal(m.path, scratch_path("meta/tokens.json"));
    }
    /* A bare name: the file of the working folder. */
    assert_non_null(getcwd(cwd, sizeof cwd));
    assert_int_equal(chdir(scratch_path("meta")), 0);
    assert_int_equal(shards_read_meta("a_train_000000.bin", &m), ST_OK);
    assert_int_equal(chdir(cwd), 0);
    assert_int_equal(m.vocab, 257);
    assert_string_equal(m.path, "tokens.json");
}

static void refuses_bad_meta(void **state)
{
    static const struct {
        const char *text, *found, *needed;
    } rows[] = {
        {"", "line 1", "not JSON"},
        {"{\"format\":\"weft-tokens\",\n\"version\":1,", "line 2", "not JSON"},
        {"{\"vocab\":1,\"vocab\":2}", "duplicate", "not JSON"},
        {"[1]", "a list", "needs an object"},
        {"7", "a whole number", "needs an object"},
        {"{}", "no \"format\"", "needs a text"},
        {"{\"format\":3}", "\"format\" is a whole number", "needs a text"},
        {"{\"format\":\"x\"}", "\"format\" is \"x\"", "needs \"weft-tokens\""},
        {"{\"format\":\"weft-tokens\"}", "no \"version\"", "needs a whole number"},
        {"{\"format\":\"weft-tokens\",\"version\":2}", "\"version\" is 2",
         "needs 1 to 1"},
        {"{\"format\":\"weft-tokens\",\"version\":\"1\"}", "\"version\" is a text",
         "needs a whole number"},
        {"{\"format\":\"weft-tokens\",\"version\":1,\"kind\":null}", "\"kind\" is null",
         "needs a text"},
        {"{\"format\":\"weft-tokens\",\"version\":1,\"kind\":\"word-pieces\"}",
         "\"kind\" is \"word-pieces\"", "\"gpt2\", \"char\" or \"bytes\""},
        {"{\"format\":\"weft-tokens\",\"version\":1,\"kind\":\"char\"}", "no \"vocab\"",
         "needs a whole number"},
        {"{\"format\":\"weft-tokens\",\"version\":1,\"kind\":\"char\",\"vocab\":65.5}",
         "\"vocab\" is a fraction", "needs a whole number"},
        {"{\"format\":\"weft-tokens\",\"version\":1,\"kind\":\"char\",\"vocab\":0}",
         "\"vocab\" is 0", "needs 1 to 2147483647"},
        {"{\"format\":\"weft-tokens\",\"version\":1,\"kind\":\"char\",\"vocab\":"
         "4294967361}",
         "\"vocab\" is 4294967361", "needs 1 to 2147483647"},
        {"{\"format\":\"weft-tokens\",\"version\":1,\"kind\":\"char\",\"vocab\":65,"
         "\"end_of_text\":65}",
         "\"end_of_text\" is 65", "needs -1 to 64"},
        {"{\"format\":\"weft-tokens\",\"version\":1,\"kind\":\"char\",\"vocab\":65,"
         "\"end_of_text\":true}",
         "\"end_of_text\" is true or false", "needs a whole number"},
        {"{\"format\":\"weft-tokens\",\"version\":1,\"kind\":\"char\",\"vocab\":65,"
         "\"val_tokens\":-1}",
         "\"val_tokens\" is -1", "needs 0 to"},
        {"{\"format\":\"weft-tokens\",\"version\":1,\"kind\":\"char\",\"vocab\":65,"
         "\"train_tokens\":{}}",
         "\"train_tokens\" is an object", "needs a whole number"},
    };

    (void)state;
    make_folder("meta");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct shards_meta m;

        write_meta(rows[i].text);
        memset(&m, 1, sizeof m);
        assert_int_equal(shards_read_meta(scratch_path("meta"), &m), ST_FORMAT);
        assert_fail_text("meta/tokens.json: ", rows[i].found, rows[i].needed, NULL);
        assert_int_equal(m.vocab, 0);
        assert_string_equal(m.path, "");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_what_cannot_be_opened),
        cmocka_unit_test(refuses_what_may_not_be_read),
        cmocka_unit_test(refuses_bad_headers),
        cmocka_unit_test(refuses_sizes_that_do_not_fit_the_count),
        cmocka_unit_test(refuses_a_set_of_two_versions),
        cmocka_unit_test(picks_files_by_split),
        cmocka_unit_test(counts_windows_at_borders),
        cmocka_unit_test(joins_files_without_crossing_them),
        cmocka_unit_test(reads_wide_ids),
        cmocka_unit_test(names_ids_outside_the_vocabulary),
        cmocka_unit_test(hashes_payloads_in_order),
        cmocka_unit_test(reads_beyond_two_gigabytes),
        cmocka_unit_test(reads_more_than_two_to_the_31_tokens),
        cmocka_unit_test(hashes_large_files),
        cmocka_unit_test(reads_meta_beside_shards),
        cmocka_unit_test(refuses_bad_meta),
    };

    return cmocka_run_group_tests_name("shards", tests, scratch_make, scratch_remove);
}
