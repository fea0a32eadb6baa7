/* Notes what a process does to names of files, for tests: loaded before the C library (LD_PRELOAD).

   TRACE_LOG  a file to which a line is added for each call that succeeded: what, path, and the new path of a rename:
              W  a file opened so that it can be written, or truncated
              D  a file written to
              S  a file made durable
              N  a name given: by rename or link (the old one; "-" for a link)
              E  two names exchanged

   The C library's calls of its own functions are not seen; fopen is. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ORIGINAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static void whole(const char *path, char *into)
{
    *into = 0;
    if (*path != '/' && syscall(SYS_getcwd, into, PATH_MAX) > 0)
        strcat(into, "/");
    strncat(into, path, PATH_MAX);
}

static void note(char what, const char *old, const char *new)
{
    int before = errno;
    const char *log = getenv("TRACE_LOG");
    char first[2 * PATH_MAX + 2], second[2 * PATH_MAX + 2], line[4 * PATH_MAX + 16];
    if (log) {
        whole(old, first);
        whole(new, second);
        int size = snprintf(line, sizeof line, "%c\t%s\t%s\n", what, *old ? first : "", *new ? second : "");
        int file = syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_APPEND | O_CLOEXEC);
        if (file < 0 || syscall(SYS_write, file, line, size) != size)
            abort();
        syscall(SYS_close, file);
    }
    errno = before;
}

static void note_descriptor(char what, int descriptor)
{
    int before = errno;
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    errno = before;
    if (length <= 0 || *path != '/') /* pipes and sockets have no path */
        return;
    path[length] = 0;
    note(what, path, "");
}

#define IF_DONE(call, then) do { int found = (call); if (found == 0) { then; } return found; } while (0)

#define IF_ANY(call, file) do { ssize_t done = (call); if (done > 0) note_descriptor('D', file); return done; } while (0)

ssize_t write(int file, const void *bytes, size_t size)
{ IF_ANY(ORIGINAL(write)(file, bytes, size), file); }

ssize_t pwrite(int file, const void *bytes, size_t size, off_t at)
{ IF_ANY(ORIGINAL(pwrite)(file, bytes, size, at), file); }

ssize_t pwrite64(int file, const void *bytes, size_t size, off64_t at)
{ IF_ANY(ORIGINAL(pwrite64)(file, bytes, size, at), file); }

int fsync(int file) { IF_DONE(ORIGINAL(fsync)(file), note_descriptor('S', file)); }

int ftruncate(int file, off_t size) { IF_DONE(ORIGINAL(ftruncate)(file, size), note_descriptor('W', file)); }

int ftruncate64(int file, off64_t size) { IF_DONE(ORIGINAL(ftruncate64)(file, size), note_descriptor('W', file)); }

int rename(const char *old, const char *new) { IF_DONE(ORIGINAL(rename)(old, new), note('N', old, new)); }

int renameat2(int from, const char *old, int to, const char *new, unsigned flags)
{
    IF_DONE(ORIGINAL(renameat2)(from, old, to, new, flags), note(flags & RENAME_EXCHANGE ? 'E' : 'N', old, new));
}

int link(const char *old, const char *new) { IF_DONE(ORIGINAL(link)(old, new), note('N', "-", new)); }

int linkat(int from, const char *old, int to, const char *new, int flags)
{
    IF_DONE(ORIGINAL(linkat)(from, old, to, new, flags), note('N', "-", new));
}

int symlink(const char *old, const char *new) { IF_DONE(ORIGINAL(symlink)(old, new), note('N', "-", new)); }

#define OPEN(name) \
    int name(const char *path, int flags, ...) \
    { \
        va_list more; \
        va_start(more, flags); \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0; \
        va_end(more); \
        int file = ORIGINAL(name)(path, flags, mode); \
        if (file >= 0 && (flags & O_ACCMODE) != O_RDONLY) \
            note_descriptor('W', file); \
        return file; \
    }

OPEN(open)
OPEN(open64)

#define OPENAT(name) \
    int name(int at, const char *path, int flags, ...) \
    { \
        va_list more; \
        va_start(more, flags); \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0; \
        va_end(more); \
        int file = ORIGINAL(name)(at, path, flags, mode); \
        if (file >= 0 && (flags & O_ACCMODE) != O_RDONLY) \
            note_descriptor('W', file); \
        return file; \
    }

OPENAT(openat)
OPENAT(openat64)

#define FOPEN(name) \
    FILE *name(const char *path, const char *mode) \
    { \
        FILE *file = ORIGINAL(name)(path, mode); \
        if (file && strpbrk(mode, "wa+")) \
            note_descriptor('W', fileno(file)); \
        return file; \
    }

FOPEN(fopen)
FOPEN(fopen64)
