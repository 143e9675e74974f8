/* SPDX-License-Identifier: MIT */
/* Writing token shards: names, sizes, headers byte by byte, and what is left behind when
 * the writing fails. */
#include "data/shards.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "shard_file.h"

static struct shard_writer *writer(const char *split, uint32_t vocab, uint64_t tokens)
{
    struct shard_writer *w = NULL;

    if (shard_writer_new(scratch, "set", split, vocab, tokens, &w) != ST_OK)
        fail_msg("%s", fail_text());
    return w;
}

/* Ids 0, 1, 2, ... modulo vocab, in writes of awkward sizes. */
static enum status add_counting(struct shard_writer *w, uint32_t vocab, size_t n)
{
    static const size_t sizes[] = {1, 7, 997, 0, 65536, 3};
    enum status st = ST_OK;
    uint32_t *ids = malloc(65536 * sizeof *ids);

    assert_non_null(ids);
    for (size_t at = 0, k = 0; at < n && st == ST_OK; k++) {
        size_t some = sizes[k % 6] < n - at ? sizes[k % 6] : n - at;

        for (size_t i = 0; i < some; i++)
            ids[i] = (uint32_t)((at + i) % vocab);
        st = shard_writer_add(w, ids, some);
        at += some;
    }
    free(ids);
    return st;
}

/* The file holds ids first, first + 1, ... modulo vocab. */
static void assert_counting(const char *name, size_t id_bytes, uint32_t vocab,
                            size_t first, size_t n)
{
    const char *path = scratch_path(name);
    char *file;
    size_t bytes;
    int32_t header[256] = {0};

    assert_int_equal(file_read_all(path, &file, &bytes), ST_OK);
    assert_int_equal(bytes, 1024 + id_bytes * n);
    header[0] = id_bytes == 2 ? 20240520 : 20240801;
    header[1] = id_bytes == 2 ? 1 : 7;
    header[2] = (int32_t)n;
    assert_memory_equal(file, header, sizeof header);
    for (size_t i = 0; i < n; i++) {
        uint32_t id = 0;

        memcpy(&id, file + 1024 + i * id_bytes, id_bytes);
        if (id != (first + i) % vocab)
            fail_msg("%s: token %zu is %u", name, i, id);
    }
    free(file);
}

static void close_expecting(struct shard_writer *w, size_t files, uint64_t last)
{
    size_t found_files = 99;
    uint64_t found_last = 99;

    assert_int_equal(shard_writer_close(w, &found_files, &found_last), ST_OK);
    assert_int_equal(found_files, files);
    assert_int_equal(found_last, last);
}

static bool exists(const char *name)
{
    return file_exists(scratch_path(name));
}

static void cuts_into_shards(void **state)
{
    struct shard_writer *w = writer("train", 50257, 100000);

    (void)state;
    assert_int_equal(add_counting(w, 50257, 250000), ST_OK);
    /* Nothing has its name before the end. */
    assert_true(exists("set_train_000001.bin.tmp"));
    assert_false(exists("set_train_000001.bin"));
    close_expecting(w, 3, 50000);
    assert_counting("set_train_000001.bin", 2, 50257, 0, 100000);
    assert_counting("set_train_000002.bin", 2, 50257, 100000, 100000);
    assert_counting("set_train_000003.bin", 2, 50257, 200000, 50000);
    assert_false(exists("set_train_000004.bin"));
    assert_false(exists("set_train_000003.bin.tmp"));

    struct shards *s = NULL;
    assert_int_equal(shards_open(scratch, "train", 50257, &s), ST_OK);
    assert_int_equal(shards_tokens(s), 250000);
    shards_close(s);
}

static void a_full_last_shard_opens_no_further_one(void **state)
{
    struct shard_writer *w = writer("full", 300, 50);

    (void)state;
    assert_int_equal(add_counting(w, 300, 100), ST_OK);
    close_expecting(w, 2, 50);
    assert_false(exists("set_full_000003.bin"));
}

static void shards_of_one_token(void **state)
{
    struct shard_writer *w = writer("one", 5, 1);

    (void)state;
    assert_int_equal(add_counting(w, 5, 3), ST_OK);
    close_expecting(w, 3, 1);
    assert_counting("set_one_000003.bin", 2, 5, 2, 1);
}

static void validation_counts_from_zero(void **state)
{
    struct shard_writer *w = writer("val", 300, 100);

    (void)state;
    assert_int_equal(add_counting(w, 300, 150), ST_OK);
    close_expecting(w, 2, 50);
    assert_counting("set_val_000000.bin", 2, 300, 0, 100);
    assert_counting("set_val_000001.bin", 2, 300, 100, 50);
}

static void no_tokens_no_file(void **state)
{
    (void)state;
    close_expecting(writer("none", 300, 100), 0, 0);
    assert_false(exists("set_none_000001.bin"));
}

