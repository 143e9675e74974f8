/* SPDX-License-Identifier: MIT */
/* A switch for the hosts of hosts.py, which are network namespaces:
 *
 *   weft_switch RATE DELAY QUEUE NAMESPACE...
 *
 * puts a TAP device eth0 into each namespace, prints "ready" and carries packets between
 * them until it is killed. RATE is in bits a second and holds for each direction of each
 * link; DELAY is what a packet needs from one link to the other, in nanoseconds; QUEUE is
 * what waits at most for the link to a host, in bytes: what comes on top of it is lost.
 * Host number i (from 0) must have the hardware address 02:00:00:00:00:i+1; packets for
 * any other address are dropped, so the hosts need permanent neighbour entries.
 *
 * Time is virtual: when a packet is read it is known when the link it comes on will have
 * carried it, and when it is due at the other link it is known when that link will have.
 * Late wake-ups therefore cost latency once and never bandwidth. A large segment (TSO)
 * stands for its packets: it occupies the second link while it still arrives on the
 * first.
 *
 * Invariant: in `coming` and in `going` of a port, times do not decrease.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <linux/virtio_net.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum {
    MAX_PORTS = 64,
    MAX_PACKET = 1 << 17, /* with its virtio_net_hdr */
    SMALL_PACKET = 4096,
    READS = 16, /* from one port in a row */
    ETHERNET_MIN = 60,
    ETHERNET_GAP = 24, /* preamble, checksum, pause */
};

static const int64_t NEVER = INT64_MAX;
struct packet {
    struct packet *next;
    int64_t time; /* coming: begins to reach the other link; going: is there */
    int64_t wire_ns;
    int to;
    size_t size; /* of data, which begins with a virtio_net_hdr */
    uint8_t data[];
};

struct fifo {
    struct packet *first, **end;
};

struct port {
    int fd;
    struct fifo coming, going;  /* from this host; to this host */
    int64_t up_free, down_free; /* when the link's directions are free again */
};

static struct port ports[MAX_PORTS];
static int n_ports;
static double ns_per_byte;
static int64_t delay_ns, queue_ns;
static struct packet *spare; /* large packets that are not in use */
static int64_t lag_ns;       /* from an event to the moment at which a sleeper sees it */

