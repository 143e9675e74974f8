/* SPDX-License-Identifier: MIT */
/* Network files: what is taken from them, and what is refused in which words. */
#include "engine/network.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define HEAD "\"format\": \"weft-network\", \"version\": 1, "
#define MEASURED                                                                         \
    "\"library\": \"Open MPI v4.1.4\", \"ranks\": 4, \"hosts\": 4, "                     \
    "\"latency_s\": 6e-05, \"bandwidth_Bps\": 1.1e8, "                                   \
    "\"congested_bandwidth_Bps\": 90000000, \"sum_Bps\": 6.5e9, "                        \
    "\"message_s\": 1.2e-5"

static const char *path(void)
{
    static char text[64];

    (void)snprintf(text, sizeof text, "/tmp/weft-network-%ld.json", (long)getpid());
    return text;
}

static enum status read_text(const char *text, struct network *out)
{
    FILE *f = fopen(path(), "w");
    enum status st;

    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
    st = network_read(path(), out);
    assert_int_equal(unlink(path()), 0);
    return st;
}

static void test_good(void **state)
{
    struct network assumed = network_assumed();
    struct network n;

    (void)state;
    assert_int_equal(read_text("{" HEAD MEASURED ", \"host_bandwidth_Bps\": null}", &n),
                     ST_OK);
    assert_string_equal(n.library, "Open MPI v4.1.4");
    assert_int_equal(n.ranks, 4);
    assert_int_equal(n.hosts, 4);
    assert_true(n.latency_s == 6e-5 && n.bandwidth_Bps == 1.1e8);
    assert_true(n.congested_Bps == 9e7 && n.sum_Bps == 6.5e9 && n.message_s == 1.2e-5);
    /* What was not measured. */
    assert_true(n.host_bandwidth_Bps == assumed.host_bandwidth_Bps);
    assert_true(n.byte_s == assumed.byte_s && n.agreement_s == assumed.agreement_s);

    assert_int_equal(read_text("{" HEAD MEASURED
                               ", \"host_bandwidth_Bps\": 3e9, \"host_latency_s\": 2e-6,"
                               " \"byte_s\": 5e-10, \"agreement_s\": 3e-4,"
                               " \"later\": [1, {\"more\": 2}]}",
                               &n),
                     ST_OK);
    assert_true(n.host_bandwidth_Bps == 3e9 && n.host_latency_s == 2e-6);
    assert_true(n.byte_s == 5e-10 && n.agreement_s == 3e-4);
}

/* One clear text: the file, the field, what was found, what is needed. */
static void refuses(const char *text, const char *words)
{
    struct network n;

    assert_int_equal(read_text(text, &n), ST_FORMAT);
    if (!strstr(fail_text(), words) || !strstr(fail_text(), path()))
        fail_msg("found '%s', needs '%s'", fail_text(), words);
}

static void test_bad(void **state)
{
    static const char *const required[] = {
        "ranks",   "hosts",    "latency_s", "bandwidth_Bps", "congested_bandwidth_Bps",
        "sum_Bps", "message_s"};
    struct network n;

    (void)state;
    for (size_t i = 0; i < sizeof required / sizeof *required; i++) {
        char text[1024] = "{" HEAD MEASURED "}";
        char words[128], quoted[64];

        (void)snprintf(quoted, sizeof quoted, "\"%s\"", required[i]);
        char *name = strstr(text, quoted);

        assert_non_null(name);
        name[1] = 'x';
        (void)snprintf(words, sizeof words, "%s: found nothing, needs a number",
                       required[i]);
        refuses(text, words);
    }
    refuses("{" HEAD "\"ranks\": \"four\"}", "ranks: found \"four\", needs a number");
    refuses("{" HEAD "\"ranks\": 0}", "ranks: found 0, needs 1 to");
    refuses("{" HEAD "\"ranks\": 2, \"hosts\": 2, \"latency_s\": -1}",
            "latency_s: found -1, needs 0 to 60");
    refuses("{" HEAD "\"ranks\": 2, \"hosts\": 2, \"latency_s\": 0, "
            "\"bandwidth_Bps\": null}",
            "bandwidth_Bps: found null, needs a number");
    refuses("{" HEAD MEASURED ", \"host_bandwidth_Bps\": -3}",
            "host_bandwidth_Bps: found -3, needs 1 to");
    refuses("{}", "no format, needs \"format\": \"weft-network\"");
    refuses("[]", "no format");
    refuses("{\"format\": \"weft checkpoint\"}", "found format weft checkpoint");
    refuses("{\"format\": \"weft-network\", \"version\": 2}", "found version 2, needs 1");
    refuses("{\"format\": ", "line 1");
    refuses("", "line 1");
    refuses("{" HEAD MEASURED ", \"ranks\": 2}", "duplicate");
    assert_int_equal(network_read("/no/such/file", &n), ST_IO);
    assert_non_null(strstr(fail_text(), "/no/such/file: cannot open"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_good),
                                       cmocka_unit_test(test_bad)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
