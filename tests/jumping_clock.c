/* A clock of the day that jumps by up to a year, back and forth, for tests (LD_PRELOAD). Other clocks go as they are. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>

static time_t jump(void)
{
    static unsigned long state = 1;
    state = state * 6364136223846793005ul + 1442695040888963407ul;
    return (time_t)(state >> 33) % (2 * 365 * 86400) - 365 * 86400;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int failed = ((__typeof__(&clock_gettime))dlsym(RTLD_NEXT, "clock_gettime"))(clock, now);
    if (clock == CLOCK_REALTIME)
        now->tv_sec += jump();
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    int failed = ((__typeof__(&gettimeofday))dlsym(RTLD_NEXT, "gettimeofday"))(now, zone);
    now->tv_sec += jump();
    return failed;
}

time_t time(time_t *now)
{
    time_t found = ((__typeof__(&time))dlsym(RTLD_NEXT, "time"))(0) + jump();
    if (now)
        *now = found;
    return found;
}
