/* The frameworks that a program without Python may be linked with: nothing is imported there, so each looks for itself
 * among the libraries that are loaded. */
#ifndef LAYERSCOPE_FRAMEWORKS_H
#define LAYERSCOPE_FRAMEWORKS_H

/* `find`: the path of the library of this framework into `path` (PATH_MAX bytes); empty: this process has none, or
 * Python's own door sees to it. `begin`: record it, as far as that can be done by now. */
typedef struct {
    void (*find)(char *path);
    void (*begin)(void);
} ls_framework;

/* The framework of this process, and the path of its library; NULL: it has none. */
const ls_framework *ls_framework_find(char *path);

#endif
