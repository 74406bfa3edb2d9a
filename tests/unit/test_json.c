// The JSON scanner decides what reaches every reader of untrusted text: each rule has a good and a
// bad text here. The writer must give back what was read.
#include "formats/json.h"

#include "tests/check.h"

#include <stdlib.h>

// ---- Events, written down as text: kind, depth, and the token.

static fq_status note_event(void *context, const fq_json_event *event, fq_error *err) {
    static const char *const kinds[] = {"{",   "}", "[", "]", "key",  "str",
                                        "num", "T", "F", "0", "const"};
    fq_json_text *notes = context;
    (void)err;
    fq_json_put(notes, notes->n > 0 ? " " : "");
    fq_json_put_u64(notes, event->depth);
    fq_json_put(notes, kinds[event->kind]);
    if (event->nbytes > 0) {
        fq_json_put(notes, ":");
        fq_json_put_bytes(notes, event->text, event->nbytes);
    }
    return FQ_OK;
}

static void check_events(const char *text, const char *expected) {
    const fq_json_options options = {.file = "F", .allow_constants = true};
    fq_json_text notes = {0};
    fq_error err = {0};
    CHECK(fq_json_scan(text, strlen(text), &options, note_event, &notes, &err) == FQ_OK);
    CHECK_STR(notes.bytes, expected);
    fq_json_text_free(&notes);
}

static void test_events(void) {
    check_events("{}", "0{ 0}");
    check_events(" [ 1 , -2.5e+3 ]\r\n\t", "0[ 1num:1 1num:-2.5e+3 0]");
    check_events("{\"a\":{\"b\":[true,false,null]},\"c\":\"d\"}",
                 "0{ 1key:a 1{ 2key:b 2[ 3T 3F 30 2] 1} 1key:c 1str:d 0}");
    check_events("[NaN,-Infinity,Infinity]", "0[ 1const 1const 1const 0]");
    check_events("\"\"", "0str");
    check_events("[\"\\u0041\\/\\b\\n\",\"\\u00e9\xC3\xA9\",\"\\uD83D\\ude00\"]",
                 "0[ 1str:A/\b\n 1str:\xC3\xA9\xC3\xA9 1str:\xF0\x9F\x98\x80 0]");
}

static fq_status note_place(void *context, const fq_json_event *event, fq_error *err) {
    (void)err;
    if (event->kind == FQ_JSON_STRING)
        *(fq_json_event *)context = *event;
    return FQ_OK;
}

static void test_places(void) {
    const char text[] = "{\"k\": \"a\\u0000b\" }";
    const fq_json_options options = {.file = "F"};
    fq_json_event event = {0};
    fq_error err = {0};
    CHECK(fq_json_scan(text, strlen(text), &options, note_place, &event, &err) == FQ_OK);
    CHECK_U64(event.nbytes, 3); // the NUL counts
    CHECK_U64(event.begin, 6);
    CHECK_U64(event.end, 16);
}

static fq_status stop_at_number(void *context, const fq_json_event *event, fq_error *err) {
    (void)context;
    return event->kind == FQ_JSON_NUMBER ? fq_fail(err, FQ_IO, "stopped") : FQ_OK;
}

static void test_handler_stops(void) {
    const fq_json_options options = {.file = "F"};
    fq_error err = {0};
    CHECK(fq_json_scan("[[1,nonsense", 12, &options, stop_at_number, NULL, &err) == FQ_IO);
    CHECK_STR(err.text, "stopped");
}

// ---- Grammar

static fq_status ignore_event(void *context, const fq_json_event *event, fq_error *err) {
    (void)context, (void)event, (void)err;
    return FQ_OK;
}

static fq_status scan(const char *text, size_t nbytes, bool allow_constants, fq_error *err) {
    // In memory of exactly this size, so that a sanitizer sees a byte read too many.
    char *copy = malloc(nbytes ? nbytes : 1);
    memcpy(copy, text, nbytes);
    const fq_json_options options = {.file = "F", .allow_constants = allow_constants};
    const fq_status status = fq_json_scan(copy, nbytes, &options, ignore_event, NULL, err);
    free(copy);
    return status;
}

