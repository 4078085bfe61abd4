// Two functions 3:1, without frame pointers.
// build: g++ -O2 -fomit-frame-pointer {source} -o {out}

#include "planted_two_functions.h"
