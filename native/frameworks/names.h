/* What a span is by the name that its framework gives it; `*` stands for any text.
 *
 * Generated from src/layerscope/model/frameworks by native_names.py: change those files, then run
 * `python3 dev.py native`. */
#ifndef LAYERSCOPE_NAMES_H
#define LAYERSCOPE_NAMES_H

#include "../layout.h"

/* The first that fits. */
static const struct {
    const char *pattern;
    uint32_t kind;
} KINDS[] = {
    {"Optimizer.update#*", LF_OPTIMIZER},
    {"*DataLoader.__next__", LF_LOADER},
    {"*Iter.__next__", LF_LOADER},
    {"*IterV1.__next__", LF_LOADER},
    {"autograd::engine::evaluate_function*", LF_BACKWARD},
    {"Optimizer.step#*", LF_OPTIMIZER},
    {"Optimizer.zero_grad#*", LF_OPTIMIZER},
    {"enumerate(*)#*.__next__*", LF_LOADER},
};

/* How the names of spans begin that are one step of an optimizer. */
static const char *const STEPS[] = {
    "Optimizer.update#",
    "Optimizer.step#",
};

/* Operators that do nothing but allocate: who calls them needs the memory. */
static const char *const ALLOCATORS[] = {
    "aten::empty",
    "aten::empty_like",
    "aten::empty_strided",
    "aten::new_empty",
    "aten::new_empty_strided",
    "aten::resize_",
    "aten::resize_as_",
};

#endif
