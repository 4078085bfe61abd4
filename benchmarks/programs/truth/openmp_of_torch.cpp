// A team in which one works and the other waits at the barrier; the runtime is the one that PyTorch brings.
// build: g++ -O2 -fopenmp {source} -o {out} -Wl,--disable-new-dtags,-rpath,{site}/torch/lib

#include "planted_team.h"
