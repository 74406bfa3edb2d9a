// Brings a band's source elements into one contiguous buffer.
#ifndef FQ_BAND_READ_H
#define FQ_BAND_READ_H

#include "band.h"

// Reads the band's bytes (copies), or its elements as they are stored, into out: [rows, cols],
// row-major, or where its matrix is transposed [cols, rows]. Rows of less than what is stored are
// read one by one.
fq_status fq_band_read_stored(void *out, const fq_checkpoint *checkpoint, const fq_band *band,
                              fq_error *err);

// The same, but always as [rows, cols]: a transposed matrix is read through staging (at least
// FQ_MIN_BAND_ELEMENTS bytes; not used otherwise) and turned.
fq_status fq_band_read(void *out, const fq_checkpoint *checkpoint, const fq_band *band,
                       void *staging, size_t staging_nbytes, fq_error *err);

#endif
