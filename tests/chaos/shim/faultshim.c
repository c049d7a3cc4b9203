/* Preloaded into a node: its disk and its wall clock fail as a control file tells, from now on.

   FAULTSHIM_FILE names the control file, which is mapped shared; control.py writes its rules and
   reads its counts, and knows the layout of both structs below.
   What is done by mmap or io_uring is not seen here. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { SYNC = 1, WRITE = 2, READ = 4, ALLOCATE = 8, OPEN = 16 };
enum { FAIL = 1, SHORTEN = 2, DELAY = 3, LIE = 4, FLIP = 5 };
enum { RULES = 8, MATCH = 192, BOOT = 64 };

struct rule {
    uint32_t operations; /* 0: the rule is off; written last */
    uint32_t action;
    int32_t error;
    int32_t left; /* how often it still strikes; below 0 for ever */
    int64_t skip; /* matching calls that it lets pass first */
    int64_t delay_us;
    int64_t seen; /* matching calls */
    int64_t done; /* times it struck */
    char match[MATCH]; /* part of the file's path */
};

struct control {
    char magic[8];
    int64_t wall_ns;    /* added to the wall clock */
    int64_t wall_reads; /* of the wall clock while it was off */
    int64_t attached;   /* processes that have mapped this */
    char boot_id[BOOT]; /* shown instead of the kernel's, unless empty */
    struct rule rules[RULES];
};

static struct control *control;

#define REAL(name) \
    static __typeof__(&name) real; \
    if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

__attribute__((constructor)) static void attach(void) {
    const char *path = getenv("FAULTSHIM_FILE");
    if (!path) return;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) _exit(87);
    void *at = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (at == MAP_FAILED || memcmp(at, "FAULTSH2", 8)) _exit(87);
    __atomic_add_fetch(&((struct control *)at)->attached, 1, __ATOMIC_SEQ_CST);
    control = at;
}

static void pause_us(int64_t us) {
    struct timespec span = {us / 1000000, us % 1000000 * 1000};
    while (nanosleep(&span, &span) && errno == EINTR) {
    }
}

static int path_of(int fd, const char *given, char *path, size_t size) {
    if (given) {
        snprintf(path, size, "%s", given);
        return 1;
    }
    char link[40];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, size - 1);
    if (length <= 0 || *path != '/') return 0;
    path[length] = 0;
    return 1;
}

static int takes(struct rule *rule) {
    if (__atomic_fetch_add(&rule->seen, 1, __ATOMIC_SEQ_CST) < rule->skip) return 0;
    int32_t left = __atomic_load_n(&rule->left, __ATOMIC_SEQ_CST);
    while (left > 0)
        if (__atomic_compare_exchange_n(&rule->left, &left, left - 1, 0, __ATOMIC_SEQ_CST,
                                        __ATOMIC_SEQ_CST))
            return 1;
    return left < 0;
}

/* The rule that strikes this call, after all delays; NULL where it goes on as if nothing was. */
static struct rule *struck(uint32_t operation, int fd, const char *given) {
    char path[4096];
    int known = 0, saved = errno;
    struct rule *found = NULL;
    if (!control) return NULL;
    for (int n = 0; n < RULES && !found; n++) {
        struct rule *rule = &control->rules[n];
        if (!(__atomic_load_n(&rule->operations, __ATOMIC_ACQUIRE) & operation)) continue;
        if (!known && !path_of(fd, given, path, sizeof path)) break;
        known = 1;
        if (!strstr(path, rule->match) || !takes(rule)) continue;
        __atomic_add_fetch(&rule->done, 1, __ATOMIC_SEQ_CST);
        if (rule->action == DELAY)
            pause_us(rule->delay_us);
        else
            found = rule;
    }
    errno = saved;
    return found;
}

static int fails(struct rule *rule) {
    if (!rule || rule->action != FAIL) return 0;
    errno = rule->error;
    return 1;
}

/* -- syncs */

