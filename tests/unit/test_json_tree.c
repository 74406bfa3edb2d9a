// Config and index are read from these trees: a tree must say exactly what the text says, and its
// getters must not make something else of it.
#include "formats/json_tree.h"

#include "tests/check.h"

#include <stdlib.h>

static const fq_json_tree_options plain = {.scan = {.file = "F", .allow_constants = true}};

// The tree of a good text, as an object without a path.
static fq_json_object parse(const char *text, const fq_json_tree_options *options) {
    cJSON *root = NULL;
    fq_error err = {0};
    if (!CHECK(fq_json_parse(&root, text, strlen(text), options, &err) == FQ_OK))
        fprintf(stderr, "    %s: %s\n", text, err.text);
    return (fq_json_object){.node = root, .file = "F"};
}

static void drop(fq_json_object *top) {
    cJSON_Delete((cJSON *)top->node);
    top->node = NULL;
}

static void check_refused(const char *text, size_t nbytes, const char *mention) {
    cJSON *root = NULL;
    fq_error err = {0};
    CHECK(fq_json_parse(&root, text, nbytes, &plain, &err) == FQ_BAD_INPUT);
    CHECK(!root);
    CHECK_HAS(err.text, "F: ");
    CHECK_HAS(err.text, mention);
}

static void test_shape(void) {
    fq_json_object top =
        parse("{\"a\":[{\"b\":\"c\"},[],\"\\u00e9\"],\"\":true,\"n\":null}", &plain);
    const cJSON *list = fq_json_get(&top, "a");
    CHECK(cJSON_IsArray(list) && cJSON_GetArraySize(list) == 3);
    CHECK_STR(list->child->child->string, "b");
    CHECK_STR(list->child->child->valuestring, "c");
    CHECK(cJSON_IsArray(list->child->next) && !list->child->next->child);
    CHECK_STR(list->child->next->next->valuestring, "\xC3\xA9");
    CHECK(cJSON_IsTrue(fq_json_get(&top, "")));
    CHECK(!fq_json_get(&top, "n") && !fq_json_get(&top, "A") && !fq_json_get(&top, "b"));
    drop(&top);
    top = parse(" 5 ", &plain);
    CHECK(cJSON_IsRaw(top.node) && !fq_json_get(&top, "a"));
    drop(&top);
    top = parse("[{\"a\":1}]", &plain);
    CHECK(!fq_json_get(&top, "a"));
    drop(&top);
}

// What doubles and C strings cannot hold.
static void test_raw(void) {
    static const char *const tokens[] = {
        "0",   "-0",       "1.50",      "9007199254740993", "1e308",
        "NaN", "Infinity", "-Infinity", "\"a\\u0000b\"",    "\"\\u0000\"",
    };
    for (size_t i = 0; i < sizeof tokens / sizeof tokens[0]; i++) {
        char text[64];
        snprintf(text, sizeof text, "{\"k\" : %s }", tokens[i]);
        fq_json_object top = parse(text, &plain);
        const cJSON *value = fq_json_get(&top, "k");
        if (CHECK(cJSON_IsRaw(value)))
            CHECK_STR(value->valuestring, tokens[i]);
        drop(&top);
    }
}

static void test_numbers(void) {
    static const struct {
        const char *text;
        uint64_t value;
    } good[] = {
        {"{\"k\":0}", 0},
        {"{\"k\":9007199254740993}", (UINT64_C(1) << 53) + 1},
        {"{\"k\":18446744073709551615}", UINT64_MAX},
        {"{\"k\":null}", 7},
        {"{\"K\":1}", 7},
    };
    static const char *const bad[] = {
        "{\"k\":18446744073709551616}",
        "{\"k\":-0}",
        "{\"k\":-1}",
        "{\"k\":1.0}",
        "{\"k\":1e0}",
        "{\"k\":1e308}",
        "{\"k\":\"1\"}",
        "{\"k\":NaN}",
        "{\"k\":true}",
        "{\"k\":[1]}",
        "{\"k\":{}}",
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        fq_json_object top = parse(good[i].text, &plain);
        uint64_t value = 7; // stays where nothing is said
        fq_error err = {0};
        CHECK(fq_json_get_u64(&value, &top, "k", &err) == FQ_OK);
        CHECK_U64(value, good[i].value);
        drop(&top);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        fq_json_object top = parse(bad[i], &plain);
        uint64_t value = 7;
        fq_error err = {0};
        if (!CHECK(fq_json_get_u64(&value, &top, "k", &err) == FQ_BAD_INPUT))
            fprintf(stderr, "    %s\n", bad[i]);
        CHECK_U64(value, 7);
        CHECK_STR(err.text, "F: k: is no whole number; repair the file");
        drop(&top);
    }
}

