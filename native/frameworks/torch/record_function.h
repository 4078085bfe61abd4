/* How PyTorch is told of a recorder: at::RecordFunctionCallback (ATen/record_function.h), passed by value on
 * the stack. One definition for the agent, which uses it, and the probe, which checks it. */
#ifndef LAYERSCOPE_RECORD_FUNCTION_H
#define LAYERSCOPE_RECORD_FUNCTION_H

#include <stdbool.h>

typedef struct {
    void **(*start)(void **result, const void *record_function);
    void (*end)(const void *record_function, void *context);
    double sampling_probability;
    bool scopes[10];
    bool needs_inputs, needs_outputs, needs_ids;
} callback;

#endif
