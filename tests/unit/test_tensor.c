// Everything that is planned rests on what a tensor's dtype, size and name are taken for: the
// dtypes, the sizes as they overflow, the index of names and what is kept of metadata.
#include "lib/tensor.h"
#include "tests/check.h"

static void test_dtypes(void) {
    static const struct {
        fq_dtype dtype;
        const char *name;
        uint32_t bits, alignment;
    } expected[] = {
        {FQ_BOOL, "BOOL", 8, 1},
        {FQ_F4, "F4", 4, 1},
        {FQ_F6_E2M3, "F6_E2M3", 6, 1},
        {FQ_F6_E3M2, "F6_E3M2", 6, 1},
        {FQ_U8, "U8", 8, 1},
        {FQ_I8, "I8", 8, 1},
        {FQ_F8_E5M2, "F8_E5M2", 8, 1},
        {FQ_F8_E4M3, "F8_E4M3", 8, 1},
        {FQ_F8_E8M0, "F8_E8M0", 8, 1},
        {FQ_F8_E4M3FNUZ, "F8_E4M3FNUZ", 8, 1},
        {FQ_F8_E5M2FNUZ, "F8_E5M2FNUZ", 8, 1},
        {FQ_I16, "I16", 16, 2},
        {FQ_U16, "U16", 16, 2},
        {FQ_F16, "F16", 16, 2},
        {FQ_BF16, "BF16", 16, 2},
        {FQ_I32, "I32", 32, 4},
        {FQ_U32, "U32", 32, 4},
        {FQ_F32, "F32", 32, 4},
        {FQ_C64, "C64", 64, 8},
        {FQ_F64, "F64", 64, 8},
        {FQ_I64, "I64", 64, 8},
        {FQ_U64, "U64", 64, 8},
    };
    CHECK_U64(sizeof expected / sizeof expected[0], FQ_DTYPE_COUNT);
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        const char *name = expected[i].name;
        fq_dtype dtype = FQ_DTYPE_COUNT;
        CHECK_STR(fq_dtype_name(expected[i].dtype), name);
        CHECK(fq_dtype_from_name(&dtype, name, strlen(name)) && dtype == expected[i].dtype);
        CHECK_U64(fq_dtype_bits(expected[i].dtype), expected[i].bits);
        CHECK_U64(fq_dtype_alignment(expected[i].dtype), expected[i].alignment);
        if (expected[i].bits >= 8)
            CHECK_U64(fq_dtype_size(expected[i].dtype), expected[i].bits / 8);
    }
}

static void test_unknown_dtypes(void) {
    static const char *const names[] = {"", "bf16", "BF1", "BF16 ", "F8", "F8_E4M3FN"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        fq_dtype dtype = FQ_U64;
        CHECK(!fq_dtype_from_name(&dtype, names[i], strlen(names[i])));
        CHECK_U64(dtype, FQ_U64);
    }
    // Only the bytes that are given count.
    fq_dtype dtype = FQ_U64;
    CHECK(fq_dtype_from_name(&dtype, "F8_E4M3FNUZ", strlen("F8_E4M3")) && dtype == FQ_F8_E4M3);
}

