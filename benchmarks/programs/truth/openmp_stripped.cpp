// A team in which one works and the other waits at the barrier; the runtime is stripped.
// build: g++ -O2 -fopenmp {source} -o {out}

#include "planted_team.h"
