// The built-in rules on names: one table that decides, and that --list-rules prints.
#include "glob.h"
#include "policy_draft.h"

#include <string.h>

// Conditions of rules, in the words that are printed.
static const char under_mtp[] = "under a component mtp*";
static const char on_top[] = "as the first component";

static const char embedding[] = "embedding: looked up, not multiplied";
static const char output_head[] = "output head: sensitive, and engines load it unquantized";
static const char norm[] = "norm";
static const char router[] = "router: sensitive, and engines load it unquantized";
static const char mtp_input[] = "input projection of a multi-token prediction layer";
static const char sparse_attention[] = "sparse attention's own weighting: sensitive";
static const char recurrent[] = "small, sensitive part of linear attention";
static const char rotary[] = "rotary table";
static const char tower[] = "vision or audio part";
static const char hyper_connection[] = "hyper-connection: sensitive";
static const char adapter[] = "LoRA adapter";
static const char classifier[] = "classification head";

// docs/policy.md says which model family asks for which row.
static const fq_component_rule rules[] = {
    {"embed*", "", embedding},
    {"*_embeddings", "", embedding},
    {"wte", "", embedding},
    {"wpe", "", embedding},
    {"lm_head", "", output_head},
    {"head", "", output_head},
    {"output", on_top, output_head},
    {"*norm*", "", norm},
    {"ln_*", "", norm},
    {"gate", "", router},
    {"router", "", router},
    {"shared_expert_gate", "", router},
    {"eh_proj", "", mtp_input},
    {"fc", under_mtp, mtp_input},
    {"weights_proj", "", sparse_attention},
    {"compressor", "", sparse_attention},
    {"conv1d", "", recurrent},
    {"A_log", "", recurrent},
    {"dt_bias", "", recurrent},
    {"in_proj_a", "", recurrent},
    {"in_proj_b", "", recurrent},
    {"in_proj_ba", "", recurrent},
    {"rotary_emb", "", rotary},
    {"score", "", classifier},
    {"classifier", "", classifier},
    {"visual", "", tower},
    {"vision*", "", tower},
    {"audio*", "", tower},
    {"*_tower", "", tower},
    {"*projector*", "", tower},
    {"merger", "", tower},
    {"aligner", "", tower},
    {"patch_merge_mlp", "", tower},
    {"hc_*", "", hyper_connection},
    {"lora_*", "", adapter},
};

enum { N_RULES = sizeof rules / sizeof rules[0] };

const fq_component_rule *fq_policy_rules(size_t *n) {
    *n = N_RULES;
    return rules;
}

// The component that starts at position `start` of a module's name of n bytes.
static size_t component_length(const char *module, size_t start, size_t n) {
    const char *dot = memchr(module + start, '.', n - start);
    return dot ? (size_t)(dot - module) - start : n - start;
}

static bool is_under(const char *glob, const char *module, size_t component_start) {
    for (size_t start = 0; start < component_start;) {
        const size_t length = component_length(module, start, component_start);
        if (fq_glob_match_n(glob, module + start, length))
            return true;
        start += length + 1;
    }
    return false;
}

static bool holds(const fq_component_rule *rule, const char *module, size_t component_start) {
    if (rule->where == under_mtp)
        return is_under("mtp*", module, component_start);
    if (rule->where == on_top)
        return component_start == 0;
    return true;
}

const fq_component_rule *fq_policy_rule_for(const char *module, size_t n) {
    for (size_t start = 0; start < n;) {
        const size_t length = component_length(module, start, n);
        for (size_t i = 0; i < N_RULES; i++) {
            // Most rows differ in the first byte, and names may be many and long.
            if (*rules[i].glob != '*' && *rules[i].glob != module[start])
                continue;
            if (fq_glob_match_n(rules[i].glob, module + start, length) &&
                holds(&rules[i], module, start))
                return &rules[i];
        }
        start += length + 1;
    }
    return NULL;
}

bool fq_policy_rule_is_embedding(const fq_component_rule *rule) {
    return rule->reason == embedding;
}

bool fq_policy_rule_is_output_head(const fq_component_rule *rule) {
    return rule->reason == output_head;
}
