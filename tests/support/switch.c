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
    MAX_PACKET = (1 << 16) + 256, /* with its virtio_net_hdr */
    SMALL_PACKET = 4096,
    READS = 16, /* from one port in a row */
    ETHERNET_MIN = 60,
    ETHERNET_GAP = 24, /* preamble, checksum, pause */
    ETHERNET_FULL = 1514 + ETHERNET_GAP,
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

/* ---- packets --------------------------------------------------------------------- */

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
static void large_return(struct packet *p)
{
    p->next = spare;
    spare = p;
}

static void packet_free(struct packet *p)
{
    if (p->size <= SMALL_PACKET)
        free(p);
    else
        large_return(p);
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

/* What a packet looks like on a wire: a large TCP segment (TSO) passes as several. */
struct shape {
    size_t headers, payload, each; /* bytes; `each` of payload in a packet but the last */
};

static struct shape packet_shape(const struct packet *p)
{
    struct virtio_net_hdr h;
    memcpy(&h, p->data, sizeof h);
    size_t len = p->size - sizeof h, tcp = h.csum_start;
    if (h.gso_type == VIRTIO_NET_HDR_GSO_NONE || !h.gso_size || tcp < 34 ||
        tcp + 20 > len)
        return (struct shape){len, 0, 1};
    size_t headers = tcp + (size_t)(p->data[sizeof h + tcp + 12] >> 4) * 4;
    if (headers > len)
        return (struct shape){len, 0, 1};
    return (struct shape){headers, len - headers, h.gso_size};
}

static size_t wire_bytes(const struct packet *p)
{
    struct shape s = packet_shape(p);
    size_t packets = (s.payload + s.each - 1) / s.each;
    if (packets <= 1) {
        size_t len = s.headers + s.payload;
        return (len < ETHERNET_MIN ? ETHERNET_MIN : len) + ETHERNET_GAP;
    }
    return s.payload + packets * (s.headers + ETHERNET_GAP);
}

static int64_t wire_time(size_t bytes)
{
    return (int64_t)((double)bytes * ns_per_byte);
}

static uint16_t load16(const uint8_t *at)
{
    return (uint16_t)(at[0] << 8 | at[1]);
}

static void store16(uint8_t *at, uint32_t value)
{
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

/* The one's complement sum in which `was` has become `is`. */
static uint32_t sum_changed(uint32_t sum, uint16_t was, uint16_t is)
{
    sum += (uint16_t)~was + (uint32_t)is;
    sum = (sum & 0xffff) + (sum >> 16);
    return (sum & 0xffff) + (sum >> 16);
}

/* Keeps the first `packets` packets of a large segment over IPv4; the others are lost. */
static void cut_segment(struct packet *p, size_t packets)
{
    enum { LENGTH = 2, IP_CHECK = 10, FLAGS = 13, TCP_CHECK = 16, FIN_PSH = 0x09 };
    struct virtio_net_hdr h;
    memcpy(&h, p->data, sizeof h);
    struct shape s = packet_shape(p);
    uint8_t *ip = p->data + sizeof h + 14, *tcp = p->data + sizeof h + h.csum_start;
    uint16_t was = load16(ip + LENGTH);
    uint16_t is = (uint16_t)(was - (s.payload - packets * s.each));
    uint32_t sum = sum_changed((uint16_t)~load16(ip + IP_CHECK), was, is);
    store16(ip + LENGTH, is);
    store16(ip + IP_CHECK, ~sum);
    /* The kernel has left the sum of the pseudo header here, the length in it. */
    store16(tcp + TCP_CHECK, sum_changed(load16(tcp + TCP_CHECK), was, is));
    tcp[FLAGS] &= (uint8_t)~FIN_PSH; /* of the last packet */
    p->size = sizeof h + s.headers + packets * s.each;
    h.hdr_len = (uint16_t)s.headers;
    memcpy(p->data, &h, sizeof h);
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

/* ---- the way of a packet --------------------------------------------------------- */

/* Read from a host: its link is occupied, and then the delay passes. */
static void packet_comes(struct port *from, struct packet *p, int64_t now)
{
    p->to = destination(p);
    if (p->to < 0) {
        packet_free(p);
        return;
    }
    p->wire_ns = wire_time(wire_bytes(p));
    int64_t first = wire_time(ETHERNET_FULL);
    int64_t start = later(now, from->up_free);
    from->up_free = start + p->wire_ns;
    p->time = start + (p->wire_ns < first ? p->wire_ns : first) + delay_ns;
    fifo_put(&from->coming, p);
}

/* Whether the queue has room for the packet, or for a part of it, which then remains. */
static bool fits(struct packet *p, int64_t room_ns)
{
    if (room_ns >= p->wire_ns)
        return true;
    struct shape s = packet_shape(p);
    size_t one = s.headers + s.each + ETHERNET_GAP;
    size_t packets = room_ns > 0 ? (size_t)((double)room_ns / ns_per_byte) / one : 0;
    if (packets == 0 || s.payload <= s.each * packets)
        return false;
    cut_segment(p, packets);
    p->wire_ns = wire_time(wire_bytes(p));
    return true;
}

/* Begins to reach the link to its host: waits for it, or is lost when too much waits. */
static void packet_turns(struct packet *p)
{
    struct port *to = &ports[p->to];
    int64_t start = later(p->time, to->down_free);
    if (!fits(p, queue_ns - (start - p->time))) {
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

static void deliver(struct port *to)
{
    struct packet *p = fifo_take(&to->going);
    /* A host whose device is down, or out of memory, loses packets as any does. */
    if (write(to->fd, p->data, p->size) < 0 && errno == EBADFD)
        die("write to", "a TAP device");
    packet_free(p);
}

/* How much before its time a packet is delivered when the switch is awake anyway: in a
 * stream this saves half of the timers. The last packet of a stream comes on time. */
static int64_t earliness(const struct packet *p)
{
    const int64_t most = 100000, part = p->wire_ns / 8;
    return lag_ns + (part < most ? part : most);
}

static void deliver_due(int64_t now)
{
    for (int i = 0; i < n_ports; i++) {
        const struct packet *p = ports[i].going.first;
        for (; p && p->time - earliness(p) <= now; p = ports[i].going.first)
            deliver(&ports[i]);
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

/* A small packet moves into memory of its own size, and the large one is spare again. */
static struct packet *shrink(struct packet *large)
{
    if (large->size > SMALL_PACKET)
        return large;
    struct packet *p = packet_new(large->size);
    p->size = large->size;
    memcpy(p->data, large->data, large->size);
    large_return(large);
    return p;
}

static void read_port(struct port *from, int64_t arrival)
{
    for (int i = 0; i < READS; i++) {
        struct packet *p = large_take();
        ssize_t n = read(from->fd, p->data, MAX_PACKET);
        if (n < 0) {
            if (errno != EAGAIN && errno != EINTR)
                die("read from", "a TAP device");
            large_return(p);
            return;
        }
        p->size = (size_t)n;
        packet_comes(from, shrink(p), arrival);
    }
}

/* A sleeper wakes late, by tens of microseconds on a virtual machine, and the interrupt
 * of a timer takes as much of the processor. `lag_ns` follows the median of what timers
 * show of it. Timers are set earlier by as much, packets that woke the sleeper are taken
 * to have come earlier by as much, and what is due within it is done at once. */
static void learn_lag(int64_t late)
{
    const int64_t step = 250, most = 100000;
    lag_ns += late > lag_ns ? step : -step;
    lag_ns = lag_ns < 0 ? 0 : lag_ns > most ? most : lag_ns;
}

/* Sleeps until there is something to read or deliver; returns when that came to be. */
static int64_t wait_for_work(struct pollfd *fds)
{
    int64_t next = next_time(), start = now_ns();
    int64_t rest = next == NEVER ? 0 : later(next - start - lag_ns, 0);
    struct timespec t = {rest / 1000000000, rest % 1000000000};
    int n = ppoll(fds, (nfds_t)n_ports, next == NEVER ? NULL : &t, NULL);
    int64_t now = now_ns();
    if (n == 0 && rest > 0)
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
        int64_t now = now_ns();
        turn_due(now + lag_ns);
        deliver_due(now);
    }
}

/* ---- set-up ---------------------------------------------------------------------- */

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
    if (ioctl(fd, TUNSETOFFLOAD, (unsigned long)(TUN_F_CSUM | TUN_F_TSO4)) != 0)
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
