// Keeps the maps of the worst tensors, whatever the order in which tensors are finished. See
// verify_work.h.
#include "verify_work.h"

#include <string.h>

fq_status fq_verify_maps_open(fq_verify_maps *out, fq_arena *arena, fq_error *err) {
    for (size_t i = 0; i < FQ_VERIFY_N_MAPS; i++) {
        out->kept[i].map = fq_arena_alloc(arena, sizeof *out->kept[i].map);
        if (!out->kept[i].map)
            return fq_fail_memory(err);
    }
    return FQ_OK;
}

void fq_verify_map_begin(fq_verify_map *out, const fq_pair *pair) {
    const uint64_t *shape = pair->weight->shape + pair->weight->rank - 2;
    const uint64_t n_matrices = pair->weight->rank == 3 ? pair->weight->shape[0] : 1;
    const uint64_t most = FQ_VERIFY_MAP_SIZE;
    out->grid_rows = n_matrices * fq_ceil_div(shape[0], pair->block.rows);
    out->grid_cols = fq_ceil_div(shape[1], pair->block.cols);
    out->rows = (uint32_t)(out->grid_rows < most ? out->grid_rows : most);
    out->cols = (uint32_t)(out->grid_cols < most ? out->grid_cols : most);
}

void fq_verify_maps_keep(fq_verify_maps *maps, fq_verify_tensor *tensor, const fq_verify_map *map) {
    size_t place = maps->n;
    while (place > 0 && fq_verify_is_worse(tensor, maps->kept[place - 1].tensor))
        place--;
    if (place == FQ_VERIFY_N_MAPS)
        return;
    const size_t last = maps->n < FQ_VERIFY_N_MAPS ? maps->n++ : FQ_VERIFY_N_MAPS - 1;
    fq_verify_map *taken = maps->kept[last].map;
    if (maps->kept[last].tensor)
        maps->kept[last].tensor->map = NULL;
    memmove(&maps->kept[place + 1], &maps->kept[place], (last - place) * sizeof *maps->kept);
    *taken = *map;
    maps->kept[place].map = taken;
    maps->kept[place].tensor = tensor;
    tensor->map = taken;
}
