// Files are read from folders that others write to: whatever stands at a path, opening it must not
// block, and a file that changes must be noticed.
#include "formats/file.h"

#include "tests/check.h"
#include "tests/memory_source.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static char folder[] = "/tmp/fq_test_file_XXXXXX";

static const char *in_folder(const char *name) {
    static char path[64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void write_file(const char *name, const char *text) {
    FILE *file = fopen(in_folder(name), "w");
    CHECK(file && fputs(text, file) >= 0 && fclose(file) == 0);
}

static fq_source *open_file(const char *name) {
    fq_source *source = NULL;
    fq_error err = {0};
    CHECK(fq_file_open(&source, AT_FDCWD, in_folder(name), name, &err) == FQ_OK);
    return source;
}

static void test_read(void) {
    write_file("a", "0123456789");
    fq_source *source = open_file("a");
    fq_error err = {0};
    char bytes[16] = "";
    CHECK_U64(source->nbytes, 10);
    CHECK_STR(source->name, "a");
    CHECK(source->read(source, 3, bytes, 4, &err) == FQ_OK);
    CHECK_STR(bytes, "3456");
    CHECK(source->read(source, 10, bytes, 0, &err) == FQ_OK);
    CHECK(source->read(source, 8, bytes, 3, &err) == FQ_IO);
    CHECK_HAS(err.text, "a: ");
    CHECK_HAS(err.text, "byte 10");
    fq_file_close(source);
}

static void test_relative_to_folder(void) {
    write_file("a", "0123456789");
    const int dir_fd = open(folder, O_RDONLY | O_DIRECTORY);
    fq_source *source = NULL;
    fq_error err = {0};
    CHECK(fq_file_open(&source, dir_fd, "a", "x/a", &err) == FQ_OK);
    CHECK_STR(source->name, "x/a");
    dev_t device;
    ino_t inode;
    struct stat stat_a;
    fq_file_identity(source, &device, &inode);
    CHECK(stat(in_folder("a"), &stat_a) == 0);
    CHECK(device == stat_a.st_dev && inode == stat_a.st_ino);
    fq_file_close(source);
    close(dir_fd);
}

static void check_refused(const char *name, fq_status status, const char *mention) {
    fq_source *source = NULL;
    fq_error err = {0};
    CHECK(fq_file_open(&source, AT_FDCWD, in_folder(name), name, &err) == status);
    CHECK(source == NULL);
    CHECK_HAS(err.text, name);
    CHECK_HAS(err.text, mention);
}

static void test_only_regular_files(void) {
    CHECK(mkfifo(in_folder("fifo"), 0600) == 0);
    CHECK(mkdir(in_folder("dir"), 0700) == 0);
    CHECK(symlink("nothing", in_folder("dangling")) == 0);
    CHECK(symlink("loop", in_folder("loop")) == 0);
    CHECK(symlink("/dev/null", in_folder("device")) == 0);
    check_refused("fifo", FQ_BAD_INPUT, "FIFO");
    check_refused("dir", FQ_BAD_INPUT, "folder");
    check_refused("device", FQ_BAD_INPUT, "device");
    check_refused("dangling", FQ_IO, "No such file");
    check_refused("loop", FQ_IO, "opened");
    check_refused("absent", FQ_IO, "No such file");
    unlink(in_folder("fifo"));
    rmdir(in_folder("dir"));
    unlink(in_folder("dangling"));
    unlink(in_folder("loop"));
    unlink(in_folder("device"));
}

static void test_socket(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", in_folder("socket"));
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(bind(fd, (const struct sockaddr *)&address, sizeof address) == 0);
    check_refused("socket", FQ_BAD_INPUT, "is a socket");
    close(fd);
    unlink(in_folder("socket"));
}

static void test_changes_are_noticed(void) {
    write_file("a", "0123456789");
    fq_error err = {0};
    fq_source *source = open_file("a");
    CHECK(fq_file_check_unchanged(source, &err) == FQ_OK);
    CHECK(truncate(in_folder("a"), 5) == 0);
    CHECK(fq_file_check_unchanged(source, &err) == FQ_IO);
    CHECK_HAS(err.text, "changed");
    char bytes[10];
    CHECK(source->read(source, 0, bytes, 10, &err) == FQ_IO); // never SIGBUS
    CHECK_HAS(err.text, "byte 5");
    fq_file_close(source);

    source = open_file("a"); // the same size, another time
    const struct timespec times[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
    CHECK(utimensat(AT_FDCWD, in_folder("a"), times, 0) == 0);
    CHECK(fq_file_check_unchanged(source, &err) == FQ_IO);
    fq_file_close(source);
}

static void test_read_all(void) {
    fq_error err = {0};
    char *text = NULL;
    size_t nbytes = 0;
    memory_source memory = memory_source_of("m", "abc", 3);
    CHECK(fq_source_read_all(&text, &nbytes, &memory.source, 3, &err) == FQ_OK);
    CHECK_STR(text, "abc");
    CHECK_U64(nbytes, 3);
    free(text);
    text = NULL;
    CHECK(fq_source_read_all(&text, &nbytes, &memory.source, 2, &err) == FQ_BAD_INPUT);
    CHECK(text == NULL);
    CHECK_HAS(err.text, "m: ");
    memory = memory_source_of("m", "", 0);
    CHECK(fq_source_read_all(&text, &nbytes, &memory.source, 2, &err) == FQ_OK);
    CHECK_STR(text, "");
    free(text);
}

int main(void) {
    if (!CHECK(mkdtemp(folder)))
        return check_result();
    test_read();
    test_relative_to_folder();
    test_only_regular_files();
    test_socket();
    test_changes_are_noticed();
    test_read_all();
    unlink(in_folder("a"));
    CHECK(rmdir(folder) == 0);
    fq_file_close(NULL);
    return check_result();
}
