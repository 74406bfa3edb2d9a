// What a path on the command line stands for, and which files of a folder are its shards: the wrong
// choice reads foreign files, or converts half a model.
#include "tests/scratch.h"

static void make_model(const char *folder) {
    char name[128];
    scratch_mkdir(folder);
    snprintf(name, sizeof name, "%s/model.safetensors", folder);
    scratch_shard(name, "a b");
    snprintf(name, sizeof name, "%s/config.json", folder);
    scratch_write(name, "{\"model_type\":\"t\"}");
}

// The input opens without faults and has that many tensors.
static void check_sound(const char *name, size_t n_tensors) {
    scratch_input in;
    scratch_open(&in, name, NULL);
    CHECK(in.status == FQ_OK);
    CHECK_STR(scratch_lines(&in.faults), "");
    CHECK_U64(in.input.checkpoint.n_tensors, n_tensors);
    scratch_close(&in);
}

// One of the faults says so.
static void check_fault(const char *name, const char *part) {
    scratch_input in;
    scratch_open(&in, name, NULL);
    CHECK(in.status == FQ_OK);
    CHECK_HAS(scratch_lines(&in.faults), part);
    scratch_close(&in);
}

// Opening ends with that status and says why.
static void check_refused(const char *name, fq_status status, const char *part) {
    scratch_input in;
    scratch_open(&in, name, NULL);
    CHECK(in.status == status);
    CHECK_HAS(in.err.text, part);
    scratch_close(&in);
}

static void test_lone_file(void) {
    scratch_shard("w.safetensors", "a");
    scratch_input in;
    scratch_open(&in, "w.safetensors", NULL);
    CHECK(in.status == FQ_OK);
    CHECK(!in.input.checkpoint.is_folder);
    CHECK_STR(in.input.checkpoint.path, scratch_path("w.safetensors"));
    CHECK_STR(in.input.checkpoint.shards[0].name, "w.safetensors");
    CHECK(!in.input.model.has_config);
    CHECK_U64(in.warnings.n, 0);
    scratch_close(&in);
}

// A link named on the command line may lead anywhere, and keeps its own name and place.
static void test_lone_link(void) {
    scratch_mkdir("elsewhere");
    scratch_shard("elsewhere/blob", "a");
    scratch_symlink("elsewhere/blob", "l.safetensors");
    scratch_input in;
    scratch_open(&in, "l.safetensors", NULL);
    CHECK_U64(in.input.checkpoint.n_tensors, 1);
    CHECK_STR(in.input.checkpoint.shards[0].name, "l.safetensors");
    scratch_close(&in);
    check_sound("elsewhere/blob", 1);
}

static void test_folder_spellings(void) {
    make_model("m");
    scratch_symlink("m", "link-to-m");
    check_sound("m", 2);
    check_sound("m/", 2);
    check_sound("m/.", 2);
    check_sound("m/../m//", 2);
    check_sound("link-to-m", 2);
    scratch_input in;
    scratch_open(&in, "m/../link-to-m/", NULL);
    CHECK_STR(in.input.folder, scratch_path("m"));
    CHECK(in.input.model.has_config);
    CHECK_STR(in.input.config_text, "{\"model_type\":\"t\"}");
    scratch_close(&in);
}

static void test_refused_arguments(void) {
    scratch_write("w.safetensors.zst", "(\265/\375");
    scratch_write("vocab.json", "{}");
    scratch_symlink("loop", "loop");
    scratch_symlink("nothing", "dangling.safetensors");
    check_refused("absent", FQ_IO, "does not exist");
    check_refused("absent/w.safetensors", FQ_IO, "does not exist");
    check_refused("dangling.safetensors", FQ_IO, "is a link to nothing, which does not exist");
    check_refused("loop", FQ_IO, "loop of links");
    check_refused("w.safetensors.zst", FQ_BAD_INPUT, "compressed files are not supported");
    check_refused("vocab.json", FQ_BAD_INPUT, "no index of safetensors files");
    check_refused("vocab.json/", FQ_IO, "no folder");
}

// Opening these must neither block nor read.
static void test_special_files(void) {
    CHECK(mkfifo(scratch_path("p.safetensors"), 0666) == 0);
    check_fault("p.safetensors", "is a FIFO");
    scratch_mkdir("piped");
    CHECK(mkfifo(scratch_path("piped/model.safetensors"), 0666) == 0);
    check_fault("piped", "piped/model.safetensors: is a FIFO");
    scratch_mkdir("d.safetensors");
    check_fault("d.safetensors", "holds no .safetensors file");
}

