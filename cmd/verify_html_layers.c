// The part of verify's page that shows the error of each kind of layer, by the number of the layer.
#include "verify_html.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_LAYER = 9999, // a greater number in a name is none of a layer
    MAX_PANELS = 60,  // of kinds that have not failed
    STEP = 10,        // of a layer, in units of a plot
    HEIGHT = 1000,    // of a plot, in its units
};

// A weight whose name numbers a layer.
typedef struct placed {
    const fq_verify_tensor *tensor;
    uint32_t layer;
} placed;

// Weights of one kind and layer, together.
typedef struct point {
    uint32_t layer;
    double rel_l2, least, greatest;
    bool fails;
} point;

// What all plots have in common.
typedef struct axes {
    uint32_t first_layer, last_layer;
    double bottom, top; // errors
} axes;

// The first component of digits: "12" in "model.layers.12.mlp.experts.3.up_proj.weight".
static bool find_layer(uint32_t *out, const char *name) {
    for (const char *part = name; part; part = strchr(part, '.') ? strchr(part, '.') + 1 : NULL) {
        const size_t n = strspn(part, "0123456789");
        if (n == 0 || n > 4 || part[n] != '.')
            continue;
        *out = (uint32_t)strtoul(part, NULL, 10);
        return true;
    }
    return false;
}

static int compare_placed(const void *a, const void *b) {
    const placed *x = a, *y = b;
    const int order = strcmp(x->tensor->kind, y->tensor->kind);
    return order ? order : (x->layer > y->layer) - (x->layer < y->layer);
}

// The weights that have an error and a layer, by kind and layer. NULL when out of memory.
static placed *place_weights(fq_page *page, size_t *n) {
    const fq_verify *verify = page->verify;
    placed *weights = fq_arena_array(&page->arena, verify->n_tensors, sizeof *weights);
    *n = 0;
    for (size_t i = 0; weights && i < verify->n_tensors; i++) {
        const fq_verify_tensor *tensor = &verify->tensors[i];
        uint32_t layer;
        if (tensor->weight.has_errors && find_layer(&layer, tensor->tensor->name))
            weights[(*n)++] = (placed){tensor, layer};
    }
    if (weights)
        qsort(weights, *n, sizeof *weights, compare_placed);
    return weights;
}

static axes choose_axes(const placed *weights, size_t n) {
    // Ordinary differences stay small, and one broken weight does not flatten all others.
    const double lowest = 0.02, highest = 0.03, most = 0.08;
    axes chosen = {.first_layer = MAX_LAYER, .bottom = lowest, .top = highest};
    for (size_t i = 0; i < n; i++) {
        const double error = weights[i].tensor->weight.rel_l2;
        chosen.first_layer = (uint32_t)fmin(chosen.first_layer, weights[i].layer);
        chosen.last_layer = (uint32_t)fmax(chosen.last_layer, weights[i].layer);
        chosen.bottom = fmin(chosen.bottom, error);
        chosen.top = fmax(chosen.top, error);
    }
    chosen.bottom = floor(chosen.bottom * 200) / 200;
    chosen.top = fmin(most, ceil(chosen.top * 200) / 200);
    return chosen;
}

// Height of an error in a plot, from its top.
static int y_of(const axes *a, double error) {
    const double clipped = fmin(fmax(error, a->bottom), a->top);
    return (int)lround(HEIGHT * (a->top - clipped) / (a->top - a->bottom));
}

static unsigned x_of(const axes *a, uint32_t layer) {
    return (layer - a->first_layer) * STEP + STEP / 2;
}

// The weights of one layer, which are the first of weights[n]; returns how many.
static size_t sum_point(point *out, const placed *weights, size_t n) {
    double error2 = 0, weight2 = 0;
    size_t i = 0;
    *out = (point){.layer = weights[0].layer, .least = INFINITY};
    for (; i < n && weights[i].layer == out->layer; i++) {
        const fq_verify_tensor *tensor = weights[i].tensor;
        error2 += tensor->weight.error2;
        weight2 += tensor->weight.weight2;
        out->least = fmin(out->least, tensor->weight.rel_l2);
        out->greatest = fmax(out->greatest, tensor->weight.rel_l2);
        out->fails |= tensor->reasons.n > 0;
    }
    out->rel_l2 = error2 == 0 ? 0.0 : sqrt(error2 / weight2);
    return i;
}

// One path of what points[n] have in common.
static void put_ranges(const fq_page *page, const axes *a, const point *points, size_t n) {
    fputs("<path class=\"range\" d=\"", page->file);
    for (size_t i = 0; i < n; i++) {
        if (points[i].least < points[i].greatest)
            fprintf(page->file, "M%u %dV%d", x_of(a, points[i].layer), y_of(a, points[i].least),
                    y_of(a, points[i].greatest));
    }
    fputs("\"/>", page->file);
}

