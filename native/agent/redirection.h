/* Functions of a library that were not made to be listened to: its own calls of them go to functions of ours. */
#ifndef LAYERSCOPE_REDIRECTION_H
#define LAYERSCOPE_REDIRECTION_H

#include <stdint.h>

/* A function by its name in the library. `original` gets its address, which ours is to call. */
typedef struct {
    const char *name;
    void *ours;
    void **original;
} ls_redirection;

/* A word of the library that leads to a function: an import, an entry of a vtable. */
typedef struct {
    void **word, *before, *ours;
} ls_redirected;

#define LS_MOST_REDIRECTED 64u
#define LS_MOST_IMPORTS 8u
typedef struct {
    const ls_redirection *wanted;
    uint32_t count, used;
    int is_on; /* whether ours do more than call what they stand for: others may go on calling them */
    const void *inside; /* an address in the library */
    void *found[LS_MOST_IMPORTS]; /* of imports: the functions by these names */
    ls_redirected words[LS_MOST_REDIRECTED];
    const char *why_not; /* what keeps it from being done */
    const char *which;   /* and the function that it is about */
} ls_redirections;

int ls_redirect(ls_redirections *r, void *library);
/* The same of functions that the library has from others: those of the file that has the address `inside`. */
int ls_redirect_imports(ls_redirections *r, const void *inside);
/* What others have redirected since stays, and is what is still `used`. */
void ls_redirect_back(ls_redirections *r);

#endif
