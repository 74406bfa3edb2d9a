// A copy that is not on disk what it is in the input must be found, named, and not stay behind as
// a finished shard; and the checksum must be the one that other programs compute.
#include "formats/checksum.h"
#include "tests/memory_checkpoint.h"
#include "tests/scratch_output.h"

static const char of_xx[] = "2b83b20847f3b5ada71a746cf0841ebd"; // printf xx | xxhsum -H2
static const fq_check_options two_threads = {.n_threads = 2};

static void plan_copies(fq_plan *plan, const fq_checkpoint *checkpoint) {
    const fq_quantize_options options = {.arch = "sm90", .version = "test"};
    const fq_model model = {.model_type = "", .quant = {.method = ""}};
    fq_messages faults = {0}, warnings = {0};
    fq_error err = {0};
    CHECK(fq_plan_quantize(plan, checkpoint, &model, &options, &faults, &warnings, &err) == FQ_OK);
    CHECK_U64(faults.n, 0);
    fq_messages_free(&faults);
    fq_messages_free(&warnings);
}

static const char *value_of(const fq_shard *layout, const char *key) {
    for (size_t i = 0; i < layout->n_metadata; i++) {
        if (strcmp(layout->metadata[i].key, key) == 0)
            return layout->metadata[i].value;
    }
    return NULL;
}

static void test_metadata(const scratch_input *in) {
    fq_checksums checksums = {0};
    fq_plan plan = {0};
    fq_error err = {0};
    plan_copies(&plan, &in->input.checkpoint);
    const fq_shard *layout = &plan.shards[0].layout;
    const fq_tensor *b = fq_checkpoint_find(&in->input.checkpoint, "b");
    CHECK(!fq_checksums_find(&checksums, b));
    CHECK(fq_checksums_init(&checksums, &in->input.checkpoint, &err) == FQ_OK);
    CHECK(fq_checksums_plan(&checksums, &plan, &err) == FQ_OK);
    CHECK_STR(value_of(layout, "fp8q.xxh3_128.b"), "00000000000000000000000000000000");
    CHECK(!fq_checksums_find(&checksums, b));
    const int cancelled = 1;
    const fq_check_options stopped = {.n_threads = 2, .cancelled = &cancelled};
    CHECK(fq_checksums_read(&checksums, &plan, &stopped, &err) == FQ_CANCELLED);
    err = (fq_error){0};
    CHECK(fq_checksums_read(&checksums, &plan, &two_threads, &err) == FQ_OK);
    for (size_t i = 0; i < 3; i++) {
        char key[32];
        snprintf(key, sizeof key, FQ_CHECKSUM_KEY "%c", (int)('a' + i));
        CHECK_STR(value_of(layout, key), of_xx);
    }
    for (size_t i = 1; i < layout->n_metadata; i++)
        CHECK(strcmp(layout->metadata[i - 1].key, layout->metadata[i].key) < 0);
    CHECK_STR(fq_checksums_find(&checksums, b), of_xx);
    fq_checksums_finish(&checksums);
    fq_plan_free(&plan);
}

// Writes the shard's six bytes of data, and looks at them.
static fq_status write_and_verify(const scratch_input *in, const char *data, bool *finished,
                                  fq_error *err) {
    fq_checksums checksums = {0};
    fq_plan plan = {0};
    fq_output *output = NULL;
    fq_sink_file *file = NULL;
    fq_sink_digest digest;
    plan_copies(&plan, &in->input.checkpoint);
    CHECK(fq_checksums_init(&checksums, &in->input.checkpoint, err) == FQ_OK);
    CHECK(fq_checksums_plan(&checksums, &plan, err) == FQ_OK);
    CHECK(fq_checksums_read(&checksums, &plan, &two_threads, err) == FQ_OK);
    CHECK(scratch_output(&output, "out", in, false, err) == FQ_OK);
    fq_sink *sink = fq_output_sink(output);
    const fq_sink_rows all = fq_sink_run(0, strlen(data));
    CHECK(sink->begin(sink, &file, &plan.shards[0].layout, err) == FQ_OK);
    CHECK(sink->write(file, &all, data, err) == FQ_OK);
    CHECK(sink->commit(file, &digest, err) == FQ_OK);
    *finished = true;
    const fq_status status =
        fq_checksums_verify(&checksums, &plan, output, finished, &two_threads, err);
    if (in->input.checkpoint.is_folder)
        CHECK(scratch_exists("out.partial/model.safetensors") == *finished);
    fq_output_abandon(output, false, err);
    fq_checksums_finish(&checksums);
    fq_plan_free(&plan);
    return status;
}

static void test_verify(const scratch_input *in) {
    fq_error err = {0};
    bool finished;
    CHECK(write_and_verify(in, "xxxxxx", &finished, &err) == FQ_OK && finished);
    CHECK(write_and_verify(in, "xxxyxx", &finished, &err) == FQ_IO && !finished);
    CHECK_HAS(err.text, ": b: is on disk not what it is in the input");
    CHECK_HAS(err.text,
              in->input.checkpoint.is_folder ? "out.partial/model.safetensors: " : "out.partial: ");
}

// Long names that fit into a header once, but not twice.
static void test_large_header(void) {
    enum { N_NAMES = 60, NAME_NBYTES = 1000000 };
    memory_checkpoint memory = {0};
    fq_checksums checksums = {0};
    fq_plan plan = {0};
    fq_error err = {0};
    char *names = malloc((size_t)N_NAMES * NAME_NBYTES);
    memset(names, 'n', (size_t)N_NAMES * NAME_NBYTES);
    for (size_t i = 0; i < N_NAMES; i++) {
        char *name = names + i * NAME_NBYTES;
        name[0] = (char)('0' + i);
        name[NAME_NBYTES - 1] = '\0';
        memory_checkpoint_add(&memory, 0, name, FQ_U8, 0, NULL);
    }
    memory_checkpoint_finish(&memory, 1);
    plan_copies(&plan, &memory.checkpoint);
    CHECK(fq_checksums_init(&checksums, &memory.checkpoint, &err) == FQ_OK);
    CHECK(fq_checksums_plan(&checksums, &plan, &err) == FQ_BAD_INPUT);
    CHECK_HAS(err.text, "a.safetensors: the header would have 12");
    fq_checksums_finish(&checksums);
    fq_plan_free(&plan);
    memory_checkpoint_free(&memory);
    free(names);
}

int main(void) {
    scratch_input folder, file;
    scratch_begin();
    scratch_mkdir("m");
    scratch_shard("m/model.safetensors", "a b c");
    scratch_open(&folder, "m", NULL);
    scratch_open(&file, "m/model.safetensors", NULL);
    test_metadata(&folder);
    test_verify(&folder);
    test_verify(&file);
    test_large_header();
    scratch_close(&folder);
    scratch_close(&file);
    scratch_end();
    return check_result();
}
