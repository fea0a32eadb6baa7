/* For tests: loaded before the C library (LD_PRELOAD), it denies memfd_create, as filters of system calls do in
   containers.

   DENIED_ERROR  with this errno */

#include <errno.h>
#include <stdlib.h>

int memfd_create(const char *name, unsigned int flags)
{
    (void)name, (void)flags;
    errno = atoi(getenv("DENIED_ERROR"));
    return -1;
}