#define SYNCING(name) \
    int name(int fd) { \
        REAL(name); \
        struct rule *rule = struck(SYNC, fd, NULL); \
        if (fails(rule)) return -1; \
        return rule && rule->action == LIE ? 0 : real(fd); \
    }
SYNCING(fsync)
SYNCING(fdatasync)

/* -- writes */

static size_t shortened(struct rule *rule, size_t count) {
    return rule && rule->action == SHORTEN && count > 1 ? count / 2 : count;
}

static size_t total(const struct iovec *parts, int count) {
    size_t sum = 0;
    for (int n = 0; n < count; n++) sum += parts[n].iov_len;
    return sum;
}

/* Copies the vectors' first `wanted` bytes into one that the caller frees. */
static char *joined(const struct iovec *parts, size_t wanted) {
    char *made = malloc(wanted ? wanted : 1);
    for (size_t n = 0, at = 0; at < wanted; n++) {
        size_t part = parts[n].iov_len < wanted - at ? parts[n].iov_len : wanted - at;
        memcpy(made + at, parts[n].iov_base, part);
        at += part;
    }
    return made;
}

ssize_t write(int fd, const void *data, size_t count) {
    REAL(write);
    struct rule *rule = struck(WRITE, fd, NULL);
    return fails(rule) ? -1 : real(fd, data, shortened(rule, count));
}

#define POSITIONED_WRITE(name, offset_t) \
    ssize_t name(int fd, const void *data, size_t count, offset_t at) { \
        REAL(name); \
        struct rule *rule = struck(WRITE, fd, NULL); \
        return fails(rule) ? -1 : real(fd, data, shortened(rule, count), at); \
    }
POSITIONED_WRITE(pwrite, off_t)
POSITIONED_WRITE(pwrite64, off64_t)

ssize_t writev(int fd, const struct iovec *parts, int count) {
    REAL(writev);
    struct rule *rule = struck(WRITE, fd, NULL);
    if (fails(rule)) return -1;
    if (!rule || rule->action != SHORTEN) return real(fd, parts, count);
    size_t wanted = shortened(rule, total(parts, count));
    struct iovec part = {joined(parts, wanted), wanted};
    ssize_t written = real(fd, &part, 1);
    free(part.iov_base);
    return written;
}

#define POSITIONED_WRITE_VECTORS(name, offset_t, DECLARE, PASS) \
    ssize_t name(int fd, const struct iovec *parts, int count, offset_t at DECLARE) { \
        REAL(name); \
        struct rule *rule = struck(WRITE, fd, NULL); \
        if (fails(rule)) return -1; \
        if (!rule || rule->action != SHORTEN) return real(fd, parts, count, at PASS); \
        size_t wanted = shortened(rule, total(parts, count)); \
        struct iovec part = {joined(parts, wanted), wanted}; \
        ssize_t written = real(fd, &part, 1, at PASS); \
        free(part.iov_base); \
        return written; \
    }
#define NOTHING
#define COMMA_FLAGS_DECLARED , int flags
#define COMMA_FLAGS , flags
POSITIONED_WRITE_VECTORS(pwritev, off_t, NOTHING, NOTHING)
POSITIONED_WRITE_VECTORS(pwritev64, off64_t, NOTHING, NOTHING)
POSITIONED_WRITE_VECTORS(pwritev2, off_t, COMMA_FLAGS_DECLARED, COMMA_FLAGS)
POSITIONED_WRITE_VECTORS(pwritev64v2, off64_t, COMMA_FLAGS_DECLARED, COMMA_FLAGS)

/* -- reads */

static ssize_t flipped(struct rule *rule, ssize_t length, char *data) {
    if (rule && rule->action == FLIP && length > 0) data[length / 2] ^= 1;
    return length;
}

ssize_t read(int fd, void *data, size_t count) {
    REAL(read);
    struct rule *rule = struck(READ, fd, NULL);
    return fails(rule) ? -1 : flipped(rule, real(fd, data, count), data);
}

