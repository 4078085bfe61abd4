/* Spans that a program ends by an id, on whatever thread: overlapped tasks, frames and events of ITT, start and end of
 * NVTX. A table of fixed size, whose pages a forked child finds empty: it ends nothing that its parent began. */
#define _GNU_SOURCE
#include "client.h"

#include <string.h>

#define CHAINS 1024u
#define IN_A_CHAIN 8u

typedef struct {
    ls_id id;
    uint64_t handle[2]; /* as of ls_range_begin; 0: free */
    uint64_t order;
} entry;

typedef struct {
    uint64_t orders;
    entry entries[CHAINS][IN_A_CHAIN];
} table;

static _Atomic(table *) current;

static table *new_table(void) {
    table *t = ls_wiped_memory(sizeof *t);
    if (t)
        atomic_store(&current, t);
    return t;
}

static entry *chain_of(table *t, const ls_id *id) {
    uint64_t hash = id->words[0] * 0x9e3779b97f4a7c15u ^ id->words[1] * 0xff51afd7ed558ccdu;
    hash = (hash ^ id->words[2] ^ id->words[3] << 32) * 0xc4ceb9fe1a85ec53u;
    return t->entries[(hash >> 40) % CHAINS];
}

/* Remember that `c` has this id. Of two with one id, the newer one is ended first. Without room it stays open. */
void ls_carry(const ls_id *id, const ls_context *c) {
    ls_lock(&ls.wiped->async_lock);
    table *t = atomic_load(&current);
    if (!t)
        t = new_table();
    entry *chain = t ? chain_of(t, id) : NULL, *vacant = NULL;
    for (uint32_t i = 0; chain && i < IN_A_CHAIN; i++)
        if (!chain[i].handle[0])
            vacant = &chain[i];
    if (vacant)
        *vacant = (entry){*id, {(uint64_t)(uintptr_t)c, c->serial}, ++t->orders};
    ls_unlock(&ls.wiped->async_lock);
}

/* The span with this id, which is forgotten. 0: there is none. */
int ls_async_take(const ls_id *id, uint64_t handle[2]) {
    entry *found = NULL;
    ls_lock(&ls.wiped->async_lock);
    table *t = atomic_load(&current);
    entry *chain = t ? chain_of(t, id) : NULL;
    for (uint32_t i = 0; chain && i < IN_A_CHAIN; i++)
        if (chain[i].handle[0] && !memcmp(&chain[i].id, id, sizeof *id) && (!found || chain[i].order > found->order))
            found = &chain[i];
    if (found) {
        memcpy(handle, found->handle, sizeof found->handle);
        found->handle[0] = 0;
    }
    ls_unlock(&ls.wiped->async_lock);
    return found != NULL;
}
