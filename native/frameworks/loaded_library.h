/* The library of a framework among those that are loaded into a process without Python. */
#ifndef LAYERSCOPE_LOADED_LIBRARY_H
#define LAYERSCOPE_LOADED_LIBRARY_H

void ls_loaded_library(const char *name, char *path);

#endif
