// The parts of verify's page that show how errors of blocks, and scales, are distributed.
#include "verify_html.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

enum {
    HEIGHT = 1000,         // of a plot, in its units; a bin is one unit wide
    FIRST_ERROR_BIN = 40,  // 2 %: where plots begin and end at least
    LAST_ERROR_BIN = 80,   // 4 %
    BINS_PER_PERCENT = 20, // see FQ_VERIFY_ERROR_BINS
};

// Bins first up to, and without, end.
typedef struct range {
    size_t first, end;
} range;

// Those that hold something; empty if none does.
static range find_range(const uint64_t *bins, size_t n) {
    range found = {0, n};
    while (found.end > 0 && bins[found.end - 1] == 0)
        found.end--;
    while (found.first < found.end && bins[found.first] == 0)
        found.first++;
    return found;
}

static uint64_t sum_bins(const uint64_t *bins, size_t n) {
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += bins[i];
    return sum;
}

// A decade above the greatest count of all.
static int count_decades(const uint64_t *bins, range shown) {
    uint64_t greatest = 1;
    for (size_t i = shown.first; i < shown.end; i++)
        greatest = bins[i] > greatest ? bins[i] : greatest;
    return (int)ceil(log10((double)greatest + 1));
}

// The height of a bar: of the logarithm, with one decade under a count of 1 so that it shows.
static int height_of(uint64_t n, int decades) {
    const double least = 0.3; // of a decade
    if (n == 0)
        return 0;
    const double share = (log10((double)n) + least) / (decades + least);
    return (int)lround(HEIGHT * share);
}

// The vertical axis: a line and a label for 1, 10, 100 and so on.
static void put_decades(const fq_page *page, int decades, range shown) {
    fputs("<path class=\"grid\" d=\"", page->file);
    for (int i = 0; i <= decades; i++)
        fprintf(page->file, "M0 %dH%zu", HEIGHT - height_of((uint64_t)llround(pow(10, i)), decades),
                shown.end - shown.first);
    fputs("\"/>", page->file);
}

static void put_labels(const fq_page *page, int decades) {
    // Every decade of few, every third of many: 1, 1,000, 1,000,000.
    const int step = decades > 4 ? 3 : 1;
    for (int i = 0; i <= decades; i += step) {
        const uint64_t n = (uint64_t)llround(pow(10, i));
        fprintf(page->file, "<span class=\"y\" style=\"top:%.1f%%\">",
                100.0 - 100.0 * height_of(n, decades) / HEIGHT);
        fq_html_count(page->file, n);
        fputs("</span>", page->file);
    }
}

static void begin_plot(const fq_page *page, range shown, int decades) {
    fprintf(page->file,
            "<div class=\"plot tall\"><svg aria-hidden=\"true\" viewBox=\"0 0 %zu %d\" "
            "preserveAspectRatio=\"none\">",
            shown.end - shown.first, HEIGHT);
    put_decades(page, decades, shown);
}

static void put_bar(const fq_page *page, const char *class, size_t place, int height) {
    fprintf(page->file, "<rect class=\"%s\" x=\"%zu.08\" y=\"%d\" width=\".84\" height=\"%d\">",
            class, place, HEIGHT - height, height);
}

static void end_bar(const fq_page *page, uint64_t n, const char *what) {
    fputs(": ", page->file);
    fq_html_count(page->file, n);
    fprintf(page->file, " %s%s</title></rect>", what, fq_plural(n));
}

static void put_x_label(const fq_page *page, double place, const range *shown) {
    fprintf(page->file, "<span class=\"x\" style=\"left:%.2f%%\">",
            100 * (place - (double)shown->first) / (double)(shown->end - shown->first));
}

// ---- Errors

// The share of the blocks with the least errors: how great they are at most.
static void put_quantile(const fq_page *page, uint64_t n, double share) {
    const uint64_t *bins = page->verify->summary.block_errors;
    const uint64_t wanted = (uint64_t)ceil(share * (double)n);
    uint64_t sum = 0;
    size_t i = 0;
    while (i < FQ_VERIFY_ERROR_BINS - 1 && (sum += bins[i]) < wanted)
        i++;
    if (i < FQ_VERIFY_ERROR_BINS - 1)
        fprintf(page->file, "under %.4g&nbsp;%%", (double)(i + 1) / BINS_PER_PERCENT);
    else
        fputs("up to the worst", page->file);
}

static void put_error_summary(const fq_page *page, uint64_t n) {
    const fq_verify_summary *summary = &page->verify->summary;
    const uint64_t *bins = summary->block_errors;
    const size_t beyond = 6 * BINS_PER_PERCENT; // FQ_PAGE_MOST, rounded up to a bin's edge
    const uint64_t n_beyond = sum_bins(bins + beyond, FQ_VERIFY_ERROR_BINS - beyond);
    fputs("<p>Of ", page->file);
    fq_html_count(page->file, n);
    fprintf(page->file, " block%s half have an error ", fq_plural(n));
    put_quantile(page, n, 0.5);
    fputs(", 99 in 100 ", page->file);
    put_quantile(page, n, 0.99);
    fputs("; the worst has ", page->file);
    fq_html_percent(page->file, summary->worst_block_rel_l2);
    fputs("&nbsp;%. ", page->file);
    if (n_beyond == 0) {
        fputs("None is over 6&nbsp;%, which rounding alone cannot reach.</p>\n", page->file);
        return;
    }
    fq_html_count(page->file, n_beyond);
    fprintf(page->file,
            " %s over 6&nbsp;%%: more than rounding explains, unless under the amax floor.</p>\n",
            n_beyond == 1 ? "is" : "are");
}

