// A journal may be torn anywhere, flipped anywhere, or written by someone who means harm: what is
// read must be what was written up to the first fault, and nothing else.
#include "formats/crc.h"
#include "formats/journal.h"
#include "tests/check.h"

#include <stdlib.h>

static const char *keep[] = {"--include *.a%b", "--exclude \xFF\xC0\x80\"\n"};
static const char *nothing[1];
static fq_journal_option options[] = {{"--arch", (const char *[]){"sm90"}, 1},
                                      {"--include and --exclude", keep, 2},
                                      {"--include-file", nothing, 0}};
static fq_journal_input inputs[] = {{"a\x80.safetensors", UINT64_MAX, UINT64_MAX - 1, UINT32_MAX},
                                    {"%41", 1, 2, 3}};
static const fq_journal_run run = {"0.1.0", "convert", options, 3, inputs, 2};
static const fq_step_counts counts[] = {
    {.quantize = {.saturated = 1, .flushed_to_zero = UINT64_MAX}},
    {.quantize = {0}},
    {.quantize = {.zero_blocks = 2, .floored_blocks = 3}},
    {.dequantize = {.saturated = 4, .nan_codes = 5}},
};
static const fq_sink_digest digest = {UINT64_C(1) << 40, 0xDEADBEEF};
static const fq_tensor tensors[] = {{.name = "t\u00e4"}, {.name = "%"}};
static const fq_journal_place place = {UINT64_MAX, 1700000000000000001u}, older = {7, 0};

// All kinds of lines.
static void put_all(fq_json_text *text) {
    const fq_tensor *list[] = {&tensors[0], &tensors[1]};
    fq_journal_put_run(text, &run);
    fq_journal_put_nonfinite(text, list, 1);
    fq_journal_put_shard(text, "a\x80.safetensors", &digest, counts, 4);
    fq_journal_put_nonfinite(text, list + 1, 1);
    fq_journal_put_shard(text, "b", &digest, NULL, 0);
    fq_journal_put_complete(text, &place, &older);
    CHECK(!text->out_of_memory);
}

static void parse(fq_journal *out, const char *text, size_t n) {
    fq_error err = {0};
    char *copy = malloc(n + 1); // of its own, so that a sanitizer sees every byte read beyond it
    memcpy(copy, text, n);
    CHECK(fq_journal_parse(out, copy, n, &err) == FQ_OK);
    free(copy);
}

static void test_round_trip(void) {
    fq_json_text text = {0};
    fq_journal journal;
    fq_error err = {0};
    put_all(&text);
    for (size_t i = 0; i < text.n; i++)
        CHECK(text.bytes[i] == '\n' || (text.bytes[i] >= 0x20 && text.bytes[i] < 0x7F));
    parse(&journal, text.bytes, text.n);
    CHECK_U64(journal.nbytes, text.n);
    CHECK(fq_journal_compare(&journal.run, &run, "o", "p", &err) == FQ_OK);
    CHECK_STR(journal.run.inputs[0].name, inputs[0].name);
    CHECK_STR(journal.run.options[1].values[1], keep[1]);
    CHECK(journal.n_nonfinite == 2 && journal.n_shards == 2 && journal.is_complete);
    CHECK_STR(journal.nonfinite[0], tensors[0].name);
    CHECK_STR(journal.nonfinite[1], "%");
    CHECK_STR(journal.shards[0].name, "a\x80.safetensors");
    CHECK_U64(journal.shards[0].digest.nbytes, digest.nbytes);
    CHECK_U64(journal.shards[0].digest.crc32, digest.crc32);
    CHECK_U64(journal.shards[0].n_counts, 6);
    CHECK_U64(journal.shards[1].n_counts, 0);
    CHECK(fq_journal_place_equal(&journal.output, &place));
    CHECK(fq_journal_place_equal(&journal.replaced, &older));
    CHECK(fq_journal_is_begun(text.bytes, text.n) && fq_journal_is_begun(text.bytes, 5));
    CHECK(fq_journal_is_begun("", 0) && !fq_journal_is_begun("{\"a\"", 4));
    fq_journal_free(&journal);
    fq_json_text_free(&text);
}

