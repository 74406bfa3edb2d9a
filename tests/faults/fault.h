// What is to go wrong with which call, as the environment says. tests/faults/injection.py writes
// it:
//
//     FAULT_CALLS=pwrite,fsync   the kinds of call that are counted together, named as in fault.c
//     FAULT_AT=3                 the third of them is struck; 0: none, they are only counted
//     FAULT_EVERY=2              and so is every second one after it; 0: no other
//     FAULT_HOW=fail FAULT_VALUE=5
//         fail    it fails with that errno; a close does close
//         short   a read or write moves a part of its bytes
//         full    a write moves half of its bytes, and every later one fails with that errno
//         before  that signal comes before the call
//         after   that signal comes after it
//         cut     after the first half of a write
//     FAULT_NO_RENAME_FLAGS=1    besides: the file system does not know the flags of renameat2
//     FAULT_REPORT=FILE          where the figures go, even if the program is killed
//
// Only what main and its threads do is counted, not what libraries do before and after.
#ifndef FAULT_H
#define FAULT_H

#include <stdbool.h>
#include <stddef.h>

typedef enum call {
    CALL_ALLOC,      // every function that gives memory
    CALL_CLOSE,      // of a descriptor that may be written to
    CALL_CLOSE_READ, // of any other
    CALL_CREATE,     // open and openat that make a file
    CALL_FACCESSAT,
    CALL_FCNTL,
    CALL_FFLUSH, // of other streams than the standard ones
    CALL_FLOCK,
    CALL_FSTAT,
    CALL_FSTATAT,
    CALL_FSTATFS,
    CALL_FSTATVFS,
    CALL_FSYNC,
    CALL_FTRUNCATE,
    CALL_FUTIMENS,
    CALL_JOURNAL, // every call on OUTPUT.partial.journal that is one of another kind otherwise
    CALL_MADVISE,
    CALL_MKDIRAT,
    CALL_MMAP,
    CALL_OPEN, // open and openat of what is there
    CALL_PREAD,
    CALL_PROCESS_VM_WRITEV,
    CALL_PTHREAD_CREATE,
    CALL_PWRITE,
    CALL_READLINK,
    CALL_REALPATH,
    CALL_RENAMEAT,
    CALL_RENAMEAT2,
    CALL_SCANDIRAT,
    CALL_STAT,
    CALL_STATX,
    CALL_SYNC_FILE_RANGE,
    CALL_UNLINKAT,
    CALL_COUNT
} call;

// What is to be done about one call. FAIL: errno is set already.
typedef enum fate { PASS, FAIL, SHORT, HALF, PASS_THEN_SIGNAL, HALF_THEN_SIGNAL } fate;

// From here on the calls of this thread count. Main is armed already.
void fault_arm(void);

// Counts a call, and does what comes before it.
fate fault_meet(call which);

// Does what comes after a call that gave result, and returns that.
long fault_end(fate met, long result);

// The bytes that a read or write of nbytes is to move.
size_t fault_part(fate met, size_t nbytes);

// Takes down that a descriptor was closed that was not open.
void fault_bad_close(void);

// Takes down an fsync that is about to be made, or made to fail for good. By one thread at a time.
void fault_sync(int fd, bool has_failed);

bool fault_rename_flags_unknown(void);

// The function of the next library, in whose place ours is called.
void *fault_next(const char *name);

#define NEXT(name) ((__typeof__(&(name)))fault_next(#name))

#endif
