// Two functions 3:1, with debug information and without optimization.
// build: g++ -O0 -g {source} -o {out}

#include "planted_two_functions.h"