// Lines that begin at or before n and end after it are gone, the others are there.
static size_t whole_lines(const fq_json_text *text, size_t n) {
    while (n > 0 && text->bytes[n - 1] != '\n')
        n--;
    return n;
}

static void test_torn_and_changed_anywhere(void) {
    fq_json_text text = {0};
    fq_journal journal;
    put_all(&text);
    for (size_t n = 0; n < text.n; n++) {
        parse(&journal, text.bytes, n);
        CHECK_U64(journal.nbytes, whole_lines(&text, n));
        fq_journal_free(&journal);
    }
    for (size_t n = 0; n < text.n; n++) {
        static const char flips[] = {1, 0x20, (char)0x80};
        for (size_t k = 0; k < sizeof flips; k++) {
            text.bytes[n] ^= flips[k];
            parse(&journal, text.bytes, text.n);
            CHECK_U64(journal.nbytes, whole_lines(&text, n));
            fq_journal_free(&journal);
            text.bytes[n] ^= flips[k];
        }
    }
    fq_json_text_free(&text);
}

// Adds a line with the checksum that is right for it. line lacks its last brace.
static void put_line(fq_json_text *text, const char *line) {
    char check[32];
    snprintf(check, sizeof check, ",\"check\":\"%08x\"}\n",
             (unsigned)fq_crc32(0, line, strlen(line)));
    fq_json_put(text, line);
    fq_json_put(text, check);
}

// Lines with good checksums that mean nothing: each ends the journal before it.
static void test_hostile_lines(void) {
    static const char *const lines[] = {
        "{",
        "{\"other\":1",
        "[1",
        "{\"shard\":1,\"nbytes\":1,\"crc32\":1,\"counts\":{}",
        "{\"shard\":\"a\",\"nbytes\":-1,\"crc32\":1,\"counts\":{}",
        "{\"shard\":\"a\",\"nbytes\":1,\"crc32\":4294967296,\"counts\":{}",
        "{\"shard\":\"a\",\"nbytes\":1,\"crc32\":1",
        "{\"shard\":\"a\",\"nbytes\":1,\"crc32\":1,\"counts\":[]",
        "{\"shard\":\"a\",\"nbytes\":1,\"crc32\":1,\"counts\":{\"x\":[1,2]}",
        "{\"shard\":\"a\",\"nbytes\":1,\"crc32\":1,\"counts\":{\"quantize.saturated\":[1]}",
        "{\"shard\":\"a\",\"nbytes\":1,\"crc32\":1,\"counts\":{\"quantize.saturated\":[1,2,3]}",
        "{\"shard\":\"a\",\"nbytes\":1,\"crc32\":1,\"counts\":{\"quantize.saturated\":[1,-2]}",
        "{\"shard\":\"a\",\"nbytes\":1,\"crc32\":1,\"counts\":{\"quantize.saturated\":{}}",
        "{\"shard\":\"a%\",\"nbytes\":1,\"crc32\":1,\"counts\":{}",
        "{\"shard\":\"a%0\",\"nbytes\":1,\"crc32\":1,\"counts\":{}",
        "{\"shard\":\"a%00\",\"nbytes\":1,\"crc32\":1,\"counts\":{}",
        "{\"shard\":\"a%zz\",\"nbytes\":1,\"crc32\":1,\"counts\":{}",
        "{\"shard\":\"a\\u0000b\",\"nbytes\":1,\"crc32\":1,\"counts\":{}",
        "{\"shard\":\"a\",\"shard\":\"b\",\"nbytes\":1,\"crc32\":1,\"counts\":{}",
        "{\"nonfinite\":\"a\"",
        "{\"nonfinite\":[1]",
        "{\"nonfinite\":[[]]",
        "{\"complete\":{\"inode\":1,\"birth_ns\":1}",
        "{\"complete\":[],\"replaced\":[]",
        "{\"fp8q_journal\":1,\"version\":\"0\",\"command\":\"c\",\"options\":{},\"input\":[]",
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        fq_json_text text = {0};
        fq_journal journal;
        fq_journal_put_run(&text, &run);
        const size_t good = text.n;
        put_line(&text, lines[i]);
        fq_journal_put_shard(&text, "b", &digest, NULL, 0);
        parse(&journal, text.bytes, text.n);
        if (!CHECK(journal.nbytes == good && journal.n_shards == 0 && journal.n_nonfinite == 0 &&
                   !journal.is_complete))
            CHECK_NOTE("%s\n", lines[i]);
        fq_journal_free(&journal);
        fq_json_text_free(&text);
    }
}

