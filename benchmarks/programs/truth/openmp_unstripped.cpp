// A team in which one works and the other waits at the barrier; the runtime is linked in, with its names.
// build: g++ -O2 -fopenmp {source} -o {out} -static-libgcc -Wl,-Bstatic -lgomp -Wl,-Bdynamic

#include "planted_team.h"