static fq_status scan_text(const char *text, bool allow_constants, fq_error *err) {
    return scan(text, strlen(text), allow_constants, err);
}

static void test_good_texts(void) {
    static const char *const good[] = {
        "0",
        "-0",
        "1e308",
        "1E-400",
        "0.5",
        "-1.25e+2",
        "[]",
        "[[],{}]",
        "\"\x7F\"",
        "{\"\":0}",
        "{\"a\":1,\"A\":2}",
        "{\"a\":{\"a\":1},\"b\":{\"a\":2}}",
        "[{\"a\":1},{\"a\":1}]",
        "\"\xEF\xBF\xBD\xF4\x8F\xBF\xBF\"",
        "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"",
        "[\"\\u0000\"]",
        "{\"caf\xC3\xA9\":1,\"cafe\xCC\x81\":2}",
        "123456789012345678901234567890",
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        fq_error err = {0};
        if (!CHECK(scan_text(good[i], false, &err) == FQ_OK))
            fprintf(stderr, "    %s: %s\n", good[i], err.text);
    }
}

static const struct {
    const char *text;
    const char *mention;
} bad_texts[] = {
    // The frame
    {"", "ends early"},
    {"  ", "ends early"},
    {"{", "key"},
    {"[", "ends early"},
    {"[1", "ends early"},
    {"{\"a\":1", "ends early"},
    {"{\"a\"", "colon"},
    {"{} x", "goes on"},
    {"{}{}", "goes on"},
    {"\xEF\xBB\xBF{}", "value"}, // BOM
    {"{}\f", "goes on"},
    {"\v{}", "value"},
    {"/* c */{}", "value"},
    {"{}//", "goes on"},
    // Members
    {"[1,]", "value"},
    {"[,1]", "value"},
    {"[1 2]", "comma"},
    {"{\"a\":1,}", "key"},
    {"{,}", "key"},
    {"{\"a\" 1}", "colon"},
    {"{\"a\":}", "value"},
    {"{a:1}", "key"},
    {"{'a':1}", "key"},
    {"{\"a\":1]", "comma or }"},
    {"[1}", "comma or ]"},
    {"]", "value"},
    // Words
    {"tru", "value"},
    {"True", "value"},
    {"[nul]", "value"},
    {"nulll", "goes on"},
    {"NaN", "NaN"},
    {"[Infinity]", "Infinity"},
    {"[-Infinity]", "Infinity"},
    {"[-Inf]", "value"},
    {"undefined", "value"},
    // Numbers
    {"-", "value"},
    {"+1", "value"},
    {"02", "goes on"},
    {"[00]", "comma"},
    {"-02", "goes on"},
    {"1.", "number"},
    {".5", "value"},
    {"1e", "number"},
    {"1e+", "number"},
    {"[1.e5]", "number"},
    {"0x10", "goes on"},
    {"1e999", "doubles"},
    {"[-1e309]", "doubles"},
    // Strings
    {"\"", "does not end"},
    {"\"abc", "does not end"},
    {"\"a\\", "escape"},
    {"\"\\", "escape"},
    {"\"\\x41\"", "escape"},
    {"\"\\u12\"", "escape"},
    {"\"\\u12G4\"", "escape"},
    {"\"\\uD800\"", "surrogate"},
    {"\"\\uDC00\"", "surrogate"},
    {"\"\\uD800\\uD800\"", "surrogate"},
    {"\"\\uDC00\\uD800\"", "surrogate"},
    {"\"\\uD800\\n\"", "surrogate"},
    {"\"\\uD800abcdefgh\"", "surrogate"},
    {"\"\x01\"", "control"},
    {"\"\n\"", "control"},
    {"\"\xC0\x80\"", "UTF-8"},
    {"\"\xC1\xBF\"", "UTF-8"},
    {"\"\xE0\x80\x80\"", "UTF-8"},
    {"\"\xF0\x80\x80\x80\"", "UTF-8"},
    {"\"\xED\xA0\x80\"", "UTF-8"}, // a surrogate
    {"\"\xF4\x90\x80\x80\"", "UTF-8"},
    {"\"\xF5\x80\x80\x80\"", "UTF-8"},
    {"\"\xFF\"", "UTF-8"},
    {"\"\x80\"", "UTF-8"},
    {"\"\xE2\x82\"", "UTF-8"},
    {"\"\xE2\x82", "UTF-8"},
    {"{\"\xE2\":1}", "UTF-8"},
    // Keys twice
    {"{\"a\":1,\"a\":2}", "\"a\" is there twice"},
    {"{\"a\":1,\"b\":2,\"\\u0061\":3}", "\"\\u0061\" is there twice"},
    {"{\"\\u00e9\":1,\"\xC3\xA9\":2}", "twice"},
    {"{\"\\ud83d\\ude00\":1,\"\xF0\x9F\x98\x80\":2}", "twice"},
    {"[{\"x\":{\"\":1,\"\":2}}]", "twice"},
};

