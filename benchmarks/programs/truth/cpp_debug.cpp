// Two functions 3:1, with debug information and without optimization.
// build: g++ -O0 -g {source} -o {out}

// What is inlined has a frame of its own there: the two have all the time that they and it take.
#define PLANTED_SYMBOL "symbol_total"
#include "planted_two_functions.h"