/* 16 bits hold 65,536 ids; one more and the file is another. */
static void wide_vocabularies_are_32_bit(void **state)
{
    static const uint32_t edges[] = {65536, 69999, 0};
    struct shard_writer *w = writer("narrow", 65536, 1 << 20);

    (void)state;
    assert_int_equal(add_counting(w, 65536, 65540), ST_OK);
    close_expecting(w, 1, 65540);
    assert_counting("set_narrow_000001.bin", 2, 65536, 0, 65540);
    w = writer("wide", 65537, 1 << 20);
    assert_int_equal(add_counting(w, 65537, 65540), ST_OK);
    close_expecting(w, 1, 65540);
    assert_counting("set_wide_000001.bin", 4, 65537, 0, 65540);
    w = writer("wider", 70000, 1 << 20);
    assert_int_equal(shard_writer_add(w, edges, 3), ST_OK);
    close_expecting(w, 1, 3);

    struct shards *s = NULL;
    int32_t x[2];
    int32_t y[2];
    assert_int_equal(shards_open(scratch_path("set_wider_000001.bin"), NULL, 70000, &s),
                     ST_OK);
    assert_int_equal(shards_window(s, 2, 0, x, y), ST_OK);
    assert_int_equal(x[0], 65536);
    assert_int_equal(x[1], 69999);
    assert_int_equal(y[1], 0);
    shards_close(s);
}

static void an_id_beyond_the_vocabulary_is_a_bug(void **state)
{
    struct shard_writer *w = writer("bug", 300, 100);

    (void)state;
    assert_int_equal(shard_writer_add(w, &(uint32_t){299}, 1), ST_OK);
    assert_int_equal(shard_writer_add(w, &(uint32_t){300}, 1), ST_BUG);
    assert_fail_text("id 300", "300", NULL);
    shard_writer_discard(w);
    assert_false(exists("set_bug_000001.bin.tmp"));
    assert_false(exists("set_bug_000001.bin"));
}

static void discarding_leaves_nothing(void **state)
{
    struct shard_writer *w = writer("gone", 300, 100);

    (void)state;
    assert_int_equal(add_counting(w, 300, 250), ST_OK);
    assert_true(exists("set_gone_000003.bin.tmp"));
    shard_writer_discard(w);
    for (int i = 1; i <= 3; i++) {
        char name[64];

        snprintf(name, sizeof name, "set_gone_%06d.bin.tmp", i);
        assert_false(exists(name));
        name[strlen(name) - 4] = 0;
        assert_false(exists(name));
    }
    shard_writer_discard(NULL);
}

static void finish_makes_whole_but_names_nothing(void **state)
{
    struct shard_writer *w = writer("ready", 300, 100);

    (void)state;
    assert_int_equal(add_counting(w, 300, 130), ST_OK);
    assert_int_equal(shard_writer_finish(w), ST_OK);
    assert_counting("set_ready_000002.bin.tmp", 2, 300, 100, 30);
    assert_false(exists("set_ready_000001.bin"));
    close_expecting(w, 2, 30);
    assert_counting("set_ready_000002.bin", 2, 300, 100, 30);
}

/* A limit on the size of files stands for a full disk. */
static void a_full_disk_leaves_nothing(void **state)
{
    struct rlimit old;
    struct rlimit tight;
    size_t files;
    uint64_t last;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    for (size_t n = 3000; n <= 300000; n *= 100) {
        struct shard_writer *w = writer("disk", 300, 1000000);

        tight = old;
        tight.rlim_cur = 4096;
        signal(SIGXFSZ, SIG_IGN);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
        /* The little one fails at its end, the large one on the way. */
        enum status st = add_counting(w, 300, n);
        if (n == 3000) {
            assert_int_equal(st, ST_OK);
            st = shard_writer_close(w, &files, &last);
            assert_int_equal(files, 0);
        } else {
            shard_writer_discard(w);
        }
        setrlimit(RLIMIT_FSIZE, &old);
        assert_int_equal(st, ST_IO);
        assert_fail_text("set_disk_000001.bin.tmp", strerror(EFBIG), NULL);
        assert_false(exists("set_disk_000001.bin.tmp"));
        assert_false(exists("set_disk_000001.bin"));
    }
}

static void refuses_what_cannot_be(void **state)
{
    struct shard_writer *w = (struct shard_writer *)scratch;

    (void)state;
    assert_int_equal(shard_writer_new(scratch, "set", "train", 300, 0, &w), ST_USAGE);
    assert_null(w);
    assert_int_equal(
        shard_writer_new(scratch, "set", "train", 300, (uint64_t)1 << 31, &w), ST_USAGE);
    assert_int_equal(
        shard_writer_new(scratch_path("no-folder"), "set", "train", 300, 10, &w), ST_OK);
    assert_int_equal(shard_writer_add(w, &(uint32_t){1}, 1), ST_IO);
    assert_fail_text("no-folder", "No such file", NULL);
    shard_writer_discard(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuts_into_shards),
        cmocka_unit_test(a_full_last_shard_opens_no_further_one),
        cmocka_unit_test(shards_of_one_token),
        cmocka_unit_test(validation_counts_from_zero),
        cmocka_unit_test(no_tokens_no_file),
        cmocka_unit_test(wide_vocabularies_are_32_bit),
        cmocka_unit_test(an_id_beyond_the_vocabulary_is_a_bug),
        cmocka_unit_test(discarding_leaves_nothing),
        cmocka_unit_test(finish_makes_whole_but_names_nothing),
        cmocka_unit_test(a_full_disk_leaves_nothing),
        cmocka_unit_test(refuses_what_cannot_be),
    };

    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