static void test_bad_texts(void) {
    for (size_t i = 0; i < sizeof bad_texts / sizeof bad_texts[0]; i++) {
        fq_error err = {0};
        if (!CHECK(scan_text(bad_texts[i].text, false, &err) == FQ_BAD_INPUT))
            fprintf(stderr, "    %s\n", bad_texts[i].text);
        CHECK_HAS(err.text, bad_texts[i].mention);
    }
    fq_error err = {0};
    CHECK(scan("[0,\0]", 5, false, &err) == FQ_BAD_INPUT); // cJSON takes NULs for white space
    CHECK(scan("{}\0", 3, false, &err) == FQ_BAD_INPUT);
}

static void test_fault_has_line_and_column(void) {
    fq_error err = {0};
    CHECK(scan_text("{\r\n \"a\": 1,\n \"b\": tru }", false, &err) == FQ_BAD_INPUT);
    CHECK_HAS(err.text, "F: line 3, column 7: ");
    CHECK(scan_text("{\"k\":1,\n\"k\":1}", false, &err) == FQ_BAD_INPUT);
    CHECK_HAS(err.text, "line 2, column 1: ");
}

static void test_constants_only_where_allowed(void) {
    fq_error err = {0};
    CHECK(scan_text("[0.0, Infinity, -Infinity, NaN]", true, &err) == FQ_OK);
    CHECK(scan_text("[infinity]", true, &err) == FQ_BAD_INPUT);
    CHECK(scan_text("[+Infinity]", true, &err) == FQ_BAD_INPUT);
    CHECK(scan_text("[1e999]", true, &err) == FQ_BAD_INPUT);
}

static void test_depth(void) {
    char text[2 * (FQ_JSON_MAX_DEPTH + 1)];
    fq_error err = {0};
    for (size_t depth = FQ_JSON_MAX_DEPTH; depth <= FQ_JSON_MAX_DEPTH + 1; depth++) {
        memset(text, '[', depth);
        memset(text + depth, ']', depth);
        CHECK(scan(text, 2 * depth, false, &err) ==
              (depth <= FQ_JSON_MAX_DEPTH ? FQ_OK : FQ_BAD_INPUT));
    }
    CHECK_HAS(err.text, "127");
}

// A million keys in one object: a duplicate is found, whatever its place, and none is imagined
// although many hashes of 32 bits are equal.
static void test_many_keys(void) {
    enum { N = 1000000 };
    fq_json_text text = {0};
    fq_json_put(&text, "{\"0\":0");
    for (uint64_t i = 1; i < N; i++) {
        fq_json_put(&text, ",\"");
        fq_json_put_u64(&text, i);
        fq_json_put(&text, "\":0");
    }
    fq_error err = {0};
    fq_json_put(&text, "}");
    CHECK(scan(text.bytes, text.n, false, &err) == FQ_OK);
    text.n--;
    fq_json_put(&text, ",\"777\":0}");
    CHECK(scan(text.bytes, text.n, false, &err) == FQ_BAD_INPUT);
    CHECK_HAS(err.text, "\"777\" is there twice");
    fq_json_text_free(&text);
}

