/* Whether PyTorch may use oneDNN, read in the program when an operator that oneDNN could do is first called: a
 * program switches it off, and caps its instruction set, after it has imported torch. */
#define _GNU_SOURCE
#include "torch.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const char *const CONVOLUTIONS[] = {"aten::convolution", "aten::_convolution", NULL};
static const char *const PRODUCTS[] = {"aten::linear", "aten::addmm", "aten::mm", "aten::bmm", "aten::baddbmm", NULL};

static void *(*global_context)(void);
static bool (*is_enabled)(const void *context);

static int is_among(const char *name, const char *const *names) {
    while (*names && strcmp(name, *names))
        names++;
    return *names != NULL;
}

static void copy_cap(void) {
    const char *cap = getenv("ONEDNN_MAX_CPU_ISA");
    if (!cap)
        cap = getenv("DNNL_MAX_CPU_ISA");
    if (cap)
        strncpy(ls.page->onednn_cap, cap, sizeof ls.page->onednn_cap - 1);
}

/* An operator of this name is called for the first time. Seldom: once for each name. */
static void note(const char *name) {
    if (!is_enabled || !global_context || strncmp(name, "aten::", 6))
        return;
    int convolves = is_among(name, CONVOLUTIONS);
    if (!convolves && !is_among(name, PRODUCTS))
        return;
    if (!ls.page->onednn)
        copy_cap();
    uint32_t on = convolves ? LF_ONEDNN_CONVOLUTION_ON : LF_ONEDNN_PRODUCT_ON;
    uint32_t off = convolves ? LF_ONEDNN_CONVOLUTION_OFF : LF_ONEDNN_PRODUCT_OFF;
    __atomic_or_fetch(&ls.page->onednn, is_enabled(global_context()) ? on : off, __ATOMIC_RELEASE);
}

/* Find the switch in libtorch_cpu.so; older builds have none, and then nothing is told. */
void ls_onednn_find(void *torch) {
    *(void **)&is_enabled = dlsym(torch, "_ZNK2at7Context17userEnabledMkldnnEv");
    *(void **)&global_context = dlsym(torch, "_ZN2at13globalContextEv");
    ls_name_learned = note;
}
