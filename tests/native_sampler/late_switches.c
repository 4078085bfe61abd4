/* Switches that are told in another order than they happened: the rings of the CPUs are read one after the other. */
#include "sampler/waits.c"

#include <stdio.h>

#define MS 1000000ull

sm_recording sm;
static uint64_t waited_ns;

uint32_t sm_waker_of(const sm_thread *t, uint64_t from_ns, uint64_t until_ns) {
    return (void)t, (void)from_ns, (void)until_ns, LT_NONE;
}
lt_sample sm_sample(const sm_thread *t, uint64_t at_ns, uint32_t kind, uint64_t weight_ns) {
    return (void)t, (lt_sample){.at_ns = at_ns, .kind = kind, .weight_ns = weight_ns};
}
void sm_tell(sm_thread *t, const lt_sample *row) {
    (void)t;
    waited_ns += row->weight_ns;
}
sm_process *sm_processes(void) { return NULL; }
int sm_look_at(sm_thread *t, sm_look *look) { return (void)t, (void)look, SM_NOT_LOOKED; }
const char *sm_stat(char *into, size_t room, int32_t pid, int32_t tid) {
    (void)into, (void)room, (void)pid, (void)tid;
    return NULL;
}
uint64_t sm_ran_ns(int32_t pid, int32_t tid, uint64_t *delay_ns, uint64_t *dispatches) {
    return (void)pid, (void)tid, *delay_ns = *dispatches = 0;
}
void sm_problem(const char *code, int32_t pid, const char *lost, const char *remedy, const char *format, ...) {
    (void)code, (void)pid, (void)lost, (void)remedy, (void)format;
}

int main(void) {
    sm_process process = {.is_sampled = 1};
    sm_thread thread = {.process = &process};
    static const struct {
        uint64_t at_ms;
        uint32_t cpu;
        int is_out;
    } told[] = {{1000, 0, 0}, {6010, 1, 0}, {6020, 1, 1}, {6000, 0, 1}, {6000, 0, 1}, {66020, 1, 0}, {66120, 1, 1},
                {66140, 1, 0}, {66130, 0, 0}, {66135, 0, 1}, {66200, 1, 1}};
    for (unsigned i = 0; i < sizeof told / sizeof *told; i++)
        sm_switched(&thread, told[i].at_ms * MS, told[i].cpu, told[i].is_out, 0);
    tell_pool(&thread, &thread.wait.shorts, 0);
    printf("{\"ran_ms\": %lu, \"waited_ms\": %lu, \"out_ms\": %lu}\n", (unsigned long)(thread.time.ran_ns / MS),
           (unsigned long)(waited_ns / MS), (unsigned long)(thread.wait.out_ns / MS));
    return 0;
}