#define POSITIONED_READ(name, offset_t) \
    ssize_t name(int fd, void *data, size_t count, offset_t at) { \
        REAL(name); \
        struct rule *rule = struck(READ, fd, NULL); \
        return fails(rule) ? -1 : flipped(rule, real(fd, data, count, at), data); \
    }
POSITIONED_READ(pread, off_t)
POSITIONED_READ(pread64, off64_t)

#define POSITIONED_READ_VECTORS(name, offset_t, DECLARE, PASS) \
    ssize_t name(int fd, const struct iovec *parts, int count, offset_t at DECLARE) { \
        REAL(name); \
        struct rule *rule = struck(READ, fd, NULL); \
        return fails(rule) ? -1 : real(fd, parts, count, at PASS); \
    }
POSITIONED_READ_VECTORS(preadv, off_t, NOTHING, NOTHING)
POSITIONED_READ_VECTORS(preadv64, off64_t, NOTHING, NOTHING)
POSITIONED_READ_VECTORS(preadv2, off_t, COMMA_FLAGS_DECLARED, COMMA_FLAGS)
POSITIONED_READ_VECTORS(preadv64v2, off64_t, COMMA_FLAGS_DECLARED, COMMA_FLAGS)

/* -- room */

#define TRUNCATING(name, offset_t) \
    int name(int fd, offset_t length) { \
        REAL(name); \
        return fails(struck(ALLOCATE, fd, NULL)) ? -1 : real(fd, length); \
    }
TRUNCATING(ftruncate, off_t)
TRUNCATING(ftruncate64, off64_t)

#define ALLOCATING(name, offset_t) \
    int name(int fd, offset_t at, offset_t length) { \
        REAL(name); \
        struct rule *rule = struck(ALLOCATE, fd, NULL); \
        return rule && rule->action == FAIL ? rule->error : real(fd, at, length); \
    }
ALLOCATING(posix_fallocate, off_t)
ALLOCATING(posix_fallocate64, off64_t)

/* -- opens: of files to be made, and of the kernel's boot id */

static int is_boot_id(const char *path) {
    return control && *control->boot_id && !strcmp(path, "/proc/sys/kernel/random/boot_id");
}

static int boot_id(void) {
    int fd = memfd_create("boot_id", MFD_CLOEXEC);
    dprintf(fd, "%s\n", control->boot_id);
    lseek(fd, 0, SEEK_SET);
    return fd;
}

#define OPENING(name) \
    int name(const char *path, int flags, ...) { \
        va_list more; \
        va_start(more, flags); \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0; \
        va_end(more); \
        static int (*real)(const char *, int, ...); \
        if (!real) real = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, #name); \
        if (is_boot_id(path)) return boot_id(); \
        return flags & O_CREAT && fails(struck(OPEN, -1, path)) ? -1 : real(path, flags, mode); \
    }
OPENING(open)
OPENING(open64)

/* -- the wall clock; what is monotonic stays so */

static int64_t ahead_ns(void) {
    int64_t ns = control ? __atomic_load_n(&control->wall_ns, __ATOMIC_RELAXED) : 0;
    if (ns) __atomic_add_fetch(&control->wall_reads, 1, __ATOMIC_RELAXED);
    return ns;
}

static void move(int64_t *seconds, int64_t *nanoseconds, int64_t by_ns) {
    int64_t all = *nanoseconds + by_ns % 1000000000;
    *seconds += by_ns / 1000000000 + (all >= 1000000000) - (all < 0);
    *nanoseconds = (all + 1000000000) % 1000000000;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    REAL(clock_gettime);
    int failed = real(clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t seconds = now->tv_sec, nanoseconds = now->tv_nsec;
        move(&seconds, &nanoseconds, ahead_ns());
        now->tv_sec = seconds, now->tv_nsec = nanoseconds;
    }
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec found;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &found)) return -1;
    now->tv_sec = found.tv_sec, now->tv_usec = found.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *seconds) {
    struct timespec found;
    if (clock_gettime(CLOCK_REALTIME, &found)) return -1;
    if (seconds) *seconds = found.tv_sec;
    return found.tv_sec;
}
