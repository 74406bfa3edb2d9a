// Quantized formats other than block-scaled E4M3: recognised, and refused by name.
#ifndef FQ_FOREIGN_H
#define FQ_FOREIGN_H

#include "tensor.h"

// What format a tensor's weights are in, where it is one that is not read: "NVFP4", "F8_E5M2".
// NULL for any other tensor, scales of such weights too. name is scratch for the names of
// siblings, as long as the longest name and 32 bytes.
const char *fq_foreign_format(const fq_checkpoint *checkpoint, const fq_tensor *tensor, char *name,
                              size_t name_size);

#endif
