// Normally distributed numbers that are the same bits on every machine and in any order.
#ifndef FQ_NORMAL_H
#define FQ_NORMAL_H

#include <stdint.h>

// One number of the standard normal distribution for each seed, row and column: element [row, col]
// of a matrix without end. At most 6.34 in magnitude.
//
// 32 random bits by splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
// generators", 2014), put through the inverse of the distribution, PPND7 of algorithm AS 241
// (Wichura, 1988), which is good to seven digits. All of it is IEEE-754 arithmetic with defined
// results, logarithm included.
double fq_normal(uint64_t seed, uint64_t row, uint64_t col);

#endif
