// --checksum: what a session copies is read once more before it, and on disk after it.
#ifndef FQ_CMD_COPIES_H
#define FQ_CMD_COPIES_H

#include "formats/output.h"
#include "session.h"

// Makes the checksums known of all that the session's plan copies. Nothing without --checksum.
fq_status fq_copies_read(fq_session *session, fq_error *err);

// Compares the copies in the finished shards with the checksums. Nothing without --checksum. FQ_IO
// at the first that differs; its shard is then not finished any more.
fq_status fq_copies_verify(fq_session *session, const fq_output *output, fq_error *err);

#endif