static void test_getters(void) {
    fq_json_object top = parse("{\"s\":\"x\",\"t\":true,\"f\":false,\"n\":1,"
                               "\"o\":{\"p\":{\"s\":5,\"z\":\"\\u0000\"}}}",
                               &plain);
    fq_json_object o = {0}, p = {0}, absent = {0};
    const char *string = "old";
    bool flag = true;
    fq_error err = {0};
    CHECK(fq_json_get_string(&string, &top, "S", &err) == FQ_OK);
    CHECK_STR(string, "old");
    CHECK(fq_json_get_string(&string, &top, "s", &err) == FQ_OK);
    CHECK_STR(string, "x");
    CHECK(fq_json_get_bool(&flag, &top, "f", &err) == FQ_OK && !flag);
    CHECK(fq_json_get_bool(&flag, &top, "t", &err) == FQ_OK && flag);
    CHECK(fq_json_get_bool(&flag, &top, "n", &err) == FQ_BAD_INPUT);
    CHECK_STR(err.text, "F: n: is neither true nor false; repair the file");
    CHECK(fq_json_get_object(&o, &top, "n", &err) == FQ_BAD_INPUT);
    CHECK_STR(err.text, "F: n: is no object; repair the file");
    CHECK(fq_json_get_object(&o, &top, "o", &err) == FQ_OK);
    CHECK(fq_json_get_object(&p, &o, "p", &err) == FQ_OK);
    CHECK(fq_json_get_string(&string, &p, "s", &err) == FQ_BAD_INPUT);
    CHECK_HAS(err.text, "F: o.p.s: is no string");
    CHECK(fq_json_get_string(&string, &p, "z", &err) == FQ_BAD_INPUT);
    CHECK_HAS(err.text, "F: o.p.z: is no string");
    CHECK_STR(string, "x");
    CHECK(fq_json_get_object(&absent, &p, "q", &err) == FQ_OK && !absent.node);
    CHECK(fq_json_get_string(&string, &absent, "s", &err) == FQ_OK);
    drop(&top);
}

static void test_verbatim(void) {
    const fq_json_tree_options options = {.scan = {.file = "F"}, .verbatim = "m"};
    static const char *const expected[][2] = {
        {"s", "\"\\u0041\\u0000\""},
        {"o", "{ \"m\":[1 ,{}], \"\\u0000\":2}"},
        {"l", "[]"},
        {"n", "1.50"},
        {"z", "null"},
    };
    fq_json_object top = parse("{\"o\":{\"m\":{\"a\":\"b\"}},\"m\":{\"s\": \"\\u0041\\u0000\" ,"
                               "\"o\":{ \"m\":[1 ,{}], \"\\u0000\":2},\"l\":[] ,\"n\":1.50,"
                               "\"z\":null},\"w\":{\"m\":{\"a\":\"\\u0041\"}}}",
                               &options);
    const cJSON *item = fq_json_get(&top, "m")->child;
    for (size_t i = 0; i < sizeof expected / sizeof expected[0] && CHECK(item); i++) {
        CHECK(cJSON_IsRaw(item));
        CHECK_STR(item->string, expected[i][0]);
        CHECK_STR(item->valuestring, expected[i][1]);
        item = item->next;
    }
    CHECK(!item);
    // Elsewhere, before and behind it, values are values
    static const char *const other[][2] = {{"o", "b"}, {"w", "A"}};
    for (size_t i = 0; i < 2; i++) {
        const cJSON *inner = fq_json_get(&top, other[i][0])->child->child;
        CHECK(cJSON_IsString(inner));
        CHECK_STR(inner->valuestring, other[i][1]);
    }
    drop(&top);
    top = parse("{\"m\":[\"x\",[{\"m\":true}]]}", &options);
    CHECK(cJSON_IsString(fq_json_get(&top, "m")->child));
    drop(&top);
    top = parse("[{\"m\":{\"a\":true}}]", &options);
    CHECK(cJSON_IsTrue(top.node->child->child->child));
    drop(&top);
}

static void test_refused(void) {
    static const char *const bad[][2] = {
        {"", "line 1"},
        {"{\"a\":{\"b\":[\"c\",{}", "ends early"},
        {"{} x", "goes on"},
        {"{\"a\":{\"b\":1,\"\\u0062\":2}}", "twice"},
        {"[\"\xC0\x80\"]", "UTF"},
        {"{\"k\\u0000x\":1}", "k: the name holds a NUL"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        check_refused(bad[i][0], strlen(bad[i][0]), bad[i][1]);
}

// [0,0,...]: the list itself is one value.
static void test_limits(void) {
    const size_t nbytes = 2 * (size_t)FQ_JSON_MAX_VALUES - 1;
    char *text = malloc(nbytes + 2);
    if (!CHECK(text))
        return;
    for (size_t i = 1; i < nbytes + 2; i++)
        text[i] = i % 2 ? '0' : ',';
    text[0] = '[';
    text[nbytes - 1] = ']';
    cJSON *root = NULL;
    fq_error err = {0};
    CHECK(fq_json_parse(&root, text, nbytes, &plain, &err) == FQ_OK);
    CHECK_U64((uint64_t)cJSON_GetArraySize(root), FQ_JSON_MAX_VALUES - 1);
    cJSON_Delete(root);
    text[nbytes - 1] = ',';
    text[nbytes + 1] = ']';
    check_refused(text, nbytes + 2, "holds more than 1048576 values");
    memset(text, '[', FQ_JSON_MAX_DEPTH);
    memset(text + FQ_JSON_MAX_DEPTH, ']', FQ_JSON_MAX_DEPTH);
    root = NULL;
    CHECK(fq_json_parse(&root, text, 2 * FQ_JSON_MAX_DEPTH, &plain, &err) == FQ_OK);
    cJSON_Delete(root);
    free(text);
}

int main(void) {
    test_shape();
    test_raw();
    test_numbers();
    test_getters();
    test_verbatim();
    test_refused();
    test_limits();
    return check_result();
}