static _Noreturn void die(const char *what, const char *name)
{
    fprintf(stderr, "weft_switch: %s %s: %s\n", what, name, strerror(errno));
    exit(1);
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* ---- packets
 * ---------------------------------------------------------------------------- */

static struct packet *packet_new(size_t size)
{
    struct packet *p = malloc(sizeof *p + size);
    if (!p)
        die("malloc", "a packet");
    return p;
}

static struct packet *large_take(void)
{
    struct packet *p = spare;
    if (!p)
        return packet_new(MAX_PACKET);
    spare = p->next;
    return p;
}

/* Large packets are kept: fresh memory costs a page fault every 4 KiB. */
static void packet_free(struct packet *p)
{
    if (p->size <= SMALL_PACKET) {
        free(p);
        return;
    }
    p->next = spare;
    spare = p;
}

static void fifo_put(struct fifo *f, struct packet *p)
{
    p->next = NULL;
    *f->end = p;
    f->end = &p->next;
}

static struct packet *fifo_take(struct fifo *f)
{
    struct packet *p = f->first;
    f->first = p->next;
    if (!f->first)
        f->end = &f->first;
    return p;
}

/* Bytes that pass over the wire for one packet or for those of a large TCP segment. */
static size_t wire_bytes(const struct packet *p)
{
    struct virtio_net_hdr h;
    memcpy(&h, p->data, sizeof h);
    const uint8_t *frame = p->data + sizeof h;
    size_t len = p->size - sizeof h;
    if (h.gso_type == VIRTIO_NET_HDR_GSO_NONE || !h.gso_size ||
        h.csum_start + (size_t)20 > len)
        return (len < ETHERNET_MIN ? ETHERNET_MIN : len) + ETHERNET_GAP;
    size_t headers = h.csum_start + (size_t)(frame[h.csum_start + 12] >> 4) * 4;
    size_t payload = len > headers ? len - headers : 0;
    size_t packets = (payload + h.gso_size - 1) / h.gso_size;
    return payload + packets * (headers + ETHERNET_GAP);
}

static int destination(const struct packet *p)
{
    static const uint8_t ours[5] = {2, 0, 0, 0, 0};
    const uint8_t *frame = p->data + sizeof(struct virtio_net_hdr);
    if (p->size < sizeof(struct virtio_net_hdr) + 14 || memcmp(frame, ours, 5) != 0)
        return -1;
    int to = frame[5] - 1;
    return to >= 0 && to < n_ports ? to : -1;
}

/* ---- the way of a packet
 * ---------------------------------------------------------------- */

/* Read from a host: its link is occupied, and then the delay passes. */
static void packet_comes(struct port *from, struct packet *p, int64_t now)
{
    p->to = destination(p);
    if (p->to < 0) {
        packet_free(p);
        return;
    }
    p->wire_ns = (int64_t)((double)wire_bytes(p) * ns_per_byte);
    int64_t first = (int64_t)(1538 * ns_per_byte);
    int64_t start = later(now, from->up_free);
    from->up_free = start + p->wire_ns;
    p->time = start + (p->wire_ns < first ? p->wire_ns : first) + delay_ns;
    fifo_put(&from->coming, p);
}

/* Begins to reach the link to its host: waits for it, or is lost when too much waits. */
static void packet_turns(struct packet *p)
{
    struct port *to = &ports[p->to];
    int64_t start = later(p->time, to->down_free);
    if (start - p->time > queue_ns) {
        packet_free(p);
        return;
    }
    to->down_free = start + p->wire_ns;
    p->time = to->down_free;
    fifo_put(&to->going, p);
}

/* Packets of different hosts reach a link in the order of their times. */
static void turn_due(int64_t now)
{
    for (;;) {
        struct port *next = NULL;
        for (int i = 0; i < n_ports; i++) {
            const struct packet *p = ports[i].coming.first;
            if (p && p->time <= now && (!next || p->time < next->coming.first->time))
                next = &ports[i];
        }
        if (!next)
            return;
        packet_turns(fifo_take(&next->coming));
    }
}

static void deliver_due(int64_t now)
{
    for (int i = 0; i < n_ports; i++)
        while (ports[i].going.first && ports[i].going.first->time <= now) {
            struct packet *p = fifo_take(&ports[i].going);
            /* A host whose device is down, or out of memory, loses packets as any does.
             */
            if (write(ports[i].fd, p->data, p->size) < 0 && errno == EBADFD)
                die("write to", "a TAP device");
            packet_free(p);
        }
}

/* When the next packet can be delivered at the earliest. */
static int64_t next_time(void)
{
    int64_t next = NEVER;
    for (int i = 0; i < n_ports; i++) {
        const struct packet *coming = ports[i].coming.first,
                            *going = ports[i].going.first;
        if (going && going->time < next)
            next = going->time;
        if (coming && coming->time + coming->wire_ns < next)
            next = coming->time + coming->wire_ns;
    }
    return next;
}

static void read_port(struct port *from, int64_t arrival)
{
    for (int i = 0; i < READS; i++) {
        struct packet *p = large_take();
        ssize_t n = read(from->fd, p->data, MAX_PACKET);
        p->size = n < 0 ? MAX_PACKET : (size_t)n;
        if (n < 0) {
            packet_free(p);
            return;
        }
        if (p->size <= SMALL_PACKET) {
            struct packet *small = packet_new(p->size);
            memcpy(small->data, p->data, p->size);
            small->size = p->size;
            p->next = spare;
            spare = p;
            p = small;
        }
        packet_comes(from, p, arrival);
    }
}

/* A sleeper wakes late, by tens of microseconds on a virtual machine. `lag_ns` follows
 * the median of what timers show of it. Timers are set earlier by as much, packets that
 * woke the sleeper are taken to have come earlier by as much, and what is due within half
 * of it is done at once: another sleep would end later than that. */
static void learn_lag(int64_t late)
{
    const int64_t step = 250, least = 1000, most = 100000;
    lag_ns += late > lag_ns ? step : -step;
    lag_ns = lag_ns < least ? least : lag_ns > most ? most : lag_ns;
}

/* Sleeps until there is something to read or deliver; returns when that came to be. */
static int64_t wait_for_work(struct pollfd *fds)
{
    int64_t next = next_time(), start = now_ns();
    int64_t rest = next == NEVER ? 0 : later(next - start - lag_ns, 1);
    struct timespec t = {rest / 1000000000, rest % 1000000000};
    int n = ppoll(fds, (nfds_t)n_ports, next == NEVER ? NULL : &t, NULL);
    int64_t now = now_ns();
    if (n == 0)
        learn_lag(now - start - rest);
    return later(start, now - lag_ns);
}

static _Noreturn void carry(void)
{
    struct pollfd fds[MAX_PORTS];
    for (int i = 0; i < n_ports; i++)
        fds[i] = (struct pollfd){.fd = ports[i].fd, .events = POLLIN};
    for (;;) {
        int64_t arrival = wait_for_work(fds);
        for (int i = 0; i < n_ports; i++)
            if (fds[i].revents)
                read_port(&ports[i], arrival);
        int64_t now = now_ns() + lag_ns / 2;
        turn_due(now);
        deliver_due(now);
    }
}

/* ---- set-up
 * ----------------------------------------------------------------------------- */

static void enter(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || setns(fd, CLONE_NEWNET) != 0)
        die("enter the namespace", path);
    close(fd);
}

static int open_tap(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "/run/netns/%s", name);
    enter(path);
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        die("open", "/dev/net/tun");
    struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR};
    strcpy(request.ifr_name, "eth0");
    if (ioctl(fd, TUNSETIFF, &request) != 0)
        die("make a TAP device in", name);
    if (ioctl(fd, TUNSETOFFLOAD, (unsigned long)(TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6)) !=
        0)
        die("turn on offloads in", name);
    return fd;
}

static void open_ports(char **names)
{
    int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    for (int i = 0; i < n_ports; i++) {
        ports[i].fd = open_tap(names[i]);
        ports[i].coming.end = &ports[i].coming.first;
        ports[i].going.end = &ports[i].going.first;
    }
    if (home < 0 || setns(home, CLONE_NEWNET) != 0)
        die("return to", "the first namespace");
    close(home);
}

/* The switch must not wait for the programs whose packets it carries. Where this is not
 * allowed it works, less precisely. */
static void become_urgent(void)
{
    struct sched_param urgent = {.sched_priority = 1};
    sched_setscheduler(0, SCHED_FIFO, &urgent);
    prctl(PR_SET_TIMERSLACK, 1UL);
}

int main(int argc, char **argv)
{
    if (argc < 5 || argc - 4 > MAX_PORTS) {
        fprintf(stderr, "usage: weft_switch RATE DELAY QUEUE NAMESPACE... (at most %d)\n",
                MAX_PORTS);
        return 2;
    }
    ns_per_byte = 8e9 / strtod(argv[1], NULL);
    delay_ns = strtoll(argv[2], NULL, 10);
    queue_ns = (int64_t)(strtod(argv[3], NULL) * ns_per_byte);
    n_ports = argc - 4;
    open_ports(argv + 4);
    become_urgent();
    puts("ready");
    fflush(stdout);
    carry();
}
