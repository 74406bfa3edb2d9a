// Layouts of shards: no hole, every tensor aligned, scales right behind their weights where that
// can be, and the source's order kept where nothing forbids it.
#include "lib/plan_build.h"
#include "tests/check.h"

#include <stdlib.h>

static const char *const names[] = {"t0", "t1", "t2", "t3", "t4", "t5", "t6", "t7"};

typedef struct spec {
    fq_dtype dtype;
    uint64_t nbytes;
    bool with_previous;
} spec;

static void lay_out(fq_plan *plan, const spec *specs, size_t n) {
    fq_error err = {0};
    fq_shard_draft draft = {0};
    plan->shards = fq_arena_array(&plan->arena, 1, sizeof *plan->shards);
    for (size_t i = 0; i < n; i++) {
        const fq_tensor tensor = {
            .name = names[i], .dtype = specs[i].dtype, .nbytes = specs[i].nbytes};
        CHECK(!fq_shard_draft_add_target(&draft, &tensor, specs[i].with_previous, &err));
    }
    CHECK(!fq_shard_draft_finish(&draft, plan, "a.safetensors", NULL, 0, &err));
    fq_shard_draft_free(&draft);
    const fq_shard *layout = &plan->shards[0].layout;
    uint64_t end = 0;
    for (size_t i = 0; i < layout->n_tensors; i++) {
        const fq_tensor *tensor = &layout->tensors[i];
        CHECK_U64(tensor->offset, end);
        CHECK_U64(tensor->offset % fq_dtype_alignment(tensor->dtype), 0);
        end += tensor->nbytes;
    }
    CHECK_U64(layout->data_nbytes, end);
    CHECK_U64(layout->n_tensors, n);
}

static void check_order(const spec *specs, size_t n, const char *expected) {
    fq_plan plan = {0};
    lay_out(&plan, specs, n);
    char order[64] = "";
    for (size_t i = 0; i < n; i++)
        strcat(order, plan.shards[0].layout.tensors[i].name + 1);
    CHECK_STR(order, expected);
    fq_plan_free(&plan);
}

int main(void) {
    const spec even[] = {{FQ_BF16, 16, false},     {FQ_F8_E4M3, 16384, false}, {FQ_F32, 8, true},
                         {FQ_F8_E4M3, 256, false}, {FQ_F8_E8M0, 8, true},      {FQ_I64, 8, false}};
    check_order(even, 6, "012345");
    // One scale of 4 bytes makes the pair a multiple of 4 only: it goes behind the others, whole.
    const spec one_block[] = {{FQ_F8_E4M3, 16384, false}, {FQ_F32, 4, true}, {FQ_I64, 8, false}};
    check_order(one_block, 3, "201");
    // Odd weights with FP32 scales: no order holds both; the scales come first, apart.
    const spec odd[] = {{FQ_F8_E4M3, 16641, false},
                        {FQ_F32, 16, true},
                        {FQ_F8_E4M3, 5, false},
                        {FQ_F32, 4, true},
                        {FQ_BF16, 6, false}};
    check_order(odd, 5, "13402");
    // With byte scales an odd pair stays together.
    const spec bytes[] = {{FQ_F8_E4M3, 16641, false}, {FQ_F8_E8M0, 4, true}, {FQ_F32, 4, false}};
    check_order(bytes, 3, "201");
    // Nor may an odd scale take a weight that needs alignment along to where nothing is aligned.
    const spec odd_scale[] = {{FQ_BF16, 6, false}, {FQ_F8_E8M0, 1, true}, {FQ_BF16, 2, false}};
    check_order(odd_scale, 3, "021");
    const spec empty[] = {{FQ_F32, 0, false}, {FQ_BF16, 2, false}, {FQ_F64, 0, false}};
    check_order(empty, 3, "021");
    // Any mixture is laid out without a hole and aligned: lay_out checks it.
    srand(1);
    for (int round = 0; round < 2000; round++) {
        static const fq_dtype dtypes[] = {FQ_F8_E4M3, FQ_BF16, FQ_F32, FQ_I64, FQ_U8, FQ_F4};
        spec specs[8] = {0};
        for (size_t i = 0; i < 8; i++) {
            specs[i].dtype = dtypes[rand() % 6];
            specs[i].nbytes = (uint64_t)(rand() % 40) * fq_dtype_alignment(specs[i].dtype);
            specs[i].with_previous = i > 0 && !specs[i - 1].with_previous && rand() % 2;
        }
        fq_plan plan = {0};
        lay_out(&plan, specs, 8);
        fq_plan_free(&plan);
    }
    return check_result();
}
