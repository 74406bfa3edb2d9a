// One decision of the policy on a checkpoint of a few lines: what its tests share.
#ifndef FQ_TESTS_POLICY_CASE_H
#define FQ_TESTS_POLICY_CASE_H

#include "lib/policy.h"
#include "tests/check.h"
#include "tests/header_checkpoint.h"

// The case at hand, made new by every decide.
static header_checkpoint headers;
static fq_arena arena;
static fq_policy policy;
static fq_messages faults, warnings;

static inline void reset(void) {
    header_free(&headers);
    fq_arena_free(&arena);
    fq_messages_free(&faults);
    fq_messages_free(&warnings);
    headers = (header_checkpoint){0};
}

static inline void decide_with(const char *text, const fq_model *model,
                               const fq_policy_options *options) {
    reset();
    CHECK(header_add_text(&headers, text));
    header_finish(&headers);
    fq_error err = {0};
    CHECK(fq_policy_decide(&policy, &arena, &headers.checkpoint, model, options, &faults, &warnings,
                           &err) == FQ_OK);
}

static inline void decide(const char *text) {
    const fq_model model = {0};
    const fq_policy_options options = {0};
    decide_with(text, &model, &options);
}

static inline void decide_by_rules(const char *text, const fq_name_rule *rules, size_t n_rules) {
    const fq_model model = {0};
    const fq_policy_options options = {.rules = rules, .n_rules = n_rules};
    decide_with(text, &model, &options);
}

static inline const fq_decision *find(const char *name) {
    static const fq_decision none = {.reason = "(no such tensor)"};
    const size_t position = fq_checkpoint_position(&headers.checkpoint, name);
    return CHECK(position != SIZE_MAX) ? &policy.decisions[position] : &none;
}

static inline void check_quantized(const char *name, const char *note) {
    const fq_decision *decision = find(name);
    if (!CHECK(decision->quantize))
        fprintf(stderr, "    %s is kept: %s\n", name, decision->reason);
    CHECK_STR(decision->reason, note);
}

static inline void check_kept(const char *name, const char *reason) {
    const fq_decision *decision = find(name);
    if (!CHECK(!decision->quantize))
        fprintf(stderr, "    %s is quantized\n", name);
    CHECK_HAS(decision->reason, reason);
    CHECK(decision->experts == FQ_EXPERTS_NONE);
}

static inline bool is_listed(const char *module) {
    for (size_t i = 0; i < policy.n_modules; i++) {
        if (strcmp(policy.modules_to_not_convert[i], module) == 0)
            return true;
    }
    return false;
}

#endif
