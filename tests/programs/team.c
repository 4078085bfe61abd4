/* An OpenMP worker that waits at a barrier for a second, then has no work for 0.6 s. Names of
   libgomp do not tell the two apart: distributions strip them. It prints how long both were, in
   seconds: on a machine that others use too they are longer. */
#include <omp.h>
#include <stdio.h>
#include <time.h>

static double at_s(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

__attribute__((noinline)) static double busy(double seconds)
{
    double end_s = at_s(CLOCK_THREAD_CPUTIME_ID) + seconds, sum = 0;
    while (at_s(CLOCK_THREAD_CPUTIME_ID) < end_s)
        for (int i = 0; i < 1000; i++)
            sum += i;
    return sum;
}

int main(void)
{
    double sum = 0, done_s[2], free_s;
#pragma omp parallel num_threads(2) reduction(+ : sum)
    {
        sum += busy(omp_get_thread_num() ? 0.1 : 1.1);
        done_s[omp_get_thread_num()] = at_s(CLOCK_MONOTONIC);
    }
    free_s = at_s(CLOCK_MONOTONIC);
    sum += busy(0.6);
    printf("%.3f %.3f\n", done_s[0] - done_s[1], at_s(CLOCK_MONOTONIC) - free_s);
#pragma omp parallel num_threads(2) reduction(+ : sum)
    sum += busy(0.1);
    return sum < 0;
}