static void put_error_axis(const fq_page *page, const range *shown) {
    // Half percents where there is room.
    const size_t step = shown->end - shown->first <= 60 ? BINS_PER_PERCENT / 2 : BINS_PER_PERCENT;
    for (size_t bin = 0; bin <= 8 * BINS_PER_PERCENT; bin += step) {
        if (bin < shown->first || bin > shown->end)
            continue;
        put_x_label(page, (double)bin, shown);
        fprintf(page->file, "%.3g&nbsp;%%</span>", (double)bin / BINS_PER_PERCENT);
    }
}

void fq_page_block_errors(const fq_page *page) {
    const uint64_t *bins = page->verify->summary.block_errors;
    const uint64_t n = sum_bins(bins, FQ_VERIFY_ERROR_BINS);
    range shown = find_range(bins, FQ_VERIFY_ERROR_BINS);
    if (n == 0)
        return;
    if (shown.first > FIRST_ERROR_BIN)
        shown.first = FIRST_ERROR_BIN;
    if (shown.end < LAST_ERROR_BIN)
        shown.end = LAST_ERROR_BIN;
    const int decades = count_decades(bins, shown);
    fputs("<section id=\"blocks\">\n<h2>Errors of blocks</h2>\n", page->file);
    put_error_summary(page, n);
    begin_plot(page, shown, decades);
    for (size_t i = shown.first; i < shown.end; i++) {
        const bool is_last = i == FQ_VERIFY_ERROR_BINS - 1;
        if (bins[i] == 0)
            continue;
        put_bar(page, i >= 6 * BINS_PER_PERCENT ? "bar bad" : "bar", i - shown.first,
                height_of(bins[i], decades));
        fprintf(page->file, is_last ? "<title>%.2f %% and more" : "<title>%.2f to %.2f %%",
                (double)i / BINS_PER_PERCENT, (double)(i + 1) / BINS_PER_PERCENT);
        end_bar(page, bins[i], "block");
    }
    fputs("</svg>", page->file);
    put_labels(page, decades);
    put_error_axis(page, &shown);
    fprintf(
        page->file,
        "</div>\n<p class=\"dim under\">Blocks by their error, in steps of 0.05&nbsp;%%; heights "
        "are logarithmic.%s</p>\n</section>\n",
        shown.end == FQ_VERIFY_ERROR_BINS ? " The last bin holds all from 8&nbsp;% on." : "");
}

// ---- Scales

static int exponent_of(size_t bin) { return (int)bin - 127; }

static void put_power(const fq_page *page, size_t bin) {
    const int exponent = exponent_of(bin);
    fprintf(page->file, "2<sup>%s%d</sup>", exponent < 0 ? "\u2212" : "", abs(exponent));
}

static void put_scale_summary(const fq_page *page, const range *held, uint64_t n) {
    const fq_verify *verify = page->verify;
    uint64_t n_floored = 0, n_zero = 0;
    for (size_t i = 0; i < verify->n_tensors; i++) {
        n_floored += verify->tensors[i].weight.floored_blocks;
        n_zero += verify->tensors[i].weight.zero_blocks;
    }
    fputs("<p>", page->file);
    fq_html_count(page->file, n);
    fprintf(page->file, " scale%s, from ", fq_plural(n));
    put_power(page, held->first);
    fputs(" up to ", page->file);
    put_power(page, held->end);
    fputs(
        ". A scale is a block\u2019s amax by 448, so that a model\u2019s weights give a hill a few "
        "octaves wide; single ones far away are worth a look.",
        page->file);
    if (page->shown.errors) {
        fputs(" Blocks of zeros: ", page->file);
        fq_html_count(page->file, n_zero);
        fputs("; other blocks under the amax floor: ", page->file);
        fq_html_count(page->file, n_floored);
        fputs(".", page->file);
    }
    fputs("</p>\n", page->file);
}

static void put_scale_axis(const fq_page *page, const range *shown) {
    const size_t n = shown->end - shown->first;
    const size_t step = n <= 16 ? 2 : n <= 40 ? 4 : n <= 100 ? 16 : 32;
    for (size_t i = shown->first; i <= shown->end; i++) {
        if ((exponent_of(i) + 128) % (int)step != 0)
            continue;
        put_x_label(page, (double)i, shown);
        put_power(page, i);
        fputs("</span>", page->file);
    }
}

void fq_page_scales(const fq_page *page) {
    const uint64_t *bins = page->verify->summary.scales;
    const range held = find_range(bins, FQ_VERIFY_SCALE_BINS);
    const size_t margin = 2;
    const range shown = {held.first > margin ? held.first - margin : 0, held.end + margin};
    const int decades = count_decades(bins, held);
    if (page->verify->n_tensors == 0)
        return;
    fputs("<section id=\"scales\">\n<h2>Scales</h2>\n", page->file);
    if (held.end == 0) {
        fputs("<p>There is no sound one.</p>\n</section>\n", page->file);
        return;
    }
    put_scale_summary(page, &held, sum_bins(bins, FQ_VERIFY_SCALE_BINS));
    begin_plot(page, shown, decades);
    for (size_t i = held.first; i < held.end; i++) {
        if (bins[i] == 0)
            continue;
        put_bar(page, "bar", i - shown.first, height_of(bins[i], decades));
        fprintf(page->file, "<title>2^%d up to 2^%d", exponent_of(i), exponent_of(i + 1));
        end_bar(page, bins[i], "scale");
    }
    fputs("</svg>", page->file);
    put_labels(page, decades);
    put_scale_axis(page, &shown);
    fputs("</div>\n<p class=\"dim under\">Scales by octave; heights are logarithmic.</p>\n"
          "</section>\n",
          page->file);
}
