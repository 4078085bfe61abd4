/* The line of the program's own Python code that the calling thread is in. */
#ifndef LAYERSCOPE_PYTHON_LINE_H
#define LAYERSCOPE_PYTHON_LINE_H

#include "agent.h"

/* Code in files below `folder` is a library's; called once for each library, with the GIL held. 0: done; -1: this Python is not understood, and no line is known. */
int ls_python_line_begin(const char *folder);
/* The number of the name of the line, "file:line": the innermost one outside of the library. 0: it is not known, or the
 * thread is not in Python. Called with the GIL or without, on any thread. */
uint32_t ls_python_line(void);

#endif
