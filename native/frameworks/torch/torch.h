/* What the files about PyTorch share. */
#ifndef LAYERSCOPE_TORCH_H
#define LAYERSCOPE_TORCH_H

#include "../../agent/operators.h"
#include "../frameworks.h"

/* operators.c */
LS_EXPORT int ls_torch_start(void);

/* onednn.c */
void ls_onednn_find(void *torch);

/* library.c */
void ls_torch_find(char *path);
void ls_torch_begin(const ls_framework_request *request);

/* shapes.c */
extern int ls_shapes_are_on; /* when recording starts; then the function is there */
extern uint64_t (*ls_shapes_hash_of)(const void *record_function);
uint32_t ls_shapes_learn(ls_thread *t, const void *record_function, uint64_t hash);

/* The name of the shapes of the inputs of an operator that begins; 0: it has none. */
static inline uint32_t ls_shapes_of(ls_thread *t, const void *record_function) {
    uint64_t hash = ls_shapes_hash_of(record_function);
    if (!hash)
        return 0;
    const ls_known_shapes *known = t->shapes ? &t->shapes[hash >> (64u - LS_SHAPES_BITS)] : NULL;
    if (LS_UNLIKELY(!known) || LS_UNLIKELY(known->hash != hash))
        return ls_shapes_learn(t, record_function, hash);
    return known->id;
}

#endif