// ---- Numbers

static void test_u64(void) {
    uint64_t value = 0;
    CHECK(fq_json_u64(&value, "0", 1) && value == 0);
    CHECK(fq_json_u64(&value, "9007199254740993", 16) && value == UINT64_C(9007199254740993));
    CHECK(fq_json_u64(&value, "18446744073709551615", 20) && value == UINT64_MAX);
    static const char *const bad[] = {"",
                                      "-0",
                                      "-1",
                                      "2.0",
                                      "2e0",
                                      "18446744073709551616",
                                      "1e308",
                                      "36893488147419103232",
                                      "99999999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CHECK(!fq_json_u64(&value, bad[i], strlen(bad[i])));
}

static void test_finite(void) {
    static const struct {
        const char *text;
        bool finite;
    } cases[] = {
        {"0", true},
        {"0e999999999999999999999", true},
        {"0.000e400", true},
        {"1e308", true},
        {"1e309", false},
        {"-1e309", false},
        {"1e+0000000000308", true},
        {"1E999999999999999999999", false},
        {"1e-999999999999999999999", true},
        {"1.7976931348623157e308", true},
        {"1.7976931348623158e308", false},
        {"1.7976931348623159e308", false},
        {"2e308", false},
        {"0.1e309", true},
        {"0.2e309", false},
        {"0.0001e312", true},
        {"0.0002e312", false},
        {"10000e304", true},
        {"100000e304", false},
        {"17976931348623157e292", true},
        {"17976931348623158e292", false},
        {"179e306", true},
        {"18e307", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *text = cases[i].text;
        if (!CHECK(fq_json_number_is_finite(text, strlen(text)) == cases[i].finite))
            fprintf(stderr, "    %s\n", text);
    }
}

// ---- Writing

static void check_string(const char *string, size_t n, const char *expected) {
    fq_json_text text = {0};
    fq_json_put_string(&text, string, n);
    CHECK_STR(text.bytes, expected);
    fq_json_text_free(&text);
}

static void test_put_string(void) {
    check_string("", 0, "\"\"");
    check_string("a.b/c", 5, "\"a.b/c\"");
    check_string("\"\\", 2, "\"\\\"\\\\\"");
    check_string("\n\x1B\x7F", 3, "\"\\u000a\\u001b\\u007f\"");
    check_string("a\0b", 3, "\"a\\u0000b\"");
    check_string("a\xC0\x80"
                 "b",
                 4, "\"a\\u0000b\"");
    check_string("\xC3\xA9\xE5\xB1\x82\xF0\x9F\x98\x80", 9, "\"\\u00e9\\u5c42\\ud83d\\ude00\"");
    check_string("\xFFx\xE5\xB1", 4, "\"\\ufffdx\\ufffd\\ufffd\"");
}

static void test_put(void) {
    fq_json_text text = {0};
    fq_json_put_bytes(&text, "", 0);
    CHECK_STR(text.bytes, "");
    fq_json_put(&text, "[");
    fq_json_put_u64(&text, UINT64_MAX);
    fq_json_put(&text, "]");
    CHECK_STR(text.bytes, "[18446744073709551615]");
    CHECK_U64(text.n, 22);
    CHECK(!text.out_of_memory);
    fq_json_text_free(&text);
    CHECK(text.bytes == NULL && text.n == 0);
}

int main(void) {
    test_events();
    test_places();
    test_handler_stops();
    test_good_texts();
    test_bad_texts();
    test_fault_has_line_and_column();
    test_constants_only_where_allowed();
    test_depth();
    test_many_keys();
    test_u64();
    test_finite();
    test_put_string();
    test_put();
    return check_result();
}
