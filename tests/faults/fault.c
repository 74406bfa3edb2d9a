// The one fault of a run: read from the environment, counted up to, brought about. See fault.h.
#include "fault.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char *const call_names[CALL_COUNT] = {
    [CALL_ALLOC] = "alloc",
    [CALL_CLOSE] = "close",
    [CALL_CLOSE_READ] = "close_read",
    [CALL_CREATE] = "create",
    [CALL_FACCESSAT] = "faccessat",
    [CALL_FCNTL] = "fcntl",
    [CALL_FFLUSH] = "fflush",
    [CALL_FLOCK] = "flock",
    [CALL_FSTAT] = "fstat",
    [CALL_FSTATAT] = "fstatat",
    [CALL_FSTATFS] = "fstatfs",
    [CALL_FSTATVFS] = "fstatvfs",
    [CALL_FSYNC] = "fsync",
    [CALL_FTRUNCATE] = "ftruncate",
    [CALL_FUTIMENS] = "futimens",
    [CALL_JOURNAL] = "journal",
    [CALL_MADVISE] = "madvise",
    [CALL_MKDIRAT] = "mkdirat",
    [CALL_MMAP] = "mmap",
    [CALL_OPEN] = "open",
    [CALL_PREAD] = "pread",
    [CALL_PROCESS_VM_WRITEV] = "process_vm_writev",
    [CALL_PTHREAD_CREATE] = "pthread_create",
    [CALL_PWRITE] = "pwrite",
    [CALL_READLINK] = "readlink",
    [CALL_REALPATH] = "realpath",
    [CALL_RENAMEAT] = "renameat",
    [CALL_RENAMEAT2] = "renameat2",
    [CALL_SCANDIRAT] = "scandirat",
    [CALL_STAT] = "stat",
    [CALL_STATX] = "statx",
    [CALL_SYNC_FILE_RANGE] = "sync_file_range",
    [CALL_UNLINKAT] = "unlinkat",
};

typedef enum how { HOW_FAIL, HOW_SHORT, HOW_FULL, HOW_BEFORE, HOW_AFTER, HOW_CUT, HOW_COUNT } how;

static const char *const how_names[HOW_COUNT] = {"fail", "short", "full", "before", "after", "cut"};

static struct {
    uint64_t calls; // a bit for each kind that is counted
    uint64_t at, every;
    how how;
    int value;
    bool no_rename_flags;
} fault;

// As injection.py reads it. Counted atomically.
typedef struct report {
    uint64_t n_calls;
    uint64_t n_struck;
    uint64_t is_over;      // main has returned
    uint64_t n_left_open;  // descriptors that main opened and did not close
    uint64_t n_bad_closes; // of what was not open
    uint64_t n_resyncs;    // fsyncs of a file for which one had failed
} report;

static report unread;
static report *figures = &unread;

// In main, or in a thread that it started. Initial-exec: malloc looks at it before libraries may
// ask for memory for their thread-local variables.
static __thread bool armed __attribute__((tls_model("initial-exec")));

void *fault_next(const char *name) {
    void *function = dlsym(RTLD_NEXT, name);
    if (!function)
        abort();
    return function;
}

void fault_arm(void) { armed = true; }

static bool strikes(uint64_t n) {
    if (fault.at == 0 || n < fault.at)
        return false;
    return n == fault.at || fault.how == HOW_FULL ||
           (fault.every && (n - fault.at) % fault.every == 0);
}

fate fault_meet(call which) {
    if (!armed || !(fault.calls >> which & 1))
        return PASS;
    const uint64_t n = __atomic_add_fetch(&figures->n_calls, 1, __ATOMIC_RELAXED);
    if (!strikes(n))
        return PASS;
    __atomic_add_fetch(&figures->n_struck, 1, __ATOMIC_RELAXED);
    switch (fault.how) {
    case HOW_SHORT:
        return SHORT;
    case HOW_BEFORE:
        raise(fault.value);
        return PASS;
    case HOW_AFTER:
        return PASS_THEN_SIGNAL;
    case HOW_CUT:
        return HALF_THEN_SIGNAL;
    default:
        if (fault.how == HOW_FULL && n == fault.at)
            return HALF;
        errno = fault.value;
        return FAIL;
    }
}

