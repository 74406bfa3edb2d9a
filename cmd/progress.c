// The progress thread: polls the figures of a run and prints them.
#include "progress.h"

#include "escape.h"
#include "print.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    BAR_INTERVAL_MS = 150,
    LINE_INTERVAL_MS = 5000, // where lines pile up: in a log
    MAX_BAR = 30,            // cells
    SECONDS_TEXT = 32,
    FIGURES_TEXT = 128,
};

struct fq_progress_view {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t stopped;
    bool stop; // under mutex
    fq_printer printer;
    const fq_progress *progress;
    uint64_t total_nbytes;
    struct timespec start;
};

static double seconds_since(const struct timespec *start) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - start->tv_sec) + 1e-9 * (double)(now.tv_nsec - start->tv_nsec);
}

static void format_seconds(char out[SECONDS_TEXT], double seconds) {
    const unsigned long s = seconds < 360000 ? (unsigned long)(seconds + 0.5) : 360000;
    if (s < 60)
        snprintf(out, SECONDS_TEXT, "%lu s", s);
    else if (s < 3600)
        snprintf(out, SECONDS_TEXT, "%lu:%02lu min", s / 60, s % 60);
    else
        snprintf(out, SECONDS_TEXT, "%lu:%02lu h", s / 3600, s / 60 % 60);
}

// From 0 to 1: headers that are read, too, are not in the total.
static double fraction_of(const fq_progress_view *view, uint64_t done_nbytes) {
    return done_nbytes < view->total_nbytes ? (double)done_nbytes / (double)view->total_nbytes
                                            : 1.0;
}

// "42%  3.30 GB of 7.85 GB  2.1 GB/s  ETA 3 s"
static void format_figures(char out[FIGURES_TEXT], const fq_progress_view *view,
                           const fq_progress *now) {
    char done_text[FQ_SIZE_TEXT], total_text[FQ_SIZE_TEXT], eta[SECONDS_TEXT] = "-";
    const uint64_t done = now->bytes_read + now->bytes_written;
    const double fraction = fraction_of(view, done);
    const double elapsed = seconds_since(&view->start);
    if (done > 0)
        format_seconds(eta, elapsed * (1 - fraction) / fraction);
    snprintf(out, FIGURES_TEXT, "%3.0f%%  %s of %s  %.2f GB/s  ETA %s", 100 * fraction,
             fq_format_nbytes(done_text, done), fq_format_nbytes(total_text, view->total_nbytes),
             (double)done / elapsed / 1e9, eta);
}

// The last part of a name that fits into width columns; name may be NULL.
static const char *fit_name(const char *name, size_t width) {
    enum { MAX_CHAR_NBYTES = 4 };
    if (!name)
        return "";
    const size_t n = strlen(name);
    if (n > MAX_CHAR_NBYTES * width)
        name += n - MAX_CHAR_NBYTES * width;
    while (*name && fq_escape_width(name, strlen(name)) > width)
        name++;
    return name;
}

static void show_bar(const fq_progress_view *view, const fq_progress *now) {
    char figures[FIGURES_TEXT];
    format_figures(figures, view, now);
    const size_t width = fq_printer_width(&view->printer) - 1; // the last column wraps
    const size_t n_figures = strlen(figures);
    FILE *file = view->printer.file;
    fputs("\r\033[K", file);
    if (n_figures + MAX_BAR + 3 <= width) {
        const uint64_t done = now->bytes_read + now->bytes_written;
        const int n_cells = (int)(MAX_BAR * fraction_of(view, done));
        fprintf(file, "[%.*s%*s] ", n_cells, "##############################", MAX_BAR - n_cells,
                "");
        fputs(figures, file);
        if (n_figures + MAX_BAR + 5 < width)
            fq_print(&view->printer, FQ_DIM, "  %s",
                     fit_name(now->tensor, width - n_figures - MAX_BAR - 5));
    } else {
        fprintf(file, "%.*s", (int)width, figures);
    }
    fflush(file);
}

static void show_line(const fq_progress_view *view, const fq_progress *now) {
    char figures[FIGURES_TEXT];
    format_figures(figures, view, now);
    fq_print_line(&view->printer, "fp8q: %s  %s", figures, now->tensor ? now->tensor : "");
    fflush(view->printer.file);
}

// Waits for the interval to pass, or for the end of the run. True at the end.
static bool wait_for_stop(fq_progress_view *view, long interval_ms) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += interval_ms / 1000;
    until.tv_nsec += interval_ms % 1000 * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&view->mutex);
    int result = 0;
    while (!view->stop && result != ETIMEDOUT)
        result = pthread_cond_timedwait(&view->stopped, &view->mutex, &until);
    const bool stop = view->stop;
    pthread_mutex_unlock(&view->mutex);
    return stop;
}

static void *show(void *context) {
    fq_progress_view *view = context;
    const bool bar = view->printer.is_terminal;
    while (!wait_for_stop(view, bar ? BAR_INTERVAL_MS : LINE_INTERVAL_MS)) {
        const fq_progress now = fq_progress_load(view->progress);
        if (bar)
            show_bar(view, &now);
        else
            show_line(view, &now);
    }
    if (bar) {
        fputs("\r\033[K", view->printer.file);
        fflush(view->printer.file);
    }
    return NULL;
}

static void init_condition(pthread_cond_t *condition) {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
}

static void destroy(fq_progress_view *view) {
    pthread_cond_destroy(&view->stopped);
    pthread_mutex_destroy(&view->mutex);
    free(view);
}

void fq_progress_start(fq_progress_view **out, const fq_common_options *options,
                       const fq_progress *progress, uint64_t total_nbytes) {
    *out = NULL;
    if (options->quiet || options->no_progress)
        return;
    fq_progress_view *view = calloc(1, sizeof *view);
    if (!view)
        return;
    view->printer = fq_printer_make(stderr, (fq_color)options->color);
    view->progress = progress;
    view->total_nbytes = total_nbytes;
    clock_gettime(CLOCK_MONOTONIC, &view->start);
    pthread_mutex_init(&view->mutex, NULL);
    init_condition(&view->stopped);
    if (pthread_create(&view->thread, NULL, show, view) == 0)
        *out = view;
    else
        destroy(view);
}

void fq_progress_stop(fq_progress_view *view) {
    if (!view)
        return;
    pthread_mutex_lock(&view->mutex);
    view->stop = true;
    pthread_cond_signal(&view->stopped);
    pthread_mutex_unlock(&view->mutex);
    pthread_join(view->thread, NULL);
    destroy(view);
}
