/* SPDX-License-Identifier: MIT */
/* Every kind of damage is refused, with a text that names the file, what was found and
 * what is needed. */
#include "fixture.h" /* before cmocka.h, which has a fail() of its own */

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SPEC "L=1,H=3,C=48,T=7,V=61"
static const struct holding writer = {
    .spec = SPEC, .order = LAYOUT_PRODUCTION, .ranks = 3, .block_bytes = SIZE_MAX};
static const struct holding reader = {
    .spec = SPEC, .order = LAYOUT_PRODUCTION, .ranks = 1, .block_bytes = 4096};

static struct comm *comm;
static char scratch[PATH_BYTES];
static char folder[PATH_BYTES];

static int write_fresh(void **arg)
{
    struct run_state state = fixture_state(5);

    (void)arg;
    (void)snprintf(folder, sizeof folder, "%s", text("%s/step-000005", scratch));
    simulate_save(folder, &writer, &state, 1);
    return 0;
}

static int remove_it(void **arg)
{
    (void)arg;
    scratch_remove(folder);
    return 0;
}

static enum status load(const struct holding *h)
{
    struct run_state back;
    struct fixture f;

    fixture_init(&f, h, 0);
    capture_begin();
    enum status st = checkpoint_load(comm, folder, true, &f.view, &back);
    (void)capture_end();
    fixture_release(&f);
    return st;
}

static void refused(enum status needed, const char *file, const char *words)
{
    enum status st = load(&reader);

    assert_int_equal(st, needed);
    if (!strstr(fail_text(), file) || !strstr(fail_text(), words))
        fail_msg("'%s' lacks '%s' or '%s'", fail_text(), file, words);
}

static const char *in(const char *name)
{
    return text("%s/%s", folder, name);
}

static void untouched_loads(void **arg)
{
    (void)arg;
    assert_int_equal(load(&reader), ST_OK);
}

static void cut_by_one_byte(void **arg)
{
    (void)arg;
    file_resize(in("state-00001-of-00003.bin"), -1);
    refused(ST_FORMAT, "state-00001-of-00003.bin", "bytes, needs ");
}

static void longer_by_one_byte(void **arg)
{
    (void)arg;
    file_resize(in("state-00002-of-00003.bin"), 1);
    refused(ST_FORMAT, "state-00002-of-00003.bin", "bytes, needs ");
}

static void missing_file(void **arg)
{
    (void)arg;
    assert_int_equal(unlink(in("state-00001-of-00003.bin")), 0);
    refused(ST_IO, "state-00001-of-00003.bin", "No such file");
}

static void missing_manifest(void **arg)
{
    (void)arg;
    assert_int_equal(unlink(in("manifest.json")), 0);
    refused(ST_IO, "manifest.json", "No such file");
}

/* One bit in each file and section. */
static void flipped_bits(void **arg)
{
    (void)arg;
    for (int r = 0; r < 3; r++)
        for (int section = 0; section < 3; section++) {
            const char *name = text("state-%05d-of-00003.bin", r);
            uint64_t bytes;

            assert_int_equal(file_size(in(name), &bytes), ST_OK);
            long at = (long)bytes / 3 * section + 5;
            file_flip_byte(in(name), at);
            refused(ST_FORMAT, name, "checksum");
            file_flip_byte(in(name), at);
        }
    assert_int_equal(load(&reader), ST_OK);
}

/* model_read looks at the parameters only, and at all of them. */
static void flipped_bits_and_model_read(void **arg)
{
    struct model_file model;
    struct fixture f;
    const char *name = "state-00002-of-00003.bin";
    uint64_t bytes;

    (void)arg;
    fixture_init(&f, &reader, 0);
    assert_int_equal(model_open(folder, &model), ST_OK);
    assert_int_equal(file_size(in(name), &bytes), ST_OK);
    file_flip_byte(in(name), (long)bytes / 3); /* first of m */
    assert_int_equal(model_read(&model, &f.layout, f.view.params), ST_OK);
    file_flip_byte(in(name), (long)bytes / 3 - 1); /* last parameter */
    assert_int_equal(model_read(&model, &f.layout, f.view.params), ST_FORMAT);
    assert_non_null(strstr(fail_text(), "checksum"));
    fixture_release(&f);
}

static void cut_manifest(void **arg)
{
    (void)arg;
    file_resize(in("manifest.json"), -3);
    refused(ST_FORMAT, "manifest.json", "no JSON");
}

static void empty_manifest(void **arg)
{
    (void)arg;
    assert_int_equal(truncate(in("manifest.json"), 0), 0);
    refused(ST_FORMAT, "manifest.json", "no JSON");
}

/* A changed text of the manifest, and the words of the refusal. */
struct edit {
    const char *from, *to, *words;
};

