/* CPU time of threads: what their switches say, what the system does, and that of which no sample is. */
#define _GNU_SOURCE
#include "cpu_time.h"

#include "kernel_time.h"
#include "recording.h"
#include "thinning.h"

#include <unistd.h>

/* What the switches of the thread say, until a time behind the last of them. */
uint64_t sm_switched_ns(const sm_thread *t, uint64_t at_ns) {
    return t->time.ran_ns + (t->wait.in_ns && !t->wait.out_ns && at_ns > t->wait.in_ns ? at_ns - t->wait.in_ns : 0);
}

/* It has used so much CPU time until now, as the system says, which may be a tick of its clock late. From now on its
 * switches tell all of it, if it is known whether it is on a CPU. */
void sm_count_from(sm_thread *t, uint64_t all_ns) {
    if (!t->process->is_followed || (!t->wait.in_ns && !t->wait.out_ns))
        return;
    uint64_t switched_ns = sm_switched_ns(t, sm.now_ns);
    t->time.copied_ns = all_ns > t->time.before_ns + switched_ns ? all_ns - switched_ns : t->time.before_ns;
    t->time.is_counted = 1;
}

/* CPU time of the thread at that time, which lies behind the last of its switches. */
uint64_t sm_cpu_ns_at(const sm_thread *t, uint64_t at_ns) {
    return t->time.copied_ns + sm_switched_ns(t, at_ns);
}

/* CPU time of the thread that its samples have to add up to; of one that has ended, all of it. */
uint64_t sm_cpu_ns(const sm_thread *t) {
    uint64_t counted = 0;
    if (t->time.is_counted)
        return t->time.copied_ns + t->time.ran_ns;
    if (t->events[SM_CPU] >= 0 && read(t->events[SM_CPU], &counted, sizeof counted) == sizeof counted)
        return t->time.base_ns + counted;
    return t->account.row.run_ns;
}

/* What a thread that has ended used after its last sample was most likely there, if it is what lies between two. */
static uint32_t stack_of_rest(const sm_thread *t, uint64_t rest_ns) {
    int is_part_of_period = t->end_ns && t->sampled.last_ns && 2 * rest_ns < 3 * sm.period_ns;
    return is_part_of_period ? t->sampled.last_stack : LT_NONE;
}

/* CPU time up to `cpu_ns` that no sample stands for has no stack. */
void sm_rest(sm_thread *t, uint64_t at_ns, uint64_t cpu_ns) {
    int is_base = !t->time.has_base && !t->since_birth;
    t->time.has_base = 1;
    sm_kernel_rest(t, at_ns, cpu_ns);
    if (cpu_ns <= t->time.told_ns)
        return;
    lt_sample row = sm_sample(t, at_ns, LT_CPU, cpu_ns - t->time.told_ns);
    row.flags = is_base ? LT_BEFORE : 0;
    row.stack = stack_of_rest(t, row.weight_ns);
    sm_tell(t, &row);
    t->time.told_ns = cpu_ns;
}
