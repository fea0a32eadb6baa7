/* A disk that fails, for tests: loaded before the C library (LD_PRELOAD), it makes calls that write below a directory
   fail.

   FAILING_BELOW    the directory
   FAILING_COUNTER  a file that grows by a byte for each such call, of whatever process
   FAILING_FROM     the first call that fails, from 1 on; 0: none
   FAILING_CALLS    so many of them fail
   FAILING_ERROR    with this errno
   FAILING_KILL     if set, call FAILING_FROM ends the process group by SIGKILL, before it does anything; calls that
                    rename without replacing, exchange, link or delete are counted, too */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ORIGINAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static long number(const char *name) { const char *text = getenv(name); return text ? atol(text) : 0; }

/* Counts a call that concerns `path`; returns the error with which it is to fail, or 0. */
static int error_at(const char *path)
{
    const char *below = getenv("FAILING_BELOW"), *counter = getenv("FAILING_COUNTER");
    char whole[2 * PATH_MAX];
    if (!below || !counter)
        return 0;
    if (*path != '/') {
        if (syscall(SYS_getcwd, whole, PATH_MAX) < 0)
            return 0;
        strcat(strcat(whole, "/"), path);
        path = whole;
    }
    if (strncmp(path, below, strlen(below)))
        return 0;
    int file = syscall(SYS_openat, AT_FDCWD, counter, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (file < 0)
        abort();
    syscall(SYS_write, file, ".", 1);
    long call = syscall(SYS_lseek, file, 0, SEEK_CUR), from = number("FAILING_FROM");
    syscall(SYS_close, file);
    if (from == call && getenv("FAILING_KILL"))
        kill(0, SIGKILL);
    return from && call >= from && call < from + number("FAILING_CALLS") ? number("FAILING_ERROR") : 0;
}

static int error_of(int descriptor)
{
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0 || *path != '/') /* pipes and sockets have no path */
        return 0;
    path[length] = 0;
    return error_at(path);
}

#define FAIL_ON(found) do { int error = (found); if (error) { errno = error; return -1; } } while (0)

ssize_t write(int file, const void *bytes, size_t size)
{ FAIL_ON(error_of(file)); return ORIGINAL(write)(file, bytes, size); }

ssize_t pwrite(int file, const void *bytes, size_t size, off_t at)
{ FAIL_ON(error_of(file)); return ORIGINAL(pwrite)(file, bytes, size, at); }

ssize_t pwrite64(int file, const void *bytes, size_t size, off64_t at)
{ FAIL_ON(error_of(file)); return ORIGINAL(pwrite64)(file, bytes, size, at); }

int fsync(int file) { FAIL_ON(error_of(file)); return ORIGINAL(fsync)(file); }

int fdatasync(int file) { FAIL_ON(error_of(file)); return ORIGINAL(fdatasync)(file); }

int ftruncate(int file, off_t size) { FAIL_ON(error_of(file)); return ORIGINAL(ftruncate)(file, size); }

int ftruncate64(int file, off64_t size) { FAIL_ON(error_of(file)); return ORIGINAL(ftruncate64)(file, size); }

int posix_fallocate(int file, off_t at, off_t size)
{ int error = error_of(file); return error ? error : ORIGINAL(posix_fallocate)(file, at, size); }

int posix_fallocate64(int file, off64_t at, off64_t size)
{ int error = error_of(file); return error ? error : ORIGINAL(posix_fallocate64)(file, at, size); }

int rename(const char *old, const char *new) { FAIL_ON(error_at(new)); return ORIGINAL(rename)(old, new); }

int mkdir(const char *path, mode_t mode) { FAIL_ON(error_at(path)); return ORIGINAL(mkdir)(path, mode); }

#define COUNT_FOR_KILL(found) do { if (getenv("FAILING_KILL")) (void)(found); } while (0)

int renameat2(int from, const char *old, int to, const char *new, unsigned flags)
{ COUNT_FOR_KILL(error_at(new)); return ORIGINAL(renameat2)(from, old, to, new, flags); }

int link(const char *old, const char *new) { COUNT_FOR_KILL(error_at(new)); return ORIGINAL(link)(old, new); }

int linkat(int from, const char *old, int to, const char *new, int flags)
{ COUNT_FOR_KILL(error_at(new)); return ORIGINAL(linkat)(from, old, to, new, flags); }

int unlink(const char *path) { COUNT_FOR_KILL(error_at(path)); return ORIGINAL(unlink)(path); }

int rmdir(const char *path) { COUNT_FOR_KILL(error_at(path)); return ORIGINAL(rmdir)(path); }

int unlinkat(int folder, const char *path, int flags)
{ COUNT_FOR_KILL(folder < 0 ? error_at(path) : error_of(folder)); return ORIGINAL(unlinkat)(folder, path, flags); }

#define OPEN(name) \
    int name(const char *path, int flags, ...) \
    { \
        va_list more; \
        va_start(more, flags); \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0; \
        va_end(more); \
        if (flags & O_CREAT) \
            FAIL_ON(error_at(path)); \
        return ORIGINAL(name)(path, flags, mode); \
    }

OPEN(open)
OPEN(open64)
