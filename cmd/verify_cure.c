// What to do about a weight that fails, for all reports.
#include "verify_report.h"

enum { FEW = 64 }; // elements that differ: a damaged file rather than other weights

const char *fq_verify_cure(const fq_verify_tensor *tensor) {
    const fq_verify_weight *weight = &tensor->weight;
    if (tensor->reasons.n == 0)
        return NULL;
    if (!tensor->has_weight)
        return "Its values were not looked at. Compare its name, shape and scale with those of the "
               "original, and quantize it again.";
    if (weight->nonfinite.n > 0)
        return "The original is at fault: mend it, or keep that tensor unquantized (fp8q convert "
               "--on-nonfinite keep).";
    if (weight->bad_scales.n > 0 || weight->nan_codes.n > 0)
        return "An engine would compute garbage with it. Get the file again and compare its "
               "checksum; if that is right, quantize the original again.";
    const bool exact = tensor->rule == FQ_RULE_EXACT;
    const uint64_t n_differ = weight->codes_differ.n + weight->scales_differ.n;
    if (exact && n_differ > 0 && n_differ <= FEW)
        return "So few differ that the file was damaged: get it again, compare its checksum, and "
               "look at the disk or the network in between.";
    if (exact && weight->scales_differ.n > 0)
        return "Its scales were damaged, transposed, or belong to another weight, or it was made "
               "of another original; codes under a wrong scale count as wrong too. Check that "
               "--reference is the right one, and convert it again.";
    if (exact && n_differ > 0)
        return "Parts of it were changed after quantizing, or it was made of another original: "
               "check that --reference is the right one, and convert it again.";
    if (tensor->rule == FQ_RULE_BOUND && weight->out_of_bound.n > 0)
        return "Codes and scales do not belong together, or rows were moved: "
               "report it to the maker of the file, and quantize the original again.";
    if (tensor->has_gemm && tensor->gemm.kernel_rel_l2 > tensor->gemm.max_kernel_rel_l2)
        return "The sums of the GEMM are off, not the weight: try --device cpu, and report what "
               "differs.";
    if (tensor->rule == FQ_RULE_NONE)
        return "Nothing to compare it with: check that --reference is the original that it was "
               "made of, and all of that.";
    return "Quantize the original again: fp8q convert. If its error is as expected, raise the "
           "limit.";
}
