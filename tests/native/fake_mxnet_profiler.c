/* The functions of MXNet's profiler in a stand-in for libmxnet.so (fake_mxnet.c). A name that begins with `bad` is
 * refused, and what is destroyed is given out again. */
#include <stdint.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default"), noipa))

static char objects[8];
static int given_out[8];

static int make(const char *name, void **out) {
    if (!strncmp(name, "bad", 3))
        return -1;
    for (int i = 0; i < 8; i++) {
        if (given_out[i])
            continue;
        given_out[i] = 1;
        *out = &objects[i];
        return 0;
    }
    return -1;
}

EXPORT int MXProfileCreateDomain(const char *name, void **out) { return make(name, out); }
EXPORT int MXProfileCreateTask(void *domain, const char *name, void **out) { return make(domain ? name : "bad", out); }
EXPORT int MXProfileCreateFrame(void *domain, const char *name, void **out) { return make(domain ? name : "bad", out); }
EXPORT int MXProfileCreateEvent(const char *name, void **out) { return make(name, out); }
EXPORT int MXProfileCreateCounter(void *domain, const char *name, void **out) {
    return make(domain ? name : "bad", out);
}
EXPORT int MXProfileDestroyHandle(void *object) {
    given_out[(char *)object - objects] = 0;
    return 0;
}
EXPORT int MXProfileDurationStart(void *object) { return object ? 0 : -1; }
EXPORT int MXProfileDurationStop(void *object) { return object ? 0 : -1; }
EXPORT int MXProfileSetCounter(void *counter, uint64_t value) { return counter && value < 1000 ? 0 : -1; }
EXPORT int MXProfileAdjustCounter(void *counter, int64_t delta) { return counter && delta < 1000 ? 0 : -1; }
EXPORT int MXProfileSetMarker(void *domain, const char *name, const char *scope) {
    return domain && scope ? !strncmp(name, "bad", 3) * -1 : -1;
}
EXPORT int MXSetProcessProfilerState(int state, int process, void *store) {
    (void)process, (void)store;
    return state < 2 ? 0 : -1;
}
/* As in MXNet, the old name calls the new one. */
EXPORT int MXSetProfilerState(int state) { return MXSetProcessProfilerState(state, 0, NULL); }
EXPORT int MXProcessProfilePause(int is_paused, int process, void *store) {
    (void)process, (void)store;
    return is_paused < 2 ? 0 : -1;
}
EXPORT int MXProfilePause(int is_paused) { return MXProcessProfilePause(is_paused, 0, NULL); }
EXPORT int MXDumpProcessProfile(int is_finished, int process, void *store) {
    (void)process, (void)store;
    return is_finished < 2 ? 0 : -1;
}
EXPORT int MXDumpProfile(int is_finished) { return MXDumpProcessProfile(is_finished, 0, NULL); }
