// Holds config.json, or what stands for it in a lone file, against the tensors: what engines will
// make of them. See verify_work.h.
#include "verify_work.h"

#include <string.h>

// Behind the checkpoint's path.
static const char *config_place(const fq_verify *verify) {
    return verify->checkpoint->is_folder ? "/config.json" : ": metadata";
}

static void add_config_problem(fq_verify *verify, const char *text) {
    fq_messages_add(&verify->problems, "%s%s: quantization_config: %s", verify->checkpoint->path,
                    config_place(verify), text);
}

// fp8q wrote at least a part of the checkpoint.
static const fq_shard *find_own_shard(const fq_verify *verify) {
    for (size_t s = 0; s < verify->checkpoint->n_shards; s++) {
        const fq_shard *shard = &verify->checkpoint->shards[s];
        if (fq_metadata_find(shard->metadata, shard->n_metadata, "fp8q.version"))
            return shard;
    }
    return NULL;
}

// ---- Keys

// Engines that read block scales want these of quant_method fp8.
static void check_native_keys(fq_verify *verify, const fq_quant_config *quant) {
    if (!*quant->activation_scheme)
        add_config_problem(verify, "has no activation_scheme, and vLLM and SGLang refuse the model "
                                   "without it; add \"dynamic\"");
    else if (strcmp(quant->activation_scheme, "dynamic") != 0)
        add_config_problem(verify, "activation_scheme is not dynamic, and engines refuse any other "
                                   "with block scales; write \"dynamic\"");
    if (!quant->has_block)
        add_config_problem(verify, "has no weight_block_size, and engines take the weights for "
                                   "FP8 with one scale each; add it");
}

// What fp8q writes has one name and one block, whatever else would fit the shapes.
static void check_own_keys(fq_verify *verify, const fq_quant_config *quant) {
    if (*quant->method && strcmp(quant->method, "fp8") != 0)
        add_config_problem(verify, "quant_method is not fp8, and engines look for fp8q's scales "
                                   "under no other; write \"fp8\"");
    if (quant->has_block &&
        (quant->block.rows != FQ_BLOCK_SIZE || quant->block.cols != FQ_BLOCK_SIZE))
        add_config_problem(verify, "weight_block_size is not that of fp8q's scales; write "
                                   "[128, 128]");
}

static void check_keys(fq_verify *verify, const fq_model *model, bool is_own) {
    const fq_quant_config *quant = &model->quant;
    if (is_own)
        check_own_keys(verify, quant);
    if (!quant->present)
        fq_messages_add(
            &verify->problems,
            "%s/config.json: has no quantization_config, and engines take the FP8 codes "
            "for weights; add the one that fp8q convert prints",
            verify->checkpoint->path);
    else if (!*quant->method)
        add_config_problem(verify, "has no quant_method; write what the format is, as \"fp8\"");
    else if (strstr(quant->method, "fp8"))
        check_native_keys(verify, quant);
}

// ---- Scale format

// What fp8q says of its scales, in metadata and config, against what they are.
static bool is_format(const fq_pair *pair, const char *format) {
    if (strcmp(format, "packed") == 0)
        return pair->storage == FQ_STORED_PACKED;
    if (pair->storage != FQ_STORED_GRID)
        return false;
    return pair->scale->dtype == (strcmp(format, "e8m0") == 0 ? FQ_F8_E8M0 : FQ_F32);
}

static void check_format(fq_verify *verify, const char *format, const char *who) {
    size_t n = 0;
    const fq_pair *first = NULL;
    for (size_t i = 0; i < verify->pairing.n; i++) {
        if (!is_format(&verify->pairing.pairs[i], format) && n++ == 0)
            first = &verify->pairing.pairs[i];
    }
    if (first)
        fq_messages_add(&verify->problems,
                        "%s: %s: is no scale of format %s, which %s (%zu of %zu scales); convert "
                        "the model again",
                        fq_tensor_file(verify->checkpoint, first->scale), first->scale->name,
                        format, who, n, verify->pairing.n);
}

static void check_formats(fq_verify *verify, const fq_shard *own, const fq_quant_config *quant) {
    const char *said =
        own ? fq_metadata_find(own->metadata, own->n_metadata, "fp8q.scale_format") : NULL;
    if (said)
        check_format(verify, said, "the file's metadata say");
    if (*quant->scale_format && (!said || strcmp(said, quant->scale_format) != 0))
        check_format(verify, quant->scale_format,
                     verify->checkpoint->is_folder ? "config.json says" : "its metadata say");
    if (quant->present && said && strcmp(said, "f32") != 0 && !quant->ue8m0)
        add_config_problem(verify, "does not say scale_fmt \"ue8m0\", though all scales are powers "
                                   "of two; add it, or engines for Blackwell requantize");
}

// ---- The whole

static void check_without_weights(fq_verify *verify, const fq_model *model) {
    fq_messages_add(&verify->problems, "%s: holds no FP8 weight; there is nothing to verify",
                    verify->checkpoint->path);
    if (model->quant.present)
        add_config_problem(verify, "speaks of FP8 weights, but there are none; remove it");
}

// A lone file has a config in its metadata, or none: then it may be a part of a model.
static bool is_without_config(const fq_verify *verify, const fq_model *model) {
    return verify->checkpoint->is_folder ? !model->has_config : !model->quant.present;
}

static void note_unchecked(fq_verify *verify, const fq_model *model) {
    if (!verify->reference)
        fq_messages_add(&verify->notes, "no --reference: the error of weights, and whether codes "
                                        "and other tensors are right, is not checked");
    if (is_without_config(verify, model))
        fq_messages_add(&verify->notes, "no %s: what it must say is not checked",
                        verify->checkpoint->is_folder ? "config.json"
                                                      : "quantization_config in the metadata");
}

fq_status fq_verify_check_config(fq_verify_draft *draft, fq_error *err) {
    fq_verify *verify = draft->verify;
    const fq_quant_config *quant = &draft->model->quant;
    const fq_shard *own = find_own_shard(verify);
    fq_policy policy = {0};
    note_unchecked(verify, draft->model);
    if (verify->n_tensors == 0 && verify->options.n_globs == 0) {
        check_without_weights(verify, draft->model);
        return FQ_OK;
    }
    fq_status status = fq_policy_describe(&policy, &verify->arena, verify->checkpoint, draft->model,
                                          &verify->problems, err);
    if (status)
        return status;
    check_formats(verify, own, quant);
    if (is_without_config(verify, draft->model))
        return FQ_OK;
    check_keys(verify, draft->model, own != NULL);
    return quant->present ? fq_verify_check_list(draft, own != NULL, &policy, err) : FQ_OK;
}
