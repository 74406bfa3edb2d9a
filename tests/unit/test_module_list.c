// The lists of other quantizers name modules in three languages: a name is looked up in each as its
// maker meant it, and an entry in none of them is counted, not guessed at.
#include "lib/module_list.h"
#include "tests/check.h"

static fq_arena arena;

static fq_module_list read_list(const char *const *entries, size_t n, bool names_only) {
    fq_quant_config quant = fq_model_unknown().quant;
    fq_module_list list = {0};
    fq_error err = {0};
    quant.unconverted = entries;
    quant.n_unconverted = n;
    CHECK(fq_module_list_read(&list, &arena, &quant, names_only, &err) == FQ_OK);
    return list;
}

static bool is_matched(const fq_module_list *list, const char *name, const char *by) {
    const char *entry = fq_module_list_match(list, name, strlen(name));
    return by ? entry && strcmp(entry, by) == 0 : !entry;
}

static bool is_part(const fq_module_list *list, const char *name) {
    return fq_module_list_names_part(list, name, strlen(name));
}

static void test_names(void) {
    static const char *const entries[] = {"mlp.gate", "lm_head", "visual", "a.b"};
    const fq_module_list list = read_list(entries, 4, false);
    CHECK_STR(list.key, "modules_to_not_convert");
    CHECK_U64(list.n_names, 4);
    CHECK(fq_module_list_names(&list, "lm_head", 7));
    CHECK(!fq_module_list_names(&list, "lm_head", 6));
    CHECK(!fq_module_list_names(&list, "model.lm_head", 13));
    CHECK(is_part(&list, "model.lm_head") && is_part(&list, "lm_head"));
    CHECK(is_part(&list, "model.visual.blocks.0") && is_part(&list, "x.mlp.gate"));
    CHECK(!is_part(&list, "x.mlp.gate_proj") && !is_part(&list, "xmlp.gate"));
    CHECK(is_part(&list, "a.b.c") && !is_part(&list, "a.c.b") && !is_part(&list, ""));
}

static void test_globs(void) {
    static const char *const entries[] = {"model.layers.*.self_attn", "*router*", "mtp.?"};
    const fq_module_list list = read_list(entries, 3, false);
    CHECK_U64(list.n_globs, 3);
    CHECK(is_matched(&list, "model.layers.3.self_attn", entries[0]));
    CHECK(is_matched(&list, "model.layers.3.self_attn.q_proj", entries[0]));
    CHECK(is_matched(&list, "model.layers.3.self_attn2", NULL));
    CHECK(is_matched(&list, "model.layers.3.mlp.router", entries[1]));
    CHECK(is_matched(&list, "mtp.0.fc", entries[2]));
    CHECK(is_matched(&list, "mtp.10.fc", NULL));
}

static void test_patterns(void) {
    static const char *const entries[] = {"re:.*\\.mlp\\.gate$", "re:visual.*", "lm_head"};
    const fq_module_list list = read_list(entries, 3, false);
    CHECK_U64(list.n_patterns, 2);
    CHECK_U64(list.n_names, 1);
    CHECK(is_matched(&list, "model.layers.0.mlp.gate", entries[0]));
    CHECK(is_matched(&list, "model.layers.0.mlp.gate_proj", NULL));
    CHECK(is_matched(&list, "visual.blocks.0.attn.qkv", entries[1]));
    CHECK(is_matched(&list, "model.visual.blocks.0", NULL)); // from the start
}

// What may mean one thing as a name or a glob and another as a regular expression.
static void test_what_is_not_read(void) {
    static const char *const entries[] = {
        "lm_head",           "re:(?!.*visual)", ".*gate",  "lm_head$", "a\\.b",
        "mlp\\.(gate|up).*", "^model",          "re:a{2}", "mlp.gate", "re:.*"};
    const fq_module_list list = read_list(entries, 10, false);
    CHECK_U64(list.n_unread, 7);
    CHECK_STR(list.first_unread, "re:(?!.*visual)");
    CHECK_U64(list.n_names, 2);
    CHECK_U64(list.n_patterns, 1);
    CHECK_U64(list.n_globs, 0);
}

// fp8q's own list holds names alone, whatever they look like.
static void test_names_only(void) {
    static const char *const entries[] = {"re:b", "a*", "c$"};
    const fq_module_list list = read_list(entries, 3, true);
    CHECK_U64(list.n_names, 3);
    CHECK(fq_module_list_names(&list, "a*", 2) && is_matched(&list, "ab", NULL));
}

// A list that would take for ever is not read to its end; names cost next to nothing.
static void test_limit(void) {
    enum { N = 3000 };
    static const char *entries[N];
    for (size_t i = 0; i < N; i++)
        entries[i] = i % 3 == 0 ? "re:model.layers.0.*" : i % 3 == 1 ? "model.layers.0*" : "name";
    const fq_module_list list = read_list(entries, N, false);
    CHECK_U64(list.n_names, N / 3);
    CHECK(list.n_unread > 0 && list.n_globs > 300 && list.n_patterns > 300);
    CHECK_U64(list.n_names + list.n_globs + list.n_patterns + list.n_unread, N);
}

int main(void) {
    test_names();
    test_globs();
    test_patterns();
    test_what_is_not_read();
    test_names_only();
    test_limit();
    fq_arena_free(&arena);
    return check_result();
}
