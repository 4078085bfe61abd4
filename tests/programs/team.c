/* An OpenMP worker that waits at a barrier for a second, then has no work for 0.6 s. Names of
   libgomp do not tell the two apart: distributions strip them. */
#include <omp.h>
#include <stdio.h>
#include <time.h>

static double cpu_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

__attribute__((noinline)) static double busy(double seconds)
{
    double end_s = cpu_s() + seconds, sum = 0;
    while (cpu_s() < end_s)
        for (int i = 0; i < 1000; i++)
            sum += i;
    return sum;
}

int main(void)
{
    double sum = 0;
#pragma omp parallel num_threads(2) reduction(+ : sum)
    sum += busy(omp_get_thread_num() ? 0.1 : 1.1);
    sum += busy(0.6);
#pragma omp parallel num_threads(2) reduction(+ : sum)
    sum += busy(0.1);
    return sum < 0;
}
