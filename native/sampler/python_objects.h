/* Objects of Python, read from outside: their types, attributes and numbers. */
#ifndef LAYERSCOPE_SAMPLER_PYTHON_OBJECTS_H
#define LAYERSCOPE_SAMPLER_PYTHON_OBJECTS_H

#include "threads.h"

/* 0 where it cannot be read. */
uint64_t sm_word(const sm_process *process, uint64_t address);
/* Whether the type of the object is called so, as tp_name has it; cheap to ask of the same types again and again. */
int sm_python_is(const sm_process *process, uint64_t object, const char *type);
/* An attribute that the object itself has, not its class; 0: none. */
uint64_t sm_python_attribute(const sm_process *process, uint64_t object, const char *name);
/* The first variable of a frame: of a method `self`. */
uint64_t sm_python_first(const sm_process *process, uint64_t frame);
/* A number that is not negative and below 2^60; -1: another object. */
int64_t sm_python_number(const sm_process *process, uint64_t object);

#endif