static void test_hostile_first_lines(void) {
    static const char *const lines[] = {
        "{\"fp8q_journal\":2,\"version\":\"0\",\"command\":\"c\",\"options\":{},\"input\":[]",
        "{\"fp8q_journal\":1,\"version\":0,\"command\":\"c\",\"options\":{},\"input\":[]",
        "{\"fp8q_journal\":1,\"version\":\"0\",\"options\":{},\"input\":[]",
        "{\"fp8q_journal\":1,\"version\":\"0\",\"command\":\"c\",\"options\":[],\"input\":[]",
        "{\"fp8q_journal\":1,\"version\":\"0\",\"command\":\"c\",\"options\":{\"a\":1},\"input\":["
        "]",
        "{\"fp8q_journal\":1,\"version\":\"0\",\"command\":\"c\",\"options\":{\"a\":[1]},\"input\":"
        "[]",
        "{\"fp8q_journal\":1,\"version\":\"0\",\"command\":\"c\",\"options\":{},\"input\":{}",
        "{\"fp8q_journal\":1,\"version\":\"0\",\"command\":\"c\",\"options\":{},\"input\":[1]",
        "{\"fp8q_journal\":1,\"version\":\"0\",\"command\":\"c\",\"options\":{},\"input\":[{"
        "\"name\":"
        "\"a\",\"nbytes\":1.0,\"mtime_ns\":1,\"crc32\":1}]",
        "{\"shard\":\"a\",\"nbytes\":1,\"crc32\":1,\"counts\":{}",
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        fq_json_text text = {0};
        fq_journal journal;
        put_line(&text, lines[i]);
        parse(&journal, text.bytes, text.n);
        if (!CHECK(journal.nbytes == 0))
            CHECK_NOTE("%s\n", lines[i]);
        fq_journal_free(&journal);
        fq_json_text_free(&text);
    }
}

static void test_compare(void) {
    static const char *b_values[] = {"sm100"};
    fq_journal_option changed[] = {options[0], options[1], options[2]};
    fq_journal_input moved[] = {inputs[0], inputs[1]};
    fq_journal_run other = run;
    fq_error err = {0};
    other.version = "0.2.0";
    CHECK(fq_journal_compare(&run, &other, "o", "p", &err) == FQ_USAGE);
    CHECK_HAS(err.text, "o: p was left by fp8q 0.1.0, and this is fp8q 0.2.0");
    other = run;
    other.command = "dequant";
    CHECK(fq_journal_compare(&run, &other, "o", "p", &err) == FQ_USAGE);
    CHECK_HAS(err.text, "by fp8q convert, and this is fp8q dequant");
    other = run;
    other.options = changed;
    changed[0].values = b_values;
    CHECK(fq_journal_compare(&run, &other, "o", "p", &err) == FQ_USAGE);
    CHECK_HAS(err.text, "o: --arch: was sm90 in the run that left p, is sm100 now");
    changed[0] = options[0];
    changed[1].n_values = 1;
    CHECK(fq_journal_compare(&run, &other, "o", "p", &err) == FQ_USAGE);
    CHECK_HAS(err.text, "is --include *.a%b now");
    changed[1].n_values = 0;
    CHECK(fq_journal_compare(&run, &other, "o", "p", &err) == FQ_USAGE);
    CHECK_HAS(err.text, "is not given now");
    other = run;
    other.n_options = 2; // a journal with more options than the program knows of
    CHECK(fq_journal_compare(&run, &other, "o", "p", &err) == FQ_USAGE);
    CHECK(fq_journal_compare(&other, &run, "o", "p", &err) == FQ_USAGE);
    CHECK_HAS(err.text, "--include-file: was not given");
    other = run;
    other.inputs = moved;
    for (int i = 0; i < 4; i++) {
        moved[1] = inputs[1];
        moved[1].nbytes += i == 0;
        moved[1].mtime_ns += i == 1;
        moved[1].crc32 += i == 2;
        moved[1].name = i == 3 ? "A" : "%41";
        CHECK(fq_journal_compare(&run, &other, "o", "p", &err) == FQ_USAGE);
        CHECK_HAS(err.text, i == 3 ? "o: A of the input is not" : "o: %41 of the input is not");
    }
    other = run;
    other.n_inputs = 1;
    CHECK(fq_journal_compare(&run, &other, "o", "p", &err) == FQ_USAGE);
    CHECK(fq_journal_compare(&other, &run, "o", "p", &err) == FQ_USAGE);
}

