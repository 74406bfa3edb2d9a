// Any small model through the commands, from files to files: what is refused leaves nothing behind,
// and what is accepted can be read, holds every tensor, and can be cast back.
//
// The first line is a command with its options, as far as they are among allowed_words. "index"
// writes an index of the shards.
//
// Under test: lib formats cmd
#include "cmd/command.h"
#include "formats/json_tree.h"
#include "formats/output.h"
#include "formats/utf8.h"

#include "converted.h"
#include "fuzz.h"
#include "model_text.h"
#include "tests/scratch.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);

enum { MAX_SHARD_NBYTES = 256 * 1024, MAX_ARGUMENTS = MODEL_MAX_WORDS + 8 };

// Nothing that names a file.
static const char *const allowed_words[] = {
    "--scale-format=f32",
    "--scale-format=pow2",
    "--scale-format=e8m0",
    "--scale-format=packed",
    "--arch=sm100",
    "--experts=keep",
    "--on-nonfinite=keep",
    "--amax-floor=0",
    "--dtype=f16",
    "--dtype=f32",
    "--dry-run",
    "--json",
    "--quiet",
    "--threads=2",
    "--stats",
    "--sort=size",
    "--tp=8",
    "--checksum",
    "--resume",
};
static const char *const allowed_beginnings[] = {"--include=", "--exclude=", "--tensor="};

static bool is_allowed(const char *word) {
    for (size_t i = 0; i < sizeof allowed_words / sizeof allowed_words[0]; i++) {
        if (strcmp(word, allowed_words[i]) == 0)
            return true;
    }
    for (size_t i = 0; i < sizeof allowed_beginnings / sizeof allowed_beginnings[0]; i++) {
        if (strncmp(word, allowed_beginnings[i], strlen(allowed_beginnings[i])) == 0)
            return true;
    }
    return false;
}

// ---- Commands

// A command line and what became of it.
typedef struct command_run {
    const fq_command *command;
    char *arguments[MAX_ARGUMENTS];
    int n_arguments;
    fq_status status;
    fq_reply reply;
} command_run;

static void add_argument(command_run *run, const char *argument) {
    DEMAND(run->n_arguments < MAX_ARGUMENTS);
    run->arguments[run->n_arguments] = strdup(argument);
    DEMAND(run->arguments[run->n_arguments++]);
}

// Parses and carries out, as main does. FQ_USAGE of the parser is returned, and of nothing else.
static fq_status carry_out(command_run *run, fq_error *err) {
    fq_arena arena = {0};
    fq_opt_parsed parsed = {0};
    void *options = fq_arena_alloc(&arena, run->command->options_nbytes);
    DEMAND(options);
    memcpy(options, run->command->defaults, run->command->options_nbytes);
    fq_status status =
        fq_opt_parse(&parsed, run->command, options, &arena, run->n_arguments, run->arguments, err);
    if (status == FQ_OK) {
        const fq_call call = {.options = options, .operand = parsed.operand};
        status = run->command->run(&call, &run->reply, err);
        const bool is_verify = run->command == &fq_command_verify;
        const bool failed_check = is_verify && status == FQ_VERIFY_FAILED;
        // A check of no weight at all is no pass.
        const bool chose_nothing =
            is_verify && status == FQ_USAGE && strstr(err->text, "no tensor matches --tensor");
        DEMAND(status == FQ_OK || status == FQ_BAD_INPUT || failed_check || chose_nothing);
        DEMAND(err->status == status && (status == FQ_OK || *err->text));
    }
    fq_arena_free(&arena);
    return status;
}

static bool has_argument(const command_run *run, const char *argument) {
    for (int i = 0; i < run->n_arguments; i++) {
        if (strcmp(run->arguments[i], argument) == 0)
            return true;
    }
    return false;
}

