/* Which Python a process has that has not told us: one without the agent. Its files say where the runtime lies
 * (_PyRuntime) and which version it is (Py_Version, since 3.11, as PY_VERSION_HEX), as native/agent/interpreter.c finds
 * them inside. */
#define _GNU_SOURCE
#include "outside_python.h"

#include "joined_stacks.h"
#include "output.h"
#include "procfs.h"
#include "recording.h"

#define FIRST_PATIENCE_NS 250000000ull
#define LONGEST_PATIENCE_NS 60000000000ull

static uint64_t word_at(const sm_process *p, uint64_t address) {
    int32_t pid = p->pid;
    uint64_t word = 0;
    return address && !sm_read_memory(&pid, address, &word, sizeof word) ? word : 0;
}

static void say_unread(const sm_process *p, const char *why) {
    sm_problem("python_not_read", p->pid, "functions of Python of that process",
               "run it with the release build of CPython 3.11 to 3.14", "process %d has a Python whose frames are "
               "not read: %s", p->pid, why);
}

/* Why the frames of this Python are not read; NULL: they are. */
static const char *refusal(const sm_process *p, uint64_t version, uint64_t runtime) {
    int32_t pid = p->pid;
    if (version && lu_space_symbol(p->space, "_Py_NegativeRefcount")) /* in builds that count all references */
        return "it is a debug build";
    return lu_python_refusal(version, runtime, sm_read_memory, &pid);
}

void sm_python_find(sm_process *p) {
    if (p->area || p->python || p->end_ns || sm.now_ns < p->outside.next_ns || !sm_space(p, 0))
        return;
    uint64_t waits_ns = p->outside.waits_ns ? 2 * p->outside.waits_ns : FIRST_PATIENCE_NS;
    p->outside.waits_ns = waits_ns < LONGEST_PATIENCE_NS ? waits_ns : LONGEST_PATIENCE_NS;
    p->outside.next_ns = sm.now_ns + p->outside.waits_ns;
    uint64_t runtime = lu_space_symbol(p->space, "_PyRuntime");
    if (!runtime)
        return;
    uint64_t version = word_at(p, lu_space_symbol(p->space, "Py_Version"));
    const char *why = refusal(p, version, runtime);
    p->python = why ? LF_PYTHON_UNKNOWN : (uint32_t)(version >> 16 & 0xff);
    p->is_told = 0;
    p->outside.refused = why;
    if (why) {
        say_unread(p, why);
        return;
    }
    p->python_runtime = runtime;
    p->python_eval = lu_space_symbol(p->space, "_PyEval_EvalFrameDefault");
    p->outside.is_read = 1;
    p->copied.is_read_later = 1; /* frames change meanwhile: soon after a sample */
}
