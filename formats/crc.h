// CRC-32 (RFC 1952), of bytes in a row and of files that are written in pieces, in any order.
#ifndef FQ_FORMATS_CRC_H
#define FQ_FORMATS_CRC_H

#include "lib/sink.h"

// The CRC-32 of what crc is of and nbytes more behind it; 0 is that of nothing.
uint32_t fq_crc32(uint32_t crc, const void *data, size_t nbytes);

// What rows, whose offset counts from the start of the file, add to the CRC-32 of a file of
// file_nbytes bytes (at most INT64_MAX). Where every byte is added once, the XOR of all that was
// added is the file's CRC-32: a CRC is linear, and that of a piece is moved to its place by what
// comes behind it. data as in fq_sink's write.
uint32_t fq_crc32_of_rows(const fq_sink_rows *rows, const void *data, uint64_t file_nbytes);

#endif
