/* replay.c - runs a fuzz target over its corpus as a plain test: every file as it is, cut short,
 * and with bits flipped.
 *
 * usage: fuzz_NAME tests/fuzz/corpus/NAME. What a fuzzer once found lies in the corpus and so stays
 * a test. Under libFuzzer (TN_FUZZ) its own main takes this one's place.
 */
#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#ifndef TN_FUZZ
#include "engine/base/file.h"
#include "tests/test.h"

#include <dirent.h>
#include <stdlib.h>

enum { FILE_BYTES = 1 << 20, CUTS = 32, FLIPS = 64 };

/* In a block of its own size, so that a sanitizer sees one byte too far. */
static void feed(const char *data, size_t n)
{
    uint8_t *exact = malloc(n ? n : 1);
    if (!exact) exit(1);
    memcpy(exact, data, n);
    LLVMFuzzerTestOneInput(exact, n);
    free(exact);
    TN_CHECK(true); /* it came back */
}

static void replay(const char *path)
{
    char *data = NULL;
    int64_t n = 0;
    uint64_t state = 1;
    if (!TN_CHECK_OK(tn_file_read(path, FILE_BYTES, &data, &n))) return;
    feed(data, (size_t)n);
    for (int i = 0; i < CUTS && i < n; i++) feed(data, (size_t)(n * i / CUTS));
    for (int i = 0; i < FLIPS && n > 0; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        char *at = data + (state >> 33) % (uint64_t)n, was = *at;
        *at = (char)(was ^ 1 << (state >> 30 & 7));
        feed(data, (size_t)n);
        *at = was;
    }
    tn_free(data);
}

int main(int argc, char **argv)
{
    struct dirent **names = NULL;
    int n = argc == 2 ? scandir(argv[1], &names, NULL, alphasort) : -1;
    if (!TN_CHECK_MSG(n > 2, "usage: %s FOLDER, which holds at least one file", argv[0]))
        return tn_test_done("replay");
    for (int i = 0; i < n; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", argv[1], names[i]->d_name);
        if (!tn_file_is_folder(path)) replay(path);
        free(names[i]);
    }
    free(names);
    return tn_test_done("replay");
}
#endif
