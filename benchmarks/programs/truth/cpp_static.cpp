// Two functions 3:1, a static binary.
// build: g++ -O2 -static {source} -o {out}

#include "planted_two_functions.h"