static void edited_manifest(void **arg)
{
    static const struct edit edits[] = {
        {"\"weft checkpoint\"", "\"other\"", "found format \"other\""},
        {"\"version\": 2", "\"version\": 3", "found format version 3, needs 1 or 2"},
        {"\"version\": 2", "\"version\": \"2\"", "no \"version\""},
        {"\"step\": 5", "\"step\": -5", "no \"step\""},
        {"\"seed\": \"", "\"seed\": \"x", "\"seed\" is \"x"},
        {"\"wall_s\"", "\"wall\"", "no \"wall_s\""},
        {"\"best_val_loss\": null", "\"best_val_loss\": \"low\"", "best_val_loss"},
        {"\"config\": \"", "\"config\": 1, \"c\": \"", "no \"config\""},
        {"\"ranks\": 3", "\"ranks\": 4", "found 3 files, needs one for each of 4"},
        {"\"ranks\": 3", "\"ranks\": 0", "found 3 files"},
        {"\"C\": 48", "\"C\": 51", "elements, needs"},
        {"\"H\": 3", "\"H\": 5", "H divides"},
        {"\"L\": 1", "\"L\": 0", "at least 1"},
        {"\"C\": 48", "\"C\": 1000000000000", "out of range"},
        {"\"Vp\": 128", "\"Vp\": 61", "found Vp=61"},
        {"state-00001-of-00003.bin", "../../passwd", "needs state-00001-of-00003.bin"},
        {"\"xxh3\": \"", "\"xxh3\": \"z", "\"xxh3\" is"},
        {"\"bytes\": ", "\"bytes\": 1", "for its"},
        {"\"ranges\": [", "\"ranges\": [7, ", "pairs"},
        {"\"ranges\": [", "\"ranges\": [0, 1, ", "for its"},
        {"\"ranges\": [", "\"ranges\": [0, -1, ", "needs ranges within"},
        {"\"ranges\": [", "\"ranges\": [99999999, 1, ", "needs ranges within"},
        {"\"ranges\": [", "\"ranges\": [1, 9223372036854775807, ", "needs ranges within"},
        {"\"ranks\"", "\"version\": 1, \"ranks\"", "no JSON"}, /* a key twice */
    };

    (void)arg;
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        file_replace(in("manifest.json"), edits[i].from, edits[i].to);
        manifest_sign(in("manifest.json"));
        refused(ST_FORMAT, "manifest.json", edits[i].words);
        file_replace(in("manifest.json"), edits[i].to, edits[i].from);
        manifest_sign(in("manifest.json"));
    }
    assert_int_equal(load(&reader), ST_OK);
    file_replace(in("manifest.json"), "lr = 3e-4", "lr = 4e-4");
    refused(ST_FORMAT, "manifest.json", "found checksum");
    /* The first version had no checksum of its own. */
    file_replace(in("manifest.json"), "\"version\": 2", "\"version\": 1");
    assert_int_equal(load(&reader), ST_OK);
}

/* Ranges of the right total that overlap and leave a hole. */
static void ranges_must_cover_once(void **arg)
{
    struct manifest m;

    (void)arg;
    assert_int_equal(manifest_read(&m, folder), ST_OK);
    require(m.n_ranges > 3 && m.ranges[1].begin > 0);
    m.ranges[1].begin--;
    assert_int_equal(manifest_write(&m, folder), ST_OK);
    refused(ST_FORMAT, "manifest.json", "must cover all elements once");
    m.ranges[1].begin++;
    assert_int_equal(manifest_write(&m, folder), ST_OK);
    assert_int_equal(load(&reader), ST_OK);
    manifest_release(&m);
}

static void other_shape_is_usage(void **arg)
{
    struct holding other = reader;

    (void)arg;
    other.spec = "L=2,H=3,C=48,T=7,V=61";
    assert_int_equal(load(&other), ST_USAGE);
    assert_non_null(strstr(fail_text(), "found L=1,H=3,C=48,T=7,V=61"));
    assert_non_null(strstr(fail_text(), "L=2,H=3,C=48,T=7,V=61"));
    other.spec = "L=1,H=6,C=48,T=7,V=61";
    assert_int_equal(load(&other), ST_USAGE);
    other.spec = "L=1,H=3,C=48,T=7,V=62"; /* the same padded vocabulary */
    assert_int_equal(load(&other), ST_USAGE);
}

static int setup(void **arg)
{
    (void)arg;
    scratch_make(scratch);
    return comm_start(&comm) == ST_OK ? 0 : -1;
}

static int teardown(void **arg)
{
    (void)arg;
    comm_stop(comm);
    scratch_remove(scratch);
    return 0;
}

#define ON_FRESH(test) cmocka_unit_test_setup_teardown(test, write_fresh, remove_it)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_FRESH(untouched_loads),
        ON_FRESH(cut_by_one_byte),
        ON_FRESH(longer_by_one_byte),
        ON_FRESH(missing_file),
        ON_FRESH(missing_manifest),
        ON_FRESH(flipped_bits),
        ON_FRESH(flipped_bits_and_model_read),
        ON_FRESH(cut_manifest),
        ON_FRESH(empty_manifest),
        ON_FRESH(edited_manifest),
        ON_FRESH(ranges_must_cover_once),
        ON_FRESH(other_shape_is_usage),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
