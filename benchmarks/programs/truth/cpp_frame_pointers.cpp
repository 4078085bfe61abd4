// Two functions 3:1, with frame pointers.
// build: g++ -O2 -fno-omit-frame-pointer -mno-omit-leaf-frame-pointer {source} -o {out}

#include "planted_two_functions.h"
