/* scratch.h - a folder of its own for a test that needs files: made on first use, removed at exit.
 */
#ifndef TN_TESTS_SCRATCH_H
#define TN_TESTS_SCRATCH_H
#include "engine/base/base.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char tn_scratch_folder[256];

TN_UNUSED static int tn_scratch_drop(const char *path, const struct stat *s, int what,
                                     struct FTW *ftw)
{
    (void)s, (void)what, (void)ftw;
    return remove(path);
}

TN_UNUSED static void tn_scratch_remove(void)
{
    nftw(tn_scratch_folder, tn_scratch_drop, 16, FTW_DEPTH | FTW_PHYS);
}

/* FOLDER/NAME; up to 16 results live at once. */
TN_UNUSED static const char *tn_scratch_path(const char *name)
{
    static char paths[16][512];
    static int next;
    if (!tn_scratch_folder[0]) {
        const char *tmp = getenv("TMPDIR");
        snprintf(tn_scratch_folder, sizeof tn_scratch_folder, "%s/titan-test-XXXXXX",
                 tmp ? tmp : "/tmp");
        if (!mkdtemp(tn_scratch_folder)) perror(tn_scratch_folder), exit(1);
        atexit(tn_scratch_remove);
    }
    char *path = paths[next++ % 16];
    snprintf(path, sizeof paths[0], "%s/%s", tn_scratch_folder, name);
    return path;
}

/* Writes the file and returns its path. */
TN_UNUSED static const char *tn_scratch_write(const char *name, const void *bytes, size_t n)
{
    const char *path = tn_scratch_path(name);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(bytes, 1, n, f) != n || fclose(f) != 0) perror(path), exit(1);
    return path;
}

TN_UNUSED static const char *tn_scratch_text(const char *name, const char *text)
{
    return tn_scratch_write(name, text, strlen(text));
}

#endif
