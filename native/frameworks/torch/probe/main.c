/* A process without Python that loads a libtorch_cpu.so and checks by values what the agent takes for
 * granted: that the callback's layout and calling convention are right, that names, scopes and contexts
 * arrive, and where a RecordFunction keeps its sequence number. Prints one line of JSON; a crash here is
 * the answer "refused". usage: layerscope-probe PATH/libtorch_cpu.so */
#define _GNU_SOURCE
#include "../record_function.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* std::variant<std::string_view, std::reference_wrapper<FunctionSchema>> holding a string view, as
 * libstdc++ lays it out: larger than 16 bytes, so passed in memory. */
typedef struct {
    size_t length;
    const char *text;
    uint64_t which;
} name_variant;

#define SENTINEL 0x1234567812345678
#define OBJECT_BYTES 4096
static const char NAME[] = "layerscope_probe";
static void *torch;
static const char *(*name_of)(const void *);
static bool (*is_async)(const void *);
static int started, ended, wrong, destroyed, sequence_offset = -1;

static void destroy(void *context) { (void)context; }
static void destroy_and_free(void *context) {
    destroyed++;
    free(context);
}
static void *const vtable[4] = {NULL, NULL, (void *)destroy, (void *)destroy_and_free};

static int find(const char *object, uint64_t value) {
    int found = -1;
    for (int i = 0; i + 8 <= 512; i += 8) {
        uint64_t word;
        memcpy(&word, object + i, 8);
        if (word == value)
            found = found < 0 ? i : -2; /* in two places: not known */
    }
    return found < 0 ? -1 : found;
}

static void **on_start(void **result, const void *f) {
    started++;
    wrong |= strcmp(name_of(f), NAME) != 0;
    wrong |= is_async(f) ? 2 : 0;
    sequence_offset = find(f, SENTINEL);
    void **context = malloc(sizeof(void *));
    *context = (void *)(vtable + 2);
    *result = context;
    return result;
}

static void on_end(const void *f, void *context) {
    (void)f;
    ended++;
    wrong |= !context || *(void **)context != (void *)(vtable + 2) ? 4 : 0;
}

static void **unexpected(void **result, const void *f) {
    (void)f;
    wrong |= 8; /* the scope filter is not where we think it is */
    *result = NULL;
    return result;
}

/* The version of oneDNN in this build, "none" where it has none; "" where it does not tell. The function returns a
 * std::string, whose first word points at its text in both of libstdc++'s layouts; it is never destroyed here. */
static const char *onednn(void) {
    static char version[32];
    char *object[8] = {NULL};
    void *(*tell)(void *) = NULL;
    if (torch)
        *(void **)&tell = dlsym(torch, "_ZN2at18get_mkldnn_versionB5cxx11Ev");
    if (torch && !tell)
        *(void **)&tell = dlsym(torch, "_ZN2at18get_mkldnn_versionEv");
    if (!tell)
        return "";
    tell(object);
    const char *text = object[0] ? strstr(object[0], " v") : NULL;
    if (!text)
        return object[0] && strstr(object[0], "not found") ? "none" : "";
    size_t length = strspn(text + 2, "0123456789.");
    memcpy(version, text + 2, length < sizeof version ? length : 0);
    return version;
}

static int answer(const char *state, const char *why) {
    printf("{\"state\": \"%s\", \"why\": \"%s\", \"sequence_offset\": %d, \"onednn\": \"%s\"}\n", state, why,
           sequence_offset, strcmp(state, "good") ? "" : onednn());
    fflush(stdout);
    _exit(0); /* the destructors of a half used libtorch are no business of ours */
}

/* Begin a RecordFunction called NAME. Newer builds of torch have one function for every sort of name, older ones one
 * for each sort. False: this build has neither. */
static bool begin(void *object) {
    void (*any)(void *, name_variant, int64_t) = NULL;
    void (*text)(void *, const char *, int64_t) = NULL;
    *(void **)&any = dlsym(torch, "_ZN2at14RecordFunction6beforeESt7variantIJSt17basic_string_viewIcSt11char_"
                                  "traitsIcEESt17reference_wrapperIKN3c1014FunctionSchemaEEEEl");
    *(void **)&text = dlsym(torch, "_ZN2at14RecordFunction6beforeEPKcl");
    if (any)
        any(object, (name_variant){strlen(NAME), NAME, 0}, SENTINEL);
    else if (text)
        text(object, NAME, SENTINEL);
    return any || text;
}

int main(int count, char **arguments) {
    torch = count > 1 ? dlopen(arguments[1], RTLD_LAZY) : NULL;
    if (!torch)
        return answer("refused", "the library does not load on its own");
    uint64_t (*add)(callback) = NULL;
    void (*construct)(void *, uint8_t) = NULL, (*destruct)(void *) = NULL;
    *(void **)&name_of = dlsym(torch, "_ZNK2at14RecordFunction4nameEv");
    *(void **)&is_async = dlsym(torch, "_ZNK2at14RecordFunction7isAsyncEv");
    *(void **)&add = dlsym(torch, "_ZN2at17addGlobalCallbackENS_22RecordFunctionCallbackE");
    *(void **)&construct = dlsym(torch, "_ZN2at14RecordFunctionC1ENS_11RecordScopeE");
    *(void **)&destruct = dlsym(torch, "_ZN2at14RecordFunctionD1Ev");
    if (!name_of || !is_async || !add)
        return answer("refused", "the library has no RecordFunction callbacks of the known kind");
    if (!construct || !destruct)
        return answer("refused", "the library has no RecordFunction that can be tried out");
    callback right = {.start = on_start, .end = on_end, .sampling_probability = 1.0};
    right.scopes[7] = true;
    callback other = {.start = unexpected, .end = on_end, .sampling_probability = 1.0};
    other.scopes[1] = true;
    add(right);
    add(other);
    char *object = calloc(1, OBJECT_BYTES);
    construct(object, 7);
    if (!begin(object))
        return answer("refused", "the library has no RecordFunction that can be tried out");
    destruct(object);
    if (started != 1 || ended != 1 || destroyed != 1 || wrong)
        return answer("refused", "its callbacks do not behave as expected");
    return answer("good", "");
}
