/* What thinning.c writes in a run of any length, in fast motion: threads on a CPU and waiting, with known sums.
 * usage: long_run HOURS MOST_BYTES CPU_PER_SECOND WAITS_PER_SECOND. Prints one line of JSON.
 *
 * Stack 1 has 70 % of the CPU time and 2 the rest; of the waits stack 3 has many short ones and 4 few long ones, with
 * the same system call and the same sum. One thread sleeps all the time, which is told in parts of a second. */
#define _GNU_SOURCE
#include "sampler/output.h"
#include "sampler/recording.h"
#include "sampler/thinning.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

sm_recording sm;
static sm_process process;
static sm_thread works, waits, sleeps;
static lt_sample rows[1 << 16];
static uint32_t used;
static uint64_t written_bytes, most_bytes, written, sums[8], counts, largest_gap_ns, exact_ns;

sm_process *sm_processes(void) { return &process; }

uint64_t sm_rows_written(void) { return written_bytes; }

uint64_t sm_rows_most(void) { return most_bytes; }

void *sm_row(uint16_t kind, size_t bytes) {
    if (kind != LT_SAMPLES || used == sizeof rows / sizeof *rows)
        abort();
    written_bytes += bytes;
    return &rows[used++];
}

static void take_rows(uint64_t until_ns) {
    for (uint32_t i = 0; i < used; i++) {
        const lt_sample *r = &rows[i];
        sums[r->stack] += r->weight_ns;
        counts += r->stack == 4 || r->stack == 3 ? r->count : 0;
        written++;
        if (r->stack != 5 && r->at_ns + largest_gap_ns < until_ns)
            largest_gap_ns = until_ns - r->at_ns;
        exact_ns += r->stack == 5 && r->flags & LT_EXACT ? r->weight_ns : 0;
    }
    used = 0;
}

static void tell(sm_thread *t, uint32_t stack, uint64_t at_ns, uint64_t ns, uint32_t kind, uint32_t flags) {
    lt_sample row = {.at_ns = at_ns, .thread = t->number, .stack = stack, .weight_ns = ns, .kind = kind,
                     .flags = flags, .count = 1, .system_call = kind == LT_CPU ? -2 : 202};
    sm_tell(t, &row);
}

int main(int count, char **words) {
    if (count != 5)
        return 2;
    uint64_t seconds = (uint64_t)(atof(words[1]) * 3600), cpu = strtoull(words[3], NULL, 10);
    uint64_t others = strtoull(words[4], NULL, 10), second = 1000000000ull, told_ns = 0;
    process.threads = &works, works.next = &waits, waits.next = &sleeps;
    sleeps.number = 2, waits.number = 1;
    sm.start_ns = sm.now_ns = second;
    most_bytes = strtoull(words[2], NULL, 10);
    for (uint64_t s = 1; s <= seconds; s++) {
        sm.now_ns = s * second;
        for (uint64_t i = 0; i < cpu; i++)
            tell(&works, i % 10 < 7 ? 1 : 2, sm.now_ns + i * second / cpu, second / cpu, LT_CPU, 0);
        for (uint64_t i = 0; i < others; i++)
            tell(&waits, 3, sm.now_ns + i * second / others, 1000000, LT_OFFCPU, LT_EXACT);
        if (others)
            tell(&waits, 4, sm.now_ns + second / 2, 1000000 * others, LT_OFFCPU, LT_EXACT);
        tell(&sleeps, 5, sm.now_ns, second, LT_OFFCPU, LT_EXACT | (s < seconds ? LT_UNFINISHED : 0));
        sm.now_ns += second;
        sm_thinning_each_second();
        take_rows(told_ns);
        uint64_t until = sm_held_oldest();
        told_ns = until > told_ns ? until : told_ns;
    }
    for (sm_thread *t = &works; t; t = t->next)
        sm_tell_held(t);
    take_rows(0);
    printf("{\"rows\": %" PRIu64 ", \"bytes\": %" PRIu64 ", \"level\": %u, \"cpu_ns\": [%" PRIu64 ", %" PRIu64
           "], \"wait_ns\": [%" PRIu64 ", %" PRIu64 "], \"sleep_ns\": %" PRIu64 ", \"exact_ns\": %" PRIu64
           ", \"waits\": %" PRIu64 ", \"late_ns\": %" PRIu64 "}\n", written, written * sizeof(lt_sample),
           sm_thinning_level(), sums[1], sums[2], sums[3], sums[4], sums[5], exact_ns, counts, largest_gap_ns);
    return 0;
}