// The product is checked from the left: a 0 saves only what comes behind it.
static void test_sizes(void) {
    static const struct {
        fq_dtype dtype;
        uint64_t shape[3];
        uint32_t rank;
        bool fits;
        uint64_t nbytes;
    } cases[] = {
        {FQ_F32, {0}, 0, true, 4},
        {FQ_F32, {0, 5, 7}, 3, true, 0},
        {FQ_BF16, {3, 5, 7}, 3, true, 210},
        {FQ_F4, {3, 2}, 2, true, 3},
        {FQ_F4, {3}, 1, false, 0},
        {FQ_F6_E2M3, {4}, 1, true, 3},
        {FQ_F6_E3M2, {2}, 1, false, 0},
        {FQ_BF16, {UINT64_C(1) << 33, 16}, 2, true, UINT64_C(1) << 38},
        {FQ_U8, {(UINT64_C(1) << 61) - 1}, 1, true, (UINT64_C(1) << 61) - 1},
        {FQ_U8, {UINT64_C(1) << 61}, 1, false, 0},
        {FQ_U8, {UINT64_C(1) << 32, UINT64_C(1) << 32}, 2, false, 0},
        {FQ_U8, {UINT64_C(1) << 32, UINT64_C(1) << 32, 0}, 3, false, 0},
        {FQ_U8, {0, UINT64_C(1) << 32, UINT64_C(1) << 32}, 3, true, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint64_t nbytes = 0;
        const bool fits = fq_tensor_nbytes(&nbytes, cases[i].dtype, cases[i].shape, cases[i].rank);
        if (!CHECK(fits == cases[i].fits))
            CHECK_NOTE("case %zu\n", i);
        CHECK_U64(nbytes, cases[i].nbytes);
    }
}

static void test_shape_text(void) {
    static const uint64_t shape[] = {7168, 2048, UINT64_MAX};
    char text[FQ_SHAPE_TEXT];
    CHECK_STR(fq_shape_format(text, sizeof text, shape, 3), "[7168, 2048, 18446744073709551615]");
    CHECK_STR(fq_shape_format(text, sizeof text, shape, 0), "[]");
    uint64_t longest[FQ_MAX_RANK];
    memset(longest, 0xFF, sizeof longest);
    fq_shape_format(text, sizeof text, longest, FQ_MAX_RANK);
    CHECK_HAS(text, "615]");
    // Cut, and within its room.
    memset(text, 'x', sizeof text);
    CHECK_STR(fq_shape_format(text, 9, shape, 3), "[7168, 2");
    CHECK_STR(fq_shape_format(text, 6, shape, 1), "[7168");
    CHECK(text[9] == 'x');
}

enum { MAX_NAMES = 8 };

// A checkpoint of two shards whose tensors have nothing but names.
typedef struct named {
    fq_arena arena;
    fq_tensor tensors[MAX_NAMES];
    fq_shard shards[2];
    fq_checkpoint checkpoint;
    const fq_tensor *duplicate;
} named;

static void index_names(named *out, const char *const *names, size_t n, size_t n_first) {
    *out = (named){0};
    for (size_t i = 0; i < n; i++)
        out->tensors[i] = (fq_tensor){.name = names[i], .shard = i >= n_first};
    out->shards[0] = (fq_shard){.name = "a", .tensors = out->tensors, .n_tensors = n_first};
    out->shards[1] =
        (fq_shard){.name = "b", .tensors = out->tensors + n_first, .n_tensors = n - n_first};
    out->checkpoint = (fq_checkpoint){.shards = out->shards, .n_shards = 2};
    fq_error err = {0};
    CHECK(fq_checkpoint_index(&out->checkpoint, &out->arena, &out->duplicate, &err) == FQ_OK);
    CHECK_U64(out->checkpoint.n_tensors, n);
}

static void test_index(void) {
    static const char *const names[] = {"b", "a.weight", "\xC3\xA9", "a", "", "a-b"};
    static const char *const sorted[] = {"", "a", "a-b", "a.weight", "b", "\xC3\xA9"};
    named made;
    index_names(&made, names, 6, 2);
    const fq_checkpoint *checkpoint = &made.checkpoint;
    CHECK(!made.duplicate);
    for (size_t i = 0; i < 6; i++) {
        CHECK_STR(checkpoint->by_name[i]->name, sorted[i]);
        CHECK_U64(fq_checkpoint_position(checkpoint, sorted[i]), i);
        CHECK(fq_checkpoint_find(checkpoint, sorted[i]) == checkpoint->by_name[i]);
    }
    CHECK_U64(fq_checkpoint_position(checkpoint, "a."), SIZE_MAX);
    CHECK(!fq_checkpoint_find(checkpoint, "c"));
    CHECK_STR(fq_tensor_file(checkpoint, fq_checkpoint_find(checkpoint, "b")), "a");
    CHECK_STR(fq_tensor_file(checkpoint, fq_checkpoint_find(checkpoint, "a")), "b");
    fq_arena_free(&made.arena);
}

static void test_duplicates(void) {
    static const char *const names[] = {"c", "a", "b", "c"};
    named made;
    index_names(&made, names, 4, 2);
    CHECK(made.duplicate && strcmp(made.duplicate->name, "c") == 0);
    fq_arena_free(&made.arena);
}

// Every name is found by each cut of it in two, as if it had been put together.
static void test_position_of(void) {
    static const char *const names[] = {"m.q",        "m.q.weight", "m.q.weight_scale",
                                        "m.q_weight", "m.\xC3\xA9", "n"};
    named made;
    index_names(&made, names, 6, 3);
    const fq_checkpoint *checkpoint = &made.checkpoint;
    for (size_t i = 0; i < 6; i++) {
        for (size_t n = 0; n <= strlen(names[i]); n++)
            CHECK_U64(fq_checkpoint_position_of(checkpoint, names[i], n, names[i] + n),
                      fq_checkpoint_position(checkpoint, names[i]));
    }
    const char *weight = "m.q.weight";
    CHECK_U64(fq_checkpoint_position_of(checkpoint, weight, 3, "_weight"),
              fq_checkpoint_position(checkpoint, "m.q_weight"));
    CHECK_U64(fq_checkpoint_position_of(checkpoint, weight, 10, "_scale_inv"), SIZE_MAX);
    CHECK_U64(fq_checkpoint_position_of(checkpoint, weight, 9, ""), SIZE_MAX);
    // The prefix is longer than names that it starts with.
    CHECK_U64(fq_checkpoint_position_of(checkpoint, "m.q.weight_scale_inv", 20, ""), SIZE_MAX);
    CHECK_U64(fq_checkpoint_position_of(checkpoint, "nn", 2, ""), SIZE_MAX);
    fq_arena_free(&made.arena);

    index_names(&made, names, 0, 0);
    CHECK_U64(fq_checkpoint_position_of(&made.checkpoint, "m", 1, ""), SIZE_MAX);
    fq_arena_free(&made.arena);
}

static void test_metadata(void) {
    static const fq_metadata entries[] = {
        {"format", "pt"}, {"fp8q.version", "1"}, {"quantization_config", "{}"}, {"fp8q", "x"},
        {"a", "1"},
    };
    fq_metadata kept[5];
    CHECK_U64(fq_metadata_without_fp8q(kept, entries, 5), 3);
    fq_metadata_sort(kept, 3);
    CHECK_STR(kept[0].key, "a");
    CHECK_STR(kept[0].value, "1");
    CHECK_STR(kept[1].key, "format");
    CHECK_STR(kept[2].key, "fp8q");
    CHECK_U64(fq_metadata_without_fp8q(kept, entries, 0), 0);
}

int main(void) {
    test_dtypes();
    test_unknown_dtypes();
    test_sizes();
    test_shape_text();
    test_index();
    test_duplicates();
    test_position_of();
    test_metadata();
    return check_result();
}
