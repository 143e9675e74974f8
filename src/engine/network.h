/* network.h - the figures of a network that the cost model calculates with.
 *
 * `weft bench network --json FILE` measures and writes them. A link is what joins a host
 * to the others, full duplex: figures are for one direction, however many ranks are
 * behind it.
 */
#ifndef WEFT_ENGINE_NETWORK_H
#define WEFT_ENGINE_NETWORK_H

#include "base/status.h"

struct network {
    char library[128]; /* of the measurement; "assumed" */
    int ranks, hosts;  /* of the measurement; 0: assumed */
    double latency_s;  /* of a message between hosts */
    double bandwidth_Bps;
    double congested_Bps; /* into one host that all others send to */
    double host_latency_s;
    double host_bandwidth_Bps; /* of messages inside a host: each rank and direction */
    double sum_Bps;            /* contributions added, by one worker */
    double message_s, byte_s;  /* CPU time of a rank for a message, and for its bytes */
    double agreement_s;        /* a small sum over the ranks of the measurement */
};

/* A network of 10 Gbit/s and 50 us with figures of common machines. */
struct network network_assumed(void);

/* Reads what `weft bench network` wrote. Figures that a file may lack, those inside a
 * host when it was measured with one rank a host, and byte_s and agreement_s, are the
 * assumed ones.
 * Returns  ST_OK; ST_IO, ST_FORMAT naming file and field, what was found and what is
 *          needed */
MUST_USE enum status network_read(const char *path, struct network *out);

#endif
