/* The frameworks that a program without Python may use: nothing is imported there, so each looks for itself among the
 * libraries that are loaded. */
#ifndef LAYERSCOPE_FRAMEWORKS_H
#define LAYERSCOPE_FRAMEWORKS_H

/* What is known where a framework begins. `with_calls`: the calls of its C interface are recorded too. `is_late`: the
 * program may have used it before. */
typedef struct {
    int with_calls, is_late;
} ls_framework_request;

/* `find`: the path of the library of this framework into `path` (PATH_MAX bytes); empty: this process has none, or
 * Python's own door sees to it. `begin`: record it, as far as that can be done by now. */
typedef struct {
    void (*find)(char *path);
    void (*begin)(const ls_framework_request *request);
} ls_framework;

/* The framework of this process, and the path of its library; NULL: it has none. */
const ls_framework *ls_framework_find(char *path);

/* later_libraries.c: `arrives` is asked before the program looks a function up in a library that it may have loaded,
 * until it says that what it waits for is there. */
void ls_later_libraries(int (*arrives)(void));

#endif
