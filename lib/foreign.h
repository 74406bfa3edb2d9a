// Quantized formats other than block-scaled E4M3: recognised, and refused by name.
#ifndef FQ_FOREIGN_H
#define FQ_FOREIGN_H

#include "tensor.h"

// What format a tensor's weights are in, where it is one that is not read: "NVFP4", "F8_E5M2".
// NULL for any other tensor, scales of such weights too.
const char *fq_foreign_format(const fq_checkpoint *checkpoint, const fq_tensor *tensor);

#endif
