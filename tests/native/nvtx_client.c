/* A program that is annotated with NVTX, by NVIDIA's own header. Linked with the agent itself (for sanitizers) it has
 * no other injection.
 *
 * usage: nvtx_client SCENARIO [NUMBERS...]     what each scenario records is known by its test */
#define _GNU_SOURCE
#include <nvtx3/nvToolsExt.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifdef WITH_THE_AGENT
int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t table);
NvtxInitializeInjectionNvtxFunc_t InitializeInjectionNvtx2_fnptr = InitializeInjectionNvtx2;
#endif

static unsigned long long numbers[4];

static nvtxEventAttributes_t called(const char *name) {
    nvtxEventAttributes_t a = {.version = NVTX_VERSION, .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE};
    a.messageType = NVTX_MESSAGE_TYPE_ASCII;
    a.message.ascii = name;
    return a;
}

static void ranges(void) {
    nvtxDomainHandle_t mine = nvtxDomainCreateA("mine");
    nvtxRangePushA("outer");
    nvtxEventAttributes_t a = called("in a domain");
    nvtxDomainRangePushEx(mine, &a);
    nvtxRangePop(); /* outer: each domain has a stack of its own */
    nvtxRangePushW(L"gr\x00f6\x00df" L"e \x4e2d \x1f600");
    nvtxRangePop();
    nvtxDomainRangePop(mine);
    nvtxDomainRangePop(mine); /* one too many */
    a.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    a.message.registered = nvtxDomainRegisterStringA(mine, "registered");
    for (int i = 0; i < 2; i++) {
        nvtxDomainRangePushEx(mine, &a);
        nvtxDomainRangePop(mine);
    }
    a = called("empty");
    a.messageType = NVTX_MESSAGE_UNKNOWN;
    nvtxRangePushEx(&a);
    nvtxRangePop();
    nvtxRangePushEx(NULL);
    nvtxRangePop();
    nvtxRangePop();
    nvtxMarkA("a mark");
    a = called("a mark of mine");
    nvtxDomainMarkEx(mine, &a);
    nvtxNameOsThreadA((uint32_t)syscall(SYS_gettid), "the one thread");
    nvtxDomainDestroy(mine);
    nvtxRangePushA("unfinished");
}

static void arguments(void) {
    nvtxDomainHandle_t mine = nvtxDomainCreateA("mine");
    nvtxNameCategoryA(1, "work \"quoted\"");
    nvtxDomainNameCategoryW(mine, 1, L"other");
    nvtxEventAttributes_t a = called("colour");
    a.colorType = NVTX_COLOR_ARGB;
    a.color = 0xff00ff80;
    nvtxRangePushEx(&a), nvtxRangePop();
    a = called("categories");
    a.category = 1;
    nvtxRangePushEx(&a), nvtxRangePop();
    nvtxDomainRangePushEx(mine, &a), nvtxDomainRangePop(mine);
    a.category = 2;
    nvtxRangePushEx(&a), nvtxRangePop();
    a = called("payloads");
    a.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64, a.payload.ullValue = UINT64_MAX;
    nvtxRangePushEx(&a), nvtxRangePop();
    a.payloadType = NVTX_PAYLOAD_TYPE_INT64, a.payload.llValue = -5;
    nvtxRangePushEx(&a), nvtxRangePop();
    a.payloadType = NVTX_PAYLOAD_TYPE_DOUBLE, a.payload.dValue = 0.25;
    nvtxRangePushEx(&a), nvtxRangePop();
    a.payloadType = NVTX_PAYLOAD_TYPE_INT32, a.payload.iValue = -6;
    nvtxRangePushEx(&a), nvtxRangePop();
    a.payloadType = NVTX_PAYLOAD_TYPE_FLOAT, a.payload.fValue = 0.1f;
    nvtxRangePushEx(&a), nvtxRangePop();
    a.payloadType = 0x7fff0001; /* of a newer header */
    nvtxRangePushEx(&a), nvtxRangePop();
}

static void *end_it(void *id) {
    nvtxRangeEnd(*(nvtxRangeId_t *)id);
    return NULL;
}

