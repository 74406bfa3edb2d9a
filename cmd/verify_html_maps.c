// The part of verify's page that shows the blocks of the worst weights, by their error.
#include "verify_html.h"

#include <inttypes.h>
#include <math.h>

// The colours: each for errors under its limit, the last for all above. Fixed, so that pictures of
// all reports compare: fine around what E4M3 costs, coarse where something is wrong.
static const double limits[] = {0.02, 0.025, 0.026, 0.027, 0.03, 0.04, 0.06, 0.2};
enum { N_LIMITS = sizeof limits / sizeof limits[0], N_COLOURS = N_LIMITS + 1, MAX_LINED = 32 };

static uint32_t colour_of(float error) {
    uint32_t colour = 0;
    while (colour < N_LIMITS && !((double)error < limits[colour]))
        colour++;
    return colour;
}

static void put_legend(const fq_page *page) {
    fputs("<ul class=\"legend\" aria-label=\"Colours\">", page->file);
    for (size_t i = 0; i < N_COLOURS; i++) {
        fprintf(page->file,
                "<li><svg aria-hidden=\"true\" viewBox=\"0 0 1 1\"><path class=\"h%zu\" "
                "d=\"M0 0h1v1H0z\"/></svg>",
                i);
        if (i == 0)
            fprintf(page->file, "under %.3g", 100 * limits[0]);
        else if (i < N_LIMITS)
            fprintf(page->file, "%.3g to %.3g", 100 * limits[i - 1], 100 * limits[i]);
        else
            fprintf(page->file, "%.3g&nbsp;%% and more", 100 * limits[i - 1]);
        fputs("</li>", page->file);
    }
    fputs("</ul>\n", page->file);
}

// All cells of one colour, as one path of runs along rows.
static void put_colour(const fq_page *page, const fq_verify_map *map, uint32_t colour) {
    bool any = false;
    for (uint32_t row = 0; row < map->rows; row++) {
        const float *cells = map->cells + (size_t)row * map->cols;
        for (uint32_t col = 0, end; col < map->cols; col = end) {
            end = col + 1;
            if (colour_of(cells[col]) != colour)
                continue;
            while (end < map->cols && colour_of(cells[end]) == colour)
                end++;
            if (!any)
                fprintf(page->file, "<path class=\"h%u\" d=\"", colour);
            any = true;
            fprintf(page->file, "M%u %uh%uv1H%uz", col, row, end - col, col);
        }
    }
    if (any)
        fputs("\"/>", page->file);
}

// Lines between cells that are large enough to tell apart.
static void put_lines(const fq_page *page, const fq_verify_map *map) {
    if (map->rows > MAX_LINED || map->cols > MAX_LINED)
        return;
    fputs("<path class=\"lines\" d=\"", page->file);
    for (uint32_t row = 1; row < map->rows; row++)
        fprintf(page->file, "M0 %uH%u", row, map->cols);
    for (uint32_t col = 1; col < map->cols; col++)
        fprintf(page->file, "M%u 0V%u", col, map->rows);
    fputs("\"/>", page->file);
}

// The size of a picture: whole cells, as wide and high as the weight is, within bounds.
static void put_size(const fq_page *page, const fq_verify_map *map) {
    const double most = 20, cell = 2.5; // rem
    const double least_ratio = 0.25, greatest_ratio = 8;
    double ratio = (double)map->grid_cols / (double)map->grid_rows;
    ratio = fmin(fmax(ratio, least_ratio), greatest_ratio);
    const double width = fmin(fmin(most, cell * map->cols), most * ratio);
    fprintf(page->file, " style=\"width:%.2frem;aspect-ratio:%.4f\"", width, ratio);
}

static void put_caption(const fq_page *page, const fq_verify_tensor *tensor) {
    const fq_verify_map *map = tensor->map;
    const fq_place worst = tensor->weight.worst_block;
    fputs("<figcaption>", page->file);
    fq_html_name(page->file, tensor->tensor->name);
    fprintf(page->file, "<br><span class=\"dim\">%" PRIu64 " \u00d7 %" PRIu64 " block%s",
            map->grid_rows, map->grid_cols, fq_plural(map->grid_rows * map->grid_cols));
    if (map->rows < map->grid_rows || map->cols < map->grid_cols)
        fprintf(page->file, ", in %u \u00d7 %u cells of which each shows its worst", map->rows,
                map->cols);
    fputs("; error ", page->file);
    fq_html_percent(page->file, tensor->weight.rel_l2);
    fputs("&nbsp;%, at worst ", page->file);
    fq_html_percent(page->file, tensor->weight.worst_block_rel_l2);
    fprintf(page->file, "&nbsp;%% in block [%" PRIu64 ", %" PRIu64 "]</span></figcaption>\n",
            worst.row, worst.col);
}

// Arrows at the edges point at the worst block.
static void put_arrows(const fq_page *page, const fq_verify_tensor *tensor) {
    const fq_verify_map *map = tensor->map;
    const fq_place worst = tensor->weight.worst_block;
    const uint64_t row = worst.row * map->rows / map->grid_rows;
    const uint64_t col = worst.col * map->cols / map->grid_cols;
    fprintf(page->file,
            "<span class=\"down\" style=\"left:%.2f%%\">\u25be</span>"
            "<span class=\"right\" style=\"top:%.2f%%\">\u25b8</span>",
            100 * ((double)col + 0.5) / map->cols, 100 * ((double)row + 0.5) / map->rows);
}

static void put_map(const fq_page *page, const fq_verify_tensor *tensor) {
    const fq_verify_map *map = tensor->map;
    fputs("<figure class=\"card\">", page->file);
    put_caption(page, tensor);
    fputs("<div class=\"map\"", page->file);
    put_size(page, map);
    fprintf(page->file,
            "><svg aria-hidden=\"true\" viewBox=\"0 0 %u %u\" preserveAspectRatio=\"none\">",
            map->cols, map->rows);
    for (uint32_t colour = 0; colour < N_COLOURS; colour++)
        put_colour(page, map, colour);
    put_lines(page, map);
    fputs("</svg>", page->file);
    put_arrows(page, tensor);
    fputs("</div></figure>\n", page->file);
}

void fq_page_maps(const fq_page *page) {
    const size_t n = page->verify->n_tensors;
    if (!page->shown.errors)
        return;
    fputs("<section id=\"maps\">\n<h2>Blocks of the worst weights</h2>\n<p>Each cell is a block, "
          "where it lies in the weight, by its error in %. A whole row or column that stands out "
          "is a scale in the wrong place; a single block is a damaged scale, or has values that "
          "differ much in size. Arrows point at the worst.</p>\n",
          page->file);
    put_legend(page);
    fputs("<div class=\"maps\">\n", page->file);
    for (size_t i = 0; i < n; i++) {
        if (page->worst[i]->map)
            put_map(page, page->worst[i]);
    }
    fputs("</div>\n</section>\n", page->file);
}
