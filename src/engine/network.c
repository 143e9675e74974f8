/* SPDX-License-Identifier: MIT */
#include "engine/network.h"

#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FORMAT_NAME "weft-network"
enum { FORMAT_VERSION = 1, MOST_RANKS = 1000000 };

struct network network_assumed(void)
{
    return (struct network){.library = "assumed",
                            .latency_s = 50e-6,
                            .bandwidth_Bps = 1.17e9, /* what TCP leaves of 10 Gbit/s */
                            .congested_Bps = 1.17e9,
                            .host_latency_s = 1e-6,
                            .host_bandwidth_Bps = 4e9,
                            .sum_Bps = 8e9,
                            .message_s = 5e-6,
                            .byte_s = 0.2e-9,
                            .agreement_s = 200e-6};
}

struct field {
    const char *name;
    double *value;
    double least, greatest;
    bool optional; /* may be missing or null */
};

static enum status read_field(const char *path, const json_t *root, const struct field *f)
{
    const json_t *v = json_object_get(root, f->name);
    double x = json_number_value(v);

    if (f->optional && (!v || json_is_null(v)))
        return ST_OK;
    if (!json_is_number(v)) {
        char *text = v ? json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
        enum status st = fail(ST_FORMAT, "%s: %s: found %.40s, needs a number", path,
                              f->name, text ? text : "nothing");

        free(text);
        return st;
    }
    if (!(x >= f->least) || !(x <= f->greatest))
        return fail(ST_FORMAT, "%s: %s: found %g, needs %g to %g", path, f->name, x,
                    f->least, f->greatest);
    *f->value = x;
    return ST_OK;
}

static enum status read_head(const char *path, const json_t *root)
{
    const char *format = json_string_value(json_object_get(root, "format"));
    const json_t *version = json_object_get(root, "version");

    if (!format || strcmp(format, FORMAT_NAME) != 0)
        return fail(ST_FORMAT,
                    "%s: found %s%.40s, needs \"format\": \"" FORMAT_NAME
                    "\", as 'weft bench network --json' writes",
                    path, format ? "format " : "no format", format ? format : "");
    if (!json_is_integer(version) || json_integer_value(version) != FORMAT_VERSION)
        return fail(ST_FORMAT, "%s: found version %lld, needs %d", path,
                    (long long)json_integer_value(version), FORMAT_VERSION);
    return ST_OK;
}

static enum status read_fields(const char *path, const json_t *root, struct network *n)
{
    const double fastest =
        1e13; /* bytes a second; slower than a byte each is a mistake */
    double ranks = 0, hosts = 0;
    const struct field fields[] = {
        {"ranks", &ranks, 1, MOST_RANKS, false},
        {"hosts", &hosts, 1, MOST_RANKS, false},
        {"latency_s", &n->latency_s, 0, 60, false},
        {"bandwidth_Bps", &n->bandwidth_Bps, 1, fastest, false},
        {"congested_bandwidth_Bps", &n->congested_Bps, 1, fastest, false},
        {"host_latency_s", &n->host_latency_s, 0, 60, true},
        {"host_bandwidth_Bps", &n->host_bandwidth_Bps, 1, fastest, true},
        {"sum_Bps", &n->sum_Bps, 1, fastest, false},
        {"message_s", &n->message_s, 0, 60, false},
        {"byte_s", &n->byte_s, 0, 1, true},
        {"agreement_s", &n->agreement_s, 0, 60, true},
    };
    enum status st = ST_OK;

    for (size_t i = 0; i < sizeof fields / sizeof *fields && st == ST_OK; i++)
        st = read_field(path, root, &fields[i]);
    n->ranks = (int)ranks;
    n->hosts = (int)hosts;
    return st;
}

static enum status load(const char *path, json_t **out)
{
    json_error_t error;
    FILE *f = fopen(path, "re");

    *out = NULL;
    if (!f)
        return fail(ST_IO, "%s: cannot open: %s", path, strerror(errno));
    *out = json_loadf(f, JSON_REJECT_DUPLICATES, &error);
    fclose(f);
    if (!*out)
        return fail(ST_FORMAT, "%s: line %d: %s", path, error.line, error.text);
    return ST_OK;
}

enum status network_read(const char *path, struct network *out)
{
    json_t *root;
    const char *library;
    enum status st = load(path, &root);

    *out = network_assumed();
    if (st != ST_OK)
        return st;
    library = json_string_value(json_object_get(root, "library"));
    (void)snprintf(out->library, sizeof out->library, "%s", library ? library : "");
    st = read_head(path, root);
    if (st == ST_OK)
        st = read_fields(path, root, out);
    json_decref(root);
    return st;
}