static void carried(void) {
    nvtxDomainHandle_t mine = nvtxDomainCreateA("mine");
    nvtxEventAttributes_t a = called("second");
    nvtxRangeId_t first = nvtxRangeStartA("first"), second = nvtxDomainRangeStartEx(mine, &a);
    nvtxRangeEnd(first);
    nvtxRangeEnd(first); /* is over */
    pid_t child = fork();
    if (!child) {
        nvtxRangeEnd(second);
        nvtxRangePushA("of the child");
        nvtxRangePop();
        _exit(0);
    }
    waitpid(child, NULL, 0);
    pthread_t thread;
    pthread_create(&thread, NULL, end_it, &second);
    pthread_join(thread, NULL);
    nvtxRangeEnd(987654321);
    printf("%d\n", (int)child);
}

/* Each begins before the one before it ends, on and on. */
static void pipeline(void) {
    nvtxRangeId_t last = nvtxRangeStartA("one");
    for (unsigned long long i = 0; i < numbers[0]; i++) {
        nvtxRangeId_t next = nvtxRangeStartA("one");
        nvtxRangePushA("inside"), nvtxRangePop();
        nvtxRangeEnd(last);
        last = next;
    }
    nvtxRangeEnd(last);
    nvtxRangePushA("after"), nvtxRangePop();
}

static void *die(void *unused) {
    (void)unused;
    nvtxRangePushA("dies inside");
    return NULL;
}

static void deaths(void) {
    for (unsigned long long i = 0; i < numbers[0]; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, die, NULL);
        pthread_join(thread, NULL);
    }
}

static void names(void) {
    char *megabytes = malloc(3 << 20);
    memset(megabytes, 'm', 3 << 20);
    megabytes[(3 << 20) - 1] = 0;
    nvtxRangePushA(megabytes), nvtxRangePop();
    nvtxDomainRegisterStringA(NULL, megabytes);
    nvtxRangePushA("\xff\xfe bytes"), nvtxRangePop();
    nvtxRangePushA("two\nlines"), nvtxRangePop();
    for (unsigned long long i = 0; i < numbers[0]; i++) {
        char name[32];
        snprintf(name, sizeof name, "unique %llu", i);
        nvtxEventAttributes_t a = called(name);
        a.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64, a.payload.ullValue = i;
        nvtxRangePushEx(&a), nvtxRangePop();
    }
    free(megabytes);
}

static void cost(void) {
    nvtxDomainHandle_t mine = nvtxDomainCreateA("mine");
    nvtxEventAttributes_t a = called("registered");
    a.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    a.message.registered = nvtxDomainRegisterStringA(mine, "registered");
    a.colorType = NVTX_COLOR_ARGB, a.color = 0xff00ff80;
    for (int kind = 0; kind < 4; kind++)
        for (int repeat = 0; repeat < 7; repeat++) {
            static const char *const kinds[] = {"push", "domain", "start", "payload"};
            struct timespec from, to;
            usleep(200000); /* the ring is emptied meanwhile */
            clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
            for (unsigned long long i = 0; i < numbers[0]; i++) {
                if (kind == 0) {
                    nvtxRangePushA("a plain name"), nvtxRangePop();
                } else if (kind == 2) {
                    nvtxRangeEnd(nvtxRangeStartA("a plain name"));
                } else {
                    a.payloadType = kind == 3 ? NVTX_PAYLOAD_TYPE_UNSIGNED_INT64 : 0;
                    a.payload.ullValue = i % 1000;
                    nvtxDomainRangePushEx(mine, &a), nvtxDomainRangePop(mine);
                }
            }
            clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
            double ns = (double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec);
            printf("%s %.1f\n", kinds[kind], ns / (double)numbers[0]);
        }
}

/* numbers: threads, rounds, seed. Prints how many ranges were begun. */
static _Atomic unsigned long long begun;
static _Atomic nvtxRangeId_t carried_ids[64];