static void test_counts(void) {
    const fq_step steps[] = {{.action = FQ_QUANTIZE, .source_matrix = {.rows = 4, .cols = 5}},
                             {.action = FQ_COPY},
                             {.action = FQ_DEQUANTIZE, .source_matrix = {.rows = 4, .cols = 5}}};
    const fq_plan_shard shard = {.steps = (fq_step *)steps, .n_steps = 3};
    static const struct {
        fq_journal_count count;
        bool fits;
    } cases[] = {
        {{0, offsetof(fq_step_counts, quantize.zero_blocks), 20}, true},
        {{0, offsetof(fq_step_counts, quantize.zero_blocks), 21}, false},
        {{0, offsetof(fq_step_counts, dequantize.nan_codes), 1}, false},
        {{1, offsetof(fq_step_counts, quantize.saturated), 1}, false},
        {{2, offsetof(fq_step_counts, dequantize.saturated), 1}, true},
        {{2, offsetof(fq_step_counts, quantize.saturated), 1}, false},
        {{3, offsetof(fq_step_counts, dequantize.saturated), 1}, false},
        {{UINT64_MAX, offsetof(fq_step_counts, dequantize.saturated), 1}, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fq_journal_count count = cases[i].count;
        const fq_journal_shard line = {.name = "a", .counts = &count, .n_counts = 1};
        fq_step_counts out[3] = {0};
        CHECK(fq_journal_counts(out, &line, &shard) == cases[i].fits);
        if (i == 0)
            CHECK_U64(out[0].quantize.zero_blocks, 20);
    }
}

// Names in a journal are looked up among the planned ones; the last line of a name counts.
static void test_match(void) {
    fq_plan_shard shards[] = {{.layout.name = "a"}, {.layout.name = "b"}, {.layout.name = "c"}};
    const fq_plan plan = {.shards = shards, .n_shards = 3};
    fq_journal_shard lines[] = {
        {.name = "b"}, {.name = "../x"}, {.name = "c"}, {.name = "b"}, {.name = ""}};
    const fq_journal journal = {.shards = lines, .n_shards = 5};
    const fq_journal_shard **found = NULL;
    fq_arena arena = {0};
    fq_error err = {0};
    CHECK(fq_journal_match(&found, &arena, &journal, &plan, &err) == FQ_OK);
    CHECK(!found[0] && found[1] == &lines[3] && found[2] == &lines[2]);
    fq_arena_free(&arena);
}

int main(void) {
    test_round_trip();
    test_torn_and_changed_anywhere();
    test_hostile_lines();
    test_hostile_first_lines();
    test_compare();
    test_counts();
    test_match();
    return check_result();
}
