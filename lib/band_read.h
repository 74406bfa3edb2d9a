// Brings a band's source elements into one contiguous buffer.
#ifndef FQ_BAND_READ_H
#define FQ_BAND_READ_H

#include "band.h"

// Reads the band's bytes (copies), or its [rows, cols] elements, row-major, into out. Rows of a
// band narrower than its matrix are read one by one; a transposed matrix is read in stored rows
// through staging (at least FQ_MIN_BAND_ELEMENTS bytes; not used otherwise) and turned.
fq_status fq_band_read(void *out, const fq_checkpoint *checkpoint, const fq_band *band,
                       void *staging, size_t staging_nbytes, fq_error *err);

#endif