static void *disorder(void *seed) {
    uint64_t state = (uintptr_t)seed * 2654435761u + 1;
    char text[32];
    nvtxDomainHandle_t mine = nvtxDomainCreateA("mine");
    for (unsigned long long i = 0; i < numbers[1]; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        uint32_t dice = (uint32_t)(state >> 33);
        snprintf(text, sizeof text, "name %u", dice >> 4 & 255);
        nvtxEventAttributes_t a = called(text);
        a.category = dice >> 12 & 3;
        a.payloadType = (int32_t)(dice >> 14 & 7);
        unsigned long long starts = 1;
        switch (dice & 7) {
        case 0:
        case 1:
            nvtxDomainRangePushEx(dice & 8 ? mine : NULL, &a);
            break;
        case 2:
            nvtxRangeEnd(atomic_exchange(&carried_ids[dice >> 20 & 63], nvtxRangeStartEx(&a)));
            break;
        case 3:
            snprintf(text, sizeof text, "category %u", dice >> 16 & 15);
            nvtxNameCategoryA(dice >> 12 & 3, text);
            nvtxMarkEx(&a);
            starts = 0;
            break;
        default:
            nvtxDomainRangePop(dice & 8 ? mine : NULL);
            starts = 0;
        }
        atomic_fetch_add_explicit(&begun, starts, memory_order_relaxed);
    }
    return NULL; /* with ranges that are open */
}

static void chaos(void) {
    pthread_t threads[16];
    nvtxMarkA("NVIDIA's header begins without a lock");
    for (unsigned long long round = 0; round < 3; round++) {
        for (unsigned long long i = 0; i < numbers[0] && i < 16; i++)
            pthread_create(&threads[i], NULL, disorder, (void *)(uintptr_t)(numbers[2] + 100 * round + i));
        for (unsigned long long i = 0; i < numbers[0] && i < 16; i++)
            pthread_join(threads[i], NULL);
    }
    for (int i = 0; i < 64; i++)
        nvtxRangeEnd(carried_ids[i]);
    printf("%llu\n", (unsigned long long)begun);
}

/* What the header for payloads does, which NVIDIA's package may not have: slots of functions that the injection fills. */
typedef struct {
    size_t id, count;
    intptr_t *slots;
} segment;
typedef struct {
    uint16_t version, size, module, compatible;
    size_t segment_count;
    segment *segments;
    void *unused[2];
} extension;

static void payloads(void) {
    enum { MARK = 2, PUSH, POP, START, END };
    typedef int (*stack)(nvtxDomainHandle_t, const void *, size_t);
    intptr_t slots[63] = {0};
    segment of_payloads = {0, 63, slots};
    extension it = {3, sizeof it, 2, 0x0104, 1, &of_payloads, {NULL, NULL}}, other = it;
    void *injection = dlopen(getenv("NVTX_INJECTION64_PATH"), RTLD_LAZY);
    int (*initialize)(extension *) = injection ? (int (*)(extension *))dlsym(injection, "InitializeInjectionNvtxExtension") : NULL;
    other.module = 1;
    if (!initialize || initialize(&other) || !initialize(&it) || slots[0] || !slots[POP])
        exit(3);
    nvtxDomainHandle_t mine = nvtxDomainCreateA("mine");
    nvtxEventAttributes_t a = called("popped with a payload");
    for (int i = 0; i < 2; i++) {
        nvtxDomainRangePushEx(mine, &a);
        ((stack)slots[POP])(mine, "x", 1);
    }
    ((stack)slots[PUSH])(mine, "x", 1);
    nvtxDomainRangePop(mine);
    uint64_t id = ((uint64_t(*)(nvtxDomainHandle_t, const void *, size_t))slots[START])(mine, "x", 1);
    ((void (*)(nvtxDomainHandle_t, uint64_t, const void *, size_t))slots[END])(mine, id, "x", 1);
    ((void (*)(nvtxDomainHandle_t, const void *, size_t))slots[MARK])(mine, "x", 1);
}

static const struct {
    const char *name;
    void (*run)(void);
} scenarios[] = {
    {"ranges", ranges}, {"arguments", arguments}, {"carried", carried}, {"pipeline", pipeline}, {"deaths", deaths}, {"names", names},
    {"cost", cost}, {"chaos", chaos}, {"payloads", payloads},
};

int main(int count, char **argument) {
#ifdef WITH_THE_AGENT
    unsetenv("NVTX_INJECTION64_PATH"); /* it would come before the one inside */
#endif
    for (int i = 2; i < count && i < 6; i++)
        numbers[i - 2] = strtoull(argument[i], NULL, 10);
    setlocale(LC_ALL, "");
    for (size_t i = 0; count > 1 && i < sizeof scenarios / sizeof *scenarios; i++)
        if (!strcmp(argument[1], scenarios[i].name)) {
            scenarios[i].run();
            return 0;
        }
    return 2;
}
