/* Waits for a message of the session or for a ring that fills up. The drainer looks often, and mostly nothing is to be
 * done: so this much of it is not in Python. */
#define _GNU_SOURCE
#include "draining.h"

#include <poll.h>
#include <time.h>

/* A ring holds 97,792 records: at 1.2 M operators a second, the most one thread was seen to make, 81 ms. Beside busy
 * cores a look may come that much late. */
#define POLL_MS 10
/* Where no ring got more than a twentieth of its room since the last look. */
#define QUIET_POLL_MS 40
#define QUIET_PART 20
/* A ring is emptied when it is a quarter full: fewer, larger chunks compress better. */
#define FULL_PART 4

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* How long to wait for the next look, by what was published since the last one. */
static int32_t next_poll_ms(ld_ring *rings, int64_t count) {
    int32_t poll_ms = QUIET_POLL_MS;
    for (int64_t i = 0; i < count; i++) {
        uint64_t published = __atomic_load_n(&rings[i].ring->h.published, __ATOMIC_ACQUIRE);
        if (published - rings[i].seen >= rings[i].capacity / QUIET_PART)
            poll_ms = POLL_MS;
        rings[i].seen = published;
    }
    return poll_ms;
}

static int is_full(const ld_ring *ring) {
    const lf_ring_header *h = &ring->ring->h;
    uint64_t waiting = __atomic_load_n(&h->published, __ATOMIC_ACQUIRE) - h->consumed;
    return waiting >= ring->capacity / FULL_PART;
}

static int is_any_full(const ld_ring *rings, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        if (is_full(&rings[i]))
            return 1;
    return 0;
}

/* Until there is something on `socket` (-1: none), or a ring is a quarter full, or it is `until_ns` of CLOCK_MONOTONIC.
 * It waits at least for one look, and keeps how long that is to be in `poll_ms`. 1: there is something on the socket.
 * Linux wakes a process up to 50 us late, and not before its time. */
LD_API int32_t ld_wait(int32_t socket, ld_ring *rings, int64_t count, int64_t until_ns, int32_t *poll_ms) {
    struct pollfd session = {.fd = socket, .events = POLLIN};
    for (;;) {
        int64_t left_ms = (until_ns - (int64_t)now_ns()) / 1000000 + 1;
        int32_t wait_ms = left_ms > 0 && left_ms < *poll_ms ? (int32_t)left_ms : *poll_ms;
        int came = poll(&session, 1, wait_ms);
        *poll_ms = next_poll_ms(rings, count);
        if (came > 0)
            return 1;
        if (is_any_full(rings, count) || (int64_t)now_ns() >= until_ns)
            return 0;
    }
}