// Strokes without length are dots, which keep their form in a plot that is stretched.
static void put_dots(const fq_page *page, const axes *a, const point *points, size_t n,
                     bool fails) {
    fprintf(page->file, "<path class=\"%s\" d=\"", fails ? "dots bad" : "dots");
    for (size_t i = 0; i < n; i++) {
        if (points[i].fails == fails)
            fprintf(page->file, "M%u %dh0", x_of(a, points[i].layer),
                    y_of(a, fails ? points[i].greatest : points[i].rel_l2));
    }
    fputs("\"/>", page->file);
}

static void put_axes(const fq_page *page, const axes *a) {
    const double middle = (a->bottom + a->top) / 2;
    fputs("</svg>", page->file);
    fprintf(page->file,
            "<span class=\"y\" style=\"top:0\">%.3g&nbsp;%%</span>"
            "<span class=\"y\" style=\"top:50%%\">%.3g</span>"
            "<span class=\"y\" style=\"top:100%%\">%.3g</span></div>"
            "<p class=\"ends\"><span>%u</span><span>layer</span><span>%u</span></p></figure>\n",
            100 * a->top, 100 * middle, 100 * a->bottom, a->first_layer, a->last_layer);
}

static void put_caption(const fq_page *page, const char *kind, const point *points, size_t n) {
    double least = INFINITY, greatest = 0;
    for (size_t i = 0; i < n; i++) {
        least = fmin(least, points[i].least);
        greatest = fmax(greatest, points[i].greatest);
    }
    fputs("<figure class=\"panel\"><figcaption>", page->file);
    fq_html_name(page->file, kind);
    fputs("<br><span class=\"dim\">", page->file);
    fq_html_percent(page->file, least);
    if (least < greatest) {
        fputs(" to ", page->file);
        fq_html_percent(page->file, greatest);
    }
    fputs("&nbsp;%</span></figcaption>\n", page->file);
}

static void put_panel(const fq_page *page, const axes *a, const char *kind, const point *points,
                      size_t n) {
    const unsigned width = (a->last_layer - a->first_layer + 1) * STEP;
    put_caption(page, kind, points, n);
    fprintf(page->file,
            "<div class=\"plot\"><svg aria-hidden=\"true\" viewBox=\"0 0 %u %d\" "
            "preserveAspectRatio=\"none\"><path class=\"grid\" d=\"M0 0H%uM0 %dH%uM0 %dH%u\"/>",
            width, HEIGHT, width, HEIGHT / 2, width, HEIGHT, width);
    fprintf(page->file, "<path class=\"mark\" d=\"M0 %dH%u\"/>", y_of(a, FQ_PAGE_FLOOR), width);
    put_ranges(page, a, points, n);
    put_dots(page, a, points, n, false);
    put_dots(page, a, points, n, true);
    put_axes(page, a);
}

// The plot of weights[n], all of one kind; points: room for as many. Where nothing fails it may be
// left out; returns whether something does.
static bool put_kind(const fq_page *page, const axes *a, const placed *weights, size_t n,
                     point *points, bool leave_out) {
    size_t n_points = 0;
    bool fails = false;
    for (size_t i = 0; i < n;) {
        i += sum_point(&points[n_points], weights + i, n - i);
        fails |= points[n_points++].fails;
    }
    if (fails || !leave_out)
        put_panel(page, a, weights[0].tensor->kind, points, n_points);
    return fails;
}

static void put_kinds(const fq_page *page, const placed *weights, size_t n, point *points) {
    const axes a = choose_axes(weights, n);
    size_t n_passed = 0;
    fputs("<h3>By layer</h3>\n<p>A dot is the error of a kind\u2019s weights in one layer; where "
          "there are several, as of experts, a line joins the least and the greatest. Squares are "
          "layers where one fails. Dashed: what E4M3 costs, 2.65&nbsp;%. What lies beyond a plot "
          "is drawn at its edge.</p>\n<div class=\"panels\">\n",
          page->file);
    for (size_t start = 0, end; start < n; start = end) {
        end = start + 1;
        while (end < n && strcmp(weights[end].tensor->kind, weights[start].tensor->kind) == 0)
            end++;
        n_passed +=
            !put_kind(page, &a, weights + start, end - start, points, n_passed >= MAX_PANELS);
    }
    fputs("</div>\n", page->file);
    if (n_passed > MAX_PANELS)
        fprintf(page->file, "<p>And %zu more kinds that pass.</p>\n", n_passed - MAX_PANELS);
}

fq_status fq_page_layers(fq_page *page, fq_error *err) {
    size_t n_kinds, n;
    const fq_verify_kind *kinds = fq_verify_kinds(&page->arena, &n_kinds, page->verify);
    const placed *weights = place_weights(page, &n);
    point *points = fq_arena_array(&page->arena, n, sizeof *points);
    if (!kinds || !weights || !points)
        return fq_fail_memory(err);
    if (n_kinds == 0)
        return FQ_OK;
    fputs("<section id=\"layers\">\n<h2>Kinds of layers</h2>\n", page->file);
    fq_page_kinds(page, kinds, n_kinds);
    if (n > 0)
        put_kinds(page, weights, n, points);
    fputs("</section>\n", page->file);
    return FQ_OK;
}
