/* A library that is loaded and unloaded while it is sampled. */
__attribute__((noinline)) static unsigned long mixed(unsigned long x) { return (x ^ x >> 29) * 0xbf58476d1ce4e5b9ul; }

unsigned long stress_work(unsigned long count) {
    unsigned long x = count;
    for (unsigned long i = 0; i < count; i++)
        x = mixed(x + i);
    return x;
}
