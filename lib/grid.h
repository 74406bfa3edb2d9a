// The shape of a scale tensor against the weight it belongs to: which block it speaks of.
#ifndef FQ_GRID_H
#define FQ_GRID_H

#include "pairing.h"

// Fills pair->storage and pair->block from the dtypes and shapes of pair->weight (rank 2 or 3, not
// empty) and pair->scale, by docs/formats.md ("Reading scales"). FQ_BAD_INPUT if nothing fits: the
// text of *why is then the reason, without file and tensor.
fq_status fq_grid_match(fq_pair *pair, const fq_quant_config *quant, fq_error *why);

#endif