static void test_config(void) {
    make_model("c");
    scratch_write("c/config.json", "{\"model_type\":");
    check_fault("c", "c/config.json: ");
    scratch_remove("c/config.json");
    scratch_input in;
    scratch_open(&in, "c", NULL);
    CHECK_U64(in.faults.n, 0);
    CHECK_HAS(scratch_lines(&in.warnings), "c/config.json: does not exist");
    CHECK(!in.input.config_text);
    scratch_close(&in);
    scratch_symlink("nothing", "c/config.json");
    check_fault("c", "c/config.json: is a link to nothing");
}

static void test_folder_without_index(void) {
    scratch_mkdir("u");
    check_fault("u", "holds no .safetensors file; name a model folder or a file");
    scratch_shard("u/b.safetensors", "b");
    scratch_shard("u/a.safetensors", "a");
    scratch_write("u/._a.safetensors", "what a Mac leaves behind");
    scratch_mkdir("u/folder.safetensors");
    scratch_input in;
    scratch_open(&in, "u", NULL);
    CHECK_U64(in.faults.n, 0);
    CHECK_U64(in.input.checkpoint.n_shards, 2);
    CHECK_STR(in.input.checkpoint.shards[0].name, "a.safetensors");
    CHECK_STR(in.input.checkpoint.shards[1].name, "b.safetensors");
    CHECK(!in.input.index_name);
    scratch_close(&in);
    scratch_shard("u/model.safetensors", "m n o");
    check_sound("u", 3);
    scratch_remove("u/model.safetensors");
    scratch_shard("u/c.safetensors", "a");
    check_fault("u", "c.safetensors: a: is also in ");
}

// A first try often meets weights of another format. Nothing else is said of such a folder.
static void check_other_weights(const char *names, const char *cure) {
    scratch_input in;
    char line[512];
    scratch_open(&in, "other", NULL);
    snprintf(line, sizeof line,
             "/other: holds no .safetensors file, only %s, which is not read; %s", names, cure);
    CHECK_U64(in.faults.n, 1);
    CHECK_HAS(scratch_lines(&in.faults), line);
    CHECK_U64(in.warnings.n, 0);
    scratch_close(&in);
}

static void test_other_weights(void) {
    scratch_mkdir("other");
    scratch_write("other/README.md", "a model");
    scratch_write("other/model.safetensors.zst", "(\265/\375");
    check_other_weights("model.safetensors.zst", "unpack it with zstd -d first");
    scratch_write("other/pytorch_model-1.bin", "PK");
    scratch_write("other/pytorch_model-2.bin", "PK");
    scratch_write("other/pytorch_model.bin.index.json", "{}");
    scratch_remove("other/model.safetensors.zst");
    check_other_weights("pytorch_model-1.bin, pytorch_model-2.bin",
                        "save the model as safetensors first");
}

static void test_numbered_sets(void) {
    scratch_mkdir("n");
    scratch_shard("n/x-00002-of-00004.safetensors", "a");
    scratch_shard("n/x-00004-of-00004.safetensors", "b");
    scratch_shard("n/other.safetensors", "c");
    check_fault("n", "n/x-00001-of-00004.safetensors: is missing");
    check_fault("n", "n/x-00003-of-00004.safetensors: is missing");
    scratch_shard("n/x-00001-of-00004.safetensors", "d");
    scratch_shard("n/x-00003-of-00004.safetensors", "e");
    check_sound("n", 5);
    // Some count from 0, then the last number is one less.
    scratch_shard("n/z-0-of-2.safetensors", "f");
    check_fault("n", "n/z-1-of-2.safetensors: is missing");
    scratch_shard("n/z-1-of-2.safetensors", "g");
    check_sound("n", 7);
    // A set of another prefix, and names that only look numbered.
    scratch_shard("n/x-1-2-of-2.safetensors", "h");
    check_fault("n", "n/x-1-1-of-2.safetensors: is missing");
    scratch_remove("n/x-1-2-of-2.safetensors");
    scratch_shard("n/x--of-2.safetensors", "i");
    scratch_shard("n/3-of-4.safetensors", "j");
    scratch_shard("n/x-1-of-.safetensors", "k");
    check_sound("n", 10);
}

// A total of any size is told in few lines.
static void test_absurd_total(void) {
    scratch_mkdir("t");
    scratch_shard("t/x-1-of-999999999999.safetensors", "a");
    scratch_input in;
    scratch_open(&in, "t", NULL);
    CHECK(in.faults.n > 1 && in.faults.n < 1000);
    CHECK_HAS(in.faults.lines[in.faults.n - 1], "more files are missing");
    scratch_close(&in);
}

