// Signals: the first one asks the run to stop, the second one kills.
#ifndef FQ_CMD_SIGNALS_H
#define FQ_CMD_SIGNALS_H

// Catches SIGINT, SIGTERM and SIGHUP, and ignores SIGPIPE and SIGXFSZ: writes then fail with EPIPE
// and EFBIG, and are cleaned up after like any other.
void fq_signals_catch(void);

// 0, or the signal that came. Read it atomically.
extern int fq_signals_caught;

#endif
