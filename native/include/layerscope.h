/* layerscope from C and C++: say what a program does, and when it is recorded. The functions are those of the Python
 * module `layerscope.profiler`; docs/c_interface.md has the whole page, layerscope.hpp classes for C++.
 *
 *     layerscope_set_state("run");
 *     for (int batch = 0; batch < batches; batch++) {
 *         layerscope_push("network", "forward");
 *         ...
 *         layerscope_pop();
 *         layerscope_step();
 *     }
 *     layerscope_dump(1);
 *
 * Link with -llayerscope. Under `layerscope run -- ./program` all goes into the recording that `run` makes, from the
 * start of the program on. Without it, nothing happens before layerscope_set_state("run"), which begins a recording
 * of the program's own: a folder NAME.layerscope that `layerscope table NAME` reads, made without Python.
 *
 * Every function may be called from any thread, prints nothing, and never ends the program. Those that return int
 * return 0, or -1 and layerscope_error() says why. Texts are UTF-8, of names the first 700 bytes count, of domains
 * the first 300; they are copied.
 *
 * With LAYERSCOPE_DISABLE defined before the first #include all functions are empty, and no library is needed. */
#ifndef LAYERSCOPE_PUBLIC_H
#define LAYERSCOPE_PUBLIC_H

#include <stdint.h>

#define LAYERSCOPE_VERSION "0.1.0"

/* A range that is open, until layerscope_range_end. To copy it is fine; all zero: none. */
typedef struct {
    uint64_t opaque[2];
} layerscope_range;

/* How far the line of a marker reaches in a trace. */
typedef enum {
    LAYERSCOPE_GLOBAL = 0,
    LAYERSCOPE_PROCESS = 1,
    LAYERSCOPE_THREAD = 2,
    LAYERSCOPE_TASK = 3,
    LAYERSCOPE_MARKER = 4
} layerscope_scope;

#ifdef __cplusplus
extern "C" {
#endif

#ifndef LAYERSCOPE_DISABLE

/* --- The recording ----------------------------------------------------------------------------------------------- */

/* The version of the library. */
const char *layerscope_version(void);

/* Why a call on this thread last returned -1; empty: none did. Valid until the next one. */
const char *layerscope_error(void);

/* The folder of the recording of the program's own; empty while there is none, and under `layerscope run`. Valid until
 * the next call on this thread. */
const char *layerscope_recording(void);

/* Set `n` keys to the texts `values`; keys left out get their defaults. The keys are those of the Python module, of
 * which `filename` gives the recording its folder and name ("out/mlp.json": out/mlp.layerscope), and `max_size`: what
 * a recording may take, "500MB" or so, "2GB" if left out. An unknown key or a wrong value changes nothing. */
int layerscope_set_config(int n, const char *const *keys, const char *const *values);

/* "run": record from now on; "stop": no longer. */
int layerscope_set_state(const char *state);

/* Record nothing until layerscope_resume. */
int layerscope_pause(void);
int layerscope_resume(void);

/* Write down everything recorded so far. `finished`: and complete the recording; a later "run" goes on in it. The end
 * of the program does the same. Under `layerscope run` the trace `filename` is written. */
int layerscope_dump(int finished);

/* --- What the program does ---------------------------------------------------------------------------------------- */

/* A task begins: a stretch of time called `name` in the domain `domain` (NULL: in none). It may end on another thread,
 * and cross others. */
layerscope_range layerscope_range_begin(const char *domain, const char *name);

/* The same for a frame, one of many alike: an iteration, a picture. */
layerscope_range layerscope_frame_begin(const char *domain, const char *name);

/* It is over. One that was not recorded, or is over, stays as it is. */
void layerscope_range_end(layerscope_range range);

/* A task begins, and ends with the layerscope_pop of the same thread that belongs to it. -1: there is none to pop. */
void layerscope_push(const char *domain, const char *name);
int layerscope_pop(void);

/* The counter `name` has this value now. */
void layerscope_counter(const char *domain, const char *name, int64_t value);

/* A moment worth a name. */
void layerscope_marker(const char *domain, const char *name, layerscope_scope scope);

/* A step of the program's loop ends here. */
void layerscope_step(void);

#else

static inline const char *layerscope_version(void) { return LAYERSCOPE_VERSION; }
static inline const char *layerscope_error(void) { return ""; }
static inline const char *layerscope_recording(void) { return ""; }
static inline int layerscope_set_config(int n, const char *const *keys, const char *const *values) {
    (void)n; (void)keys; (void)values; return 0;
}
static inline int layerscope_set_state(const char *state) { (void)state; return 0; }
static inline int layerscope_pause(void) { return 0; }
static inline int layerscope_resume(void) { return 0; }
static inline int layerscope_dump(int finished) { (void)finished; return 0; }
static inline layerscope_range layerscope_range_begin(const char *domain, const char *name) {
    layerscope_range none = {{0, 0}}; (void)domain; (void)name; return none;
}
static inline layerscope_range layerscope_frame_begin(const char *domain, const char *name) {
    layerscope_range none = {{0, 0}}; (void)domain; (void)name; return none;
}
static inline void layerscope_range_end(layerscope_range range) { (void)range; }
static inline void layerscope_push(const char *domain, const char *name) { (void)domain; (void)name; }
static inline int layerscope_pop(void) { return 0; }
static inline void layerscope_counter(const char *domain, const char *name, int64_t value) {
    (void)domain; (void)name; (void)value;
}
static inline void layerscope_marker(const char *domain, const char *name, layerscope_scope scope) {
    (void)domain; (void)name; (void)scope;
}
static inline void layerscope_step(void) {}

#endif

#ifdef __cplusplus
}
#endif

#endif
