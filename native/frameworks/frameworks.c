/* The frameworks that are looked for in programs without Python, each in its folder beside this file. */
#define _GNU_SOURCE
#include "frameworks.h"

#include "mxnet/program.h"
#include "torch/torch.h"

static const ls_framework KNOWN[] = {{ls_torch_find, ls_torch_begin}, {ls_mxnet_program_find, ls_mxnet_program_begins}};

const ls_framework *ls_framework_find(char *path) {
    for (size_t i = 0; i < sizeof KNOWN / sizeof *KNOWN; i++) {
        KNOWN[i].find(path);
        if (*path)
            return &KNOWN[i];
    }
    return NULL;
}