// Nothing raw reaches a terminal, and JSON is JSON.
static void check_stdout(const command_run *run, const char *text, size_t n) {
    const fq_json_tree_options options = {.scan.file = "stdout"};
    cJSON *tree = NULL;
    fq_error err = {0};
    uint32_t c = 0;
    for (size_t i = 0, n_char; i < n; i += n_char) {
        n_char = fq_utf8_decode(&c, text + i, n - i);
        DEMAND(n_char > 0 && (c == '\n' || (c >= 0x20 && c < 0x7F) || c >= 0xA0));
        DEMAND((c < 0x202A || c > 0x202E) && (c < 0x2066 || c > 0x2069)); // turn text around
    }
    if (has_argument(run, "--json"))
        DEMAND(fq_json_parse(&tree, text, n, &options, &err) == FQ_OK);
    cJSON_Delete(tree);
}

static void run_command(command_run *run) {
    fq_error err = {0};
    char *text = NULL;
    size_t n = 0;
    FILE *const real_stdout = stdout;
    stdout = open_memstream(&text, &n);
    DEMAND(stdout);
    run->status = carry_out(run, &err);
    fclose(stdout);
    stdout = real_stdout;
    if (run->status == FQ_OK || run->status == FQ_VERIFY_FAILED)
        check_stdout(run, text, n);
    free(text);
}

static void free_run(command_run *run) {
    for (int i = 0; i < run->n_arguments; i++)
        free(run->arguments[i]);
    fq_messages_free(&run->reply.warnings);
    fq_messages_free(&run->reply.faults);
    fq_messages_free(&run->reply.notes);
}

// What the command is given: the folder or, with "lone", its file.
static const char *input_name(const model_text *model) {
    static const char file[] = "model.safetensors";
    return model_says(model, "lone") && model_find(model, file) ? "in/model.safetensors" : "in";
}

static bool is_writer(const fq_command *command) {
    return command == &fq_command_convert || command == &fq_command_dequant;
}

// The command of the first line.
static void read_command(command_run *out, const model_text *model) {
    *out = (command_run){.command = &fq_command_convert};
    if (model_says(model, "dequant"))
        out->command = &fq_command_dequant;
    if (model_says(model, "inspect"))
        out->command = &fq_command_inspect;
    if (model_says(model, "verify"))
        out->command = &fq_command_verify;
    for (size_t i = 0; i < model->n_words; i++) {
        if (is_allowed(model->words[i]))
            add_argument(out, model->words[i]);
    }
    if (is_writer(out->command)) {
        add_argument(out, "-o");
        add_argument(out, scratch_path("out"));
    }
    add_argument(out, "--no-progress");
    add_argument(out, "--memory=4M");
    if (!model_says(model, "--threads=2"))
        add_argument(out, "--threads=1");
    add_argument(out, scratch_path(input_name(model)));
}

// ---- Files

// The index of the shards that were made.
static void write_index(void) {
    scratch_input in;
    fq_arena arena = {0};
    scratch_open(&in, "in", NULL);
    const fq_checkpoint *checkpoint = &in.input.checkpoint;
    if (in.status == FQ_OK && in.faults.n == 0) {
        fq_plan plan = {.n_shards = checkpoint->n_shards};
        char *text = NULL;
        size_t n = 0;
        plan.shards = fq_arena_array(&arena, plan.n_shards, sizeof *plan.shards);
        DEMAND(plan.shards);
        for (size_t i = 0; i < plan.n_shards; i++)
            plan.shards[i].layout = checkpoint->shards[i];
        DEMAND(fq_index_text(&text, &n, &plan, &in.input, &in.err) == FQ_OK);
        scratch_write_bytes("in/model.safetensors.index.json", text, n);
        free(text);
    }
    fq_arena_free(&arena);
    scratch_close(&in);
}

static void write_files(model_text *model) {
    scratch_mkdir("in");
    for (size_t i = 0; i < model->n_parts; i++) {
        const model_part *part = &model->parts[i];
        char path[128];
        snprintf(path, sizeof path, "in/%s", part->name);
        if (!model_is_shard(part->name)) {
            scratch_write_bytes(path, part->text.at, part->text.n);
            continue;
        }
        const model_file file = model_make_file(model, part->text, MAX_SHARD_NBYTES, true);
        scratch_write_bytes(path, file.bytes, file.n_there);
        free(file.bytes);
    }
    if (model_says(model, "index") && !model_find(model, "model.safetensors.index.json"))
        write_index();
}

static void remove_files(void) {
    static const char *const names[] = {"in", "out", "back"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (scratch_exists(names[i]))
            scratch_remove(names[i]);
    }
    DEMAND(check_n_failed == 0);
}

