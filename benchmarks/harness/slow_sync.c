/* A slow disk: every fsync and fdatasync of a process takes so much longer. Preloaded (LD_PRELOAD) by slow_sync.py.
 *
 * SLOW_SYNC names a file of four 64-bit numbers that is mapped: the microseconds to add (read at each sync, so that it
 * can be changed meanwhile), then the fsyncs, the fdatasyncs and the nanoseconds spent so far. Without it nothing is
 * added. The added time is slept after the real sync: what waits for a disk uses no processor. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

struct book {
    volatile uint64_t added_us;
    uint64_t fsyncs, fdatasyncs, spent_ns;
};

static struct book *book;
static int (*real_fsync)(int);
static int (*real_fdatasync)(int);

__attribute__((constructor)) static void open_book(void)
{
    const char *path = getenv("SLOW_SYNC");
    real_fsync = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    real_fdatasync = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    if (path == NULL)
        return;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return;
    void *at = mmap(NULL, sizeof *book, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (at != MAP_FAILED)
        book = at;
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int slowly(int (*sync)(int), int fd, uint64_t *count)
{
    uint64_t began = now_ns();
    int done = sync(fd);
    int error = errno;
    struct timespec left = {(time_t)(book->added_us / 1000000), (long)(book->added_us % 1000000) * 1000};
    while ((left.tv_sec || left.tv_nsec) && nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
    __atomic_fetch_add(count, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&book->spent_ns, now_ns() - began, __ATOMIC_RELAXED);
    errno = error;
    return done;
}

int fsync(int fd)
{
    return book ? slowly(real_fsync, fd, &book->fsyncs) : real_fsync(fd);
}

int fdatasync(int fd)
{
    return book ? slowly(real_fdatasync, fd, &book->fdatasyncs) : real_fdatasync(fd);
}
