/* Objects of Python that stand for others (stand_ins.c), and what can be done with any object (references.c). Everything
 * with the GIL held. */
#ifndef LAYERSCOPE_STAND_INS_H
#define LAYERSCOPE_STAND_INS_H

#include <sys/types.h>

enum { OFFSET_OF_TYPE_NAME = 24 }; /* in a PyTypeObject: a pointer */
int ls_find_references(void);
void *ls_call_python(void *function, void *const *arguments, ssize_t count, void *keywords);
void *ls_type_of(const void *object);
void ls_python_release(void *object);

typedef void *(*ls_stand_in_handler)(void *original, void *const *arguments, ssize_t count, void *keywords);
void *ls_stand_for_function(void *function, ls_stand_in_handler handler);
void *ls_stand_for_generator(void *generator, ls_stand_in_handler handler);

#endif