// A folder may be taken over by links: none of them is followed out of it.
static void test_shard_links(void) {
    scratch_mkdir("k");
    scratch_shard("outside.safetensors", "a");
    scratch_symlink("../outside.safetensors", "k/model.safetensors");
    check_fault("k", "k/model.safetensors: is a link that leads out of the model folder");
    scratch_remove("k/model.safetensors");
    scratch_symlink("weights", "k/model.safetensors");
    check_fault("k", "k/model.safetensors: is a link to weights, which does not exist");
    scratch_shard("k/weights", "a b");
    check_sound("k", 2);
    // A folder whose name begins like this one's is another folder.
    scratch_mkdir("k-more");
    scratch_shard("k-more/w", "a");
    scratch_remove("k/model.safetensors");
    scratch_symlink("../k-more/w", "k/model.safetensors");
    check_fault("k", "leads out of the model folder");
}

static void test_hub_snapshot(void) {
    scratch_mkdir("models--org--repo");
    scratch_mkdir("models--org--repo/blobs");
    scratch_mkdir("models--org--repo/snapshots");
    scratch_mkdir("models--org--repo/snapshots/rev");
    scratch_shard("models--org--repo/blobs/0123", "a");
    const char *link = "models--org--repo/snapshots/rev/model.safetensors";
    scratch_symlink("../../blobs/0123", link);
    scratch_input in;
    scratch_open(&in, "models--org--repo/snapshots/rev", NULL);
    CHECK_STR(scratch_lines(&in.faults), "");
    CHECK_U64(in.input.checkpoint.n_tensors, 1);
    CHECK_STR(in.input.hub.repo, "repo");
    scratch_close(&in);
    scratch_remove(link);
    scratch_symlink("../../../outside.safetensors", link);
    check_fault("models--org--repo/snapshots/rev", "leads out of the model folder");
    scratch_remove(link);
    scratch_symlink("../../blobs/4567", link);
    check_fault("models--org--repo/snapshots/rev", "is a link to ../../blobs/4567, which does not");
    // The folder of the snapshots is none itself, nor is one of another kind.
    scratch_open(&in, "models--org--repo/snapshots", NULL);
    CHECK(!in.input.hub.repo);
    scratch_close(&in);
    scratch_open(&in, "m", NULL);
    CHECK(!in.input.hub.repo && !in.input.hub.blobs);
    scratch_close(&in);
}

// The folder that a download leaves is the repository, and the model lies two levels down.
static void test_hub_repository(void) {
    scratch_mkdir("models--org--new");
    check_fault("models--org--new", "holds no .safetensors file; name a model folder");
    scratch_mkdir("models--org--new/snapshots");
    check_fault("models--org--new", "holds no .safetensors file; name a model folder");
    scratch_mkdir("models--org--new/snapshots/0123");
    check_fault("models--org--new", "models--org--new: is a repository of the Hugging Face cache; "
                                    "name one of its snapshots: snapshots/0123");
    scratch_mkdir("not-a-repository");
    scratch_mkdir("not-a-repository/snapshots");
    scratch_mkdir("not-a-repository/snapshots/0123");
    check_fault("not-a-repository", "holds no .safetensors file; name a model folder");
}

static void test_change_while_open(void) {
    scratch_input in;
    fq_error err = {0};
    scratch_open(&in, "m", NULL);
    CHECK(fq_input_check_unchanged(&in.input, &err) == FQ_OK);
    scratch_shard("m/model.safetensors", "a b c");
    CHECK(fq_input_check_unchanged(&in.input, &err) == FQ_IO);
    CHECK_HAS(err.text, "m/model.safetensors: ");
    scratch_close(&in);
}

// Closing what was never opened must not close descriptor 0.
static void test_close_zeroed(void) {
    fq_input input = {0};
    fq_input_close(&input);
    fq_input_close(&input);
    CHECK(fcntl(0, F_GETFD) >= 0);
}

int main(void) {
    scratch_begin();
    test_lone_file();
    test_lone_link();
    test_folder_spellings();
    test_refused_arguments();
    test_special_files();
    test_config();
    test_folder_without_index();
    test_other_weights();
    test_numbered_sets();
    test_absurd_total();
    test_shard_links();
    test_hub_snapshot();
    test_hub_repository();
    test_change_while_open();
    test_close_zeroed();
    scratch_end();
    return check_result();
}