long fault_end(fate met, long result) {
    if (met == PASS_THEN_SIGNAL || met == HALF_THEN_SIGNAL) {
        const int errno_value = errno;
        raise(fault.value);
        errno = errno_value;
    }
    return result;
}

size_t fault_part(fate met, size_t nbytes) {
    enum { LONGEST_PART = 61 };
    static size_t turn;
    if (met == HALF || met == HALF_THEN_SIGNAL)
        return (nbytes + 1) / 2;
    if (met != SHORT)
        return nbytes;
    const size_t part = 1 + __atomic_fetch_add(&turn, 1, __ATOMIC_RELAXED) % LONGEST_PART;
    return part < nbytes ? part : nbytes;
}

void fault_bad_close(void) { __atomic_add_fetch(&figures->n_bad_closes, 1, __ATOMIC_RELAXED); }

void fault_sync(int fd, bool has_failed) {
    enum { MAX_FAILED = 64 };
    static struct stat failed[MAX_FAILED];
    static size_t n_failed;
    struct stat st;
    if (syscall(SYS_fstat, fd, &st) != 0)
        return;
    for (size_t i = 0; i < n_failed; i++) {
        if (failed[i].st_dev == st.st_dev && failed[i].st_ino == st.st_ino)
            figures->n_resyncs++;
    }
    if (has_failed && n_failed < MAX_FAILED)
        failed[n_failed++] = st;
}

bool fault_rename_flags_unknown(void) { return fault.no_rename_flags; }

static uint64_t number(const char *name) {
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : 0;
}

static void read_settings(void) {
    const char *calls = getenv("FAULT_CALLS"), *manner = getenv("FAULT_HOW");
    char list[512], item[64];
    snprintf(list, sizeof list, ",%s,", calls ? calls : "");
    for (int i = 0; i < CALL_COUNT; i++) {
        snprintf(item, sizeof item, ",%s,", call_names[i]);
        if (strstr(list, item))
            fault.calls |= UINT64_C(1) << i;
    }
    for (int i = 0; i < HOW_COUNT; i++) {
        if (manner && strcmp(manner, how_names[i]) == 0)
            fault.how = (how)i;
    }
    fault.at = number("FAULT_AT");
    fault.every = number("FAULT_EVERY");
    fault.value = (int)number("FAULT_VALUE");
    fault.no_rename_flags = number("FAULT_NO_RENAME_FLAGS") != 0;
}

// Mapped, so that the figures are in the file at any moment.
static void open_report(void) {
    const char *path = getenv("FAULT_REPORT");
    const int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    void *memory = mmap(NULL, sizeof *figures, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory != MAP_FAILED)
        figures = memory;
    close(fd);
}

enum { MAX_FD = 256 }; // descriptors from here on are not looked at

static void look_at_descriptors(bool is_open[MAX_FD]) {
    for (int fd = 0; fd < MAX_FD; fd++)
        is_open[fd] = syscall(SYS_fcntl, fd, F_GETFD) >= 0;
}

typedef int program(int argc, char **argv, char **environment);

static program *real_main;

static int armed_main(int argc, char **argv, char **environment) {
    bool before[MAX_FD], after[MAX_FD];
    read_settings();
    open_report();
    look_at_descriptors(before);
    fault_arm();
    const int code = real_main(argc, argv, environment);
    armed = false;
    look_at_descriptors(after);
    for (int fd = STDERR_FILENO + 1; fd < MAX_FD; fd++) // streams may be filled in for good
        figures->n_left_open += !before[fd] && after[fd];
    figures->is_over = 1;
    return code;
}

// What starts main, once everything that is loaded with the program has been set up.
int __libc_start_main(program *main, int argc, char **argv, void (*init)(void), void (*fini)(void),
                      void (*rtld_fini)(void), void *stack_end);
int __libc_start_main(program *main, int argc, char **argv, void (*init)(void), void (*fini)(void),
                      void (*rtld_fini)(void), void *stack_end) {
    real_main = main;
    return NEXT(__libc_start_main)(armed_main, argc, argv, init, fini, rtld_fini, stack_end);
}
