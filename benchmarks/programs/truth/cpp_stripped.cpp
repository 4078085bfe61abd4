// Two functions 3:1, stripped but for the names that it exports.
// build: g++ -O2 -s -rdynamic {source} -o {out}

#include "planted_two_functions.h"
