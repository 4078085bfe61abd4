/* More reasons than there are places for: what is written has the sums of what was told, of each kind. */
#include "sampler/thinning.c"

#include <stdio.h>
#include <string.h>

sm_recording sm;
static uint64_t written[3];
static lt_sample row;

static uint64_t sum_of(const lt_sample *s) { return s->kind == LT_FAULT ? s->count : s->weight_ns; }

static void take(void) {
    if (row.thread)
        written[row.kind] += sum_of(&row);
    memset(&row, 0, sizeof row);
}
void *sm_row(uint16_t kind, size_t bytes) {
    (void)kind, (void)bytes;
    take();
    return &row;
}
sm_process *sm_processes(void) { return NULL; }
uint64_t sm_rows_written(void) { return 0; }
uint64_t sm_rows_most(void) { return 0; }

int main(void) {
    static const int32_t calls[] = {0, 7, 202, 230, 232, 1, 47};
    uint64_t told[3] = {0};
    sm_thread thread = {0};
    level = 4;
    for (int32_t i = 0; i < 4000; i++) {
        lt_sample samples[] = {
            {.kind = LT_OFFCPU, .system_call = calls[i % 7], .weight_ns = 50000000, .count = 1},
            {.kind = LT_CPU, .system_call = -2, .weight_ns = i % 3 ? 0 : 10000000, .count = 1},
            {.kind = LT_FAULT, .system_call = -2, .count = 509},
        };
        for (int k = 0; k < 3; k++) {
            samples[k].thread = 1;
            told[samples[k].kind] += sum_of(&samples[k]);
            sm_tell(&thread, &samples[k]);
        }
    }
    sm_tell_held(&thread);
    take();
    for (int kind = 0; kind < 3; kind++)
        printf("%s%lu, %lu", kind ? ", " : "[", (unsigned long)told[kind], (unsigned long)written[kind]);
    printf("]\n");
    return 0;
}