// ---- Results

static void open_result(scratch_input *out, const char *name) {
    scratch_open(out, name, NULL);
    if (out->status != FQ_OK || out->faults.n > 0)
        fprintf(stderr, "%s: %s%s", name, out->err.text, scratch_lines(&out->faults));
    DEMAND(out->status == FQ_OK && out->faults.n == 0);
}

// Carries out a command on "out", with one more option.
static void run_on_out(const fq_command *command, const char *option, const char *path,
                       bool is_broken) {
    command_run run = {.command = command};
    add_argument(&run, "--quiet");
    add_argument(&run, "--memory=4M");
    add_argument(&run, "--threads=1");
    if (command == &fq_command_verify) // every byte, whatever it costs: values may be too small
        add_argument(&run, "--max-weight-error=3e38");
    add_argument(&run, option);
    add_argument(&run, scratch_path(path));
    add_argument(&run, scratch_path("out"));
    run_command(&run);
    if (run.status != FQ_OK)
        fprintf(stderr, "%s: %s", command->name, scratch_lines(&run.reply.faults));
    DEMAND(run.status == FQ_OK || (is_broken && run.status == FQ_VERIFY_FAILED));
    free_run(&run);
}

// True if --include or --exclude broke what engines fuse: it was warned of, and verify says so too.
static bool is_broken_group(const command_run *run) {
    const fq_messages *warnings = &run->reply.warnings;
    size_t i = 0;
    while (i < warnings->n && !strstr(warnings->lines[i], ": engines "))
        i++;
    return i < warnings->n;
}

// Holds "out" against what it was made of, casts it back to BF16, and holds that against it too.
static void check_back(const scratch_input *in, const scratch_input *out, const char *name,
                       bool is_broken) {
    scratch_input back;
    run_on_out(&fq_command_verify, "--reference", name, is_broken);
    run_on_out(&fq_command_dequant, "-o", "back", false);
    open_result(&back, "back");
    DEMAND(!back.input.model.quant.present);
    check_round_trip(&in->input.checkpoint, &out->input.checkpoint, &back.input.checkpoint);
    scratch_close(&back);
}

static bool holds_weights(const fq_checkpoint *checkpoint) {
    for (size_t i = 0; i < checkpoint->n_tensors; i++) {
        if (checkpoint->by_name[i]->dtype == FQ_F8_E4M3)
            return true;
    }
    return false;
}

static bool is_choice(const command_run *run) {
    bool any = false;
    for (int i = 0; i < run->n_arguments; i++)
        any = any || strncmp(run->arguments[i], "--tensor=", strlen("--tensor=")) == 0;
    return any;
}

static void check_result_of(const command_run *run, const model_text *model) {
    scratch_input in, out;
    scratch_open(&in, input_name(model), NULL);
    DEMAND(in.status == FQ_OK && in.faults.n == 0);
    open_result(&out, "out");
    const fq_checkpoint *source = &in.input.checkpoint, *target = &out.input.checkpoint;
    DEMAND(source->is_folder == target->is_folder);
    if (run->command == &fq_command_convert) {
        check_converted(source, target);
        if (holds_weights(target)) {
            DEMAND(!in.input.config_text || out.input.model.quant.present);
            check_back(&in, &out, input_name(model), is_broken_group(run));
        } else {
            DEMAND(!out.input.model.quant.present);
        }
    } else {
        check_dequantized(source, target, is_choice(run));
        DEMAND(!out.input.model.quant.present);
    }
    scratch_close(&in);
    scratch_close(&out);
}

static void end(void) { scratch_end(); }

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    scratch_begin();
    atexit(end);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    model_text model;
    command_run run;
    model_text_read(&model, data, size);
    read_command(&run, &model);
    write_files(&model);
    run_command(&run);
    DEMAND(!scratch_exists("out.partial"));
    const bool writes =
        run.status == FQ_OK && is_writer(run.command) && !model_says(&model, "--dry-run");
    DEMAND(scratch_exists("out") == writes);
    if (writes)
        check_result_of(&run, &model);
    free_run(&run);
    remove_files();
    fq_arena_free(&model.arena);
    return 0;
}
