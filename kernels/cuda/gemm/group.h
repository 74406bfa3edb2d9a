// Strips of several weights that get their Y from one grouped GEMM: a place for each in GPU memory.
//
// Strips lie on the GPU of their lane, so that a group has places on every GPU and one launch on
// each. A strip is a group of the masked GEMM, and all multiply the same rows of A. Places whose
// strip has not ended have no rows: what has ended can be launched at any time, always as the same
// product of all places, of which the kernel that is chosen, and so the bits, depend.
#ifndef FQ_KERNELS_CUDA_GROUP_H
#define FQ_KERNELS_CUDA_GROUP_H

#include "kernels/cuda/device.h"

// Notes how much memory of the GPU groups may take: a quarter of what is free now. A group takes a
// quarter of that at most, for the three projections of a layer lie mixed in the files, and one of
// the next layer may begin before they end.
fq_status fq_cuda_groups_find_room(fq_cuda_gpu *gpu, fq_error *err);

// These are the GEMM's own: see fq_gemm. Too few places are no more than the GPU has lanes, and not
// all strips': a lane that looks for one might find none that is free or can be launched.
fq_status fq_cuda_group_open(fq_gemm_group **out, fq_device *device,
                             const fq_gemm_group_options *options, fq_error *err);
fq_status fq_cuda_group_launch(fq_device *device, fq_gemm_group *group, fq_error *err);
void fq_cuda_group_close(fq_device *device, fq_gemm_group *group);

// Gives the strip of a lane a place in the group. The lane's GPU is the current one, and stays it.
fq_status fq_cuda_places_enter(fq_cuda_strip *strip, const fq_gemm_strip *what, uint32_t lane,
                               fq_error *err);

// Points the strip at what its place has for a piece from that column of the weight on.
void fq_cuda_places_find_piece(fq_cuda_strip *strip, uint64_t col0);

// The strip gives its place to the group: to be launched, once the lane has done all its work, or
// empty. A strip without a place is left alone.
void fq_cuda_places_leave(fq_cuda_strip *strip, bool has_ended);

#endif
