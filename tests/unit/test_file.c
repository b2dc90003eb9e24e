/* Files, maps and fault points: what is written is whole or absent, and every failure names the
 * path. */
#include "engine/base/file.h"

#include <dirent.h>
#include <errno.h>

#include "engine/base/fault.h"
#include "engine/base/map.h"
#include "engine/base/mem.h"
#include "tests/scratch.h"
#include "tests/test.h"

static char folder[256], path[320];

static int entries(const char *of)
{
    DIR *d = opendir(of);
    int n = 0;
    while (d && readdir(d)) n++;
    if (d) closedir(d);
    return n - 2;
}

static bool holds(const char *file, const char *want)
{
    char *text = NULL;
    int64_t n = 0;
    if (tn_file_read(file, 1000, &text, &n) != TN_OK) return false;
    bool same = n == (int64_t)strlen(want) && strcmp(text, want) == 0;
    tn_free(text);
    return same;
}

static void whole_files(void)
{
    char *text = NULL;
    int64_t n = -1;
    TN_CHECK_OK(tn_file_write(path, "first", 5));
    TN_CHECK(holds(path, "first"));
    TN_CHECK_OK(tn_file_write(path, "", 0));
    TN_CHECK(holds(path, ""));
    TN_CHECK_OK(tn_file_write(path, "second", 6));
    TN_CHECK_FAILS(tn_file_read(path, 5, &text, &n), TN_BAD_INPUT, "6 B, at most 5 B");
    TN_CHECK_FAILS(tn_file_read("no/such/file", 5, &text, &n), TN_BAD_INPUT,
                   "no/such/file: cannot open: No such file");
    TN_CHECK_FAILS(tn_file_read(folder, 5, &text, &n), TN_BAD_INPUT, "Is a directory");
    TN_CHECK(text == NULL && n == -1);
    TN_CHECK_FAILS(tn_file_write("no/such/file", "x", 1), TN_BAD_INPUT, "no/such/file");
    TN_CHECK(tn_file_exists(path) && !tn_file_exists("no/such/file") && tn_file_is_folder(folder) &&
             !tn_file_is_folder(path));
}

static void folders(void)
{
    char deep[400];
    snprintf(deep, sizeof deep, "%sa/b//c", folder);
    TN_CHECK_OK(tn_file_mkdirs(deep));
    TN_CHECK(tn_file_is_folder(deep));
    TN_CHECK_OK(tn_file_mkdirs(deep));
    snprintf(deep, sizeof deep, "%s/x", path);
    TN_CHECK_FAILS(tn_file_mkdirs(deep), TN_BAD_INPUT, "cannot make the folder");
    tn_fault_arm(TN_FAULT_FILE_MKDIR, 1);
    snprintf(deep, sizeof deep, "%sz/y", folder);
    TN_CHECK_FAILS(tn_file_mkdirs(deep), TN_BAD_INPUT, "cannot make the folder");
    TN_CHECK(!tn_file_exists(deep));
}

static tn_status replace(void *arg)
{
    return tn_file_write(path, arg, strlen(arg));
}

/* Whatever fails on the way, the old file stays whole and nothing else stays behind. */
static void faults(void)
{
    static const tn_fault places[] = {TN_FAULT_FILE_OPEN, TN_FAULT_FILE_WRITE, TN_FAULT_FILE_SYNC,
                                      TN_FAULT_FILE_RENAME};
    TN_CHECK_OK(tn_file_write(path, "old", 3));
    int before = entries(folder);
    for (int i = 0; i < TN_COUNT(places); i++) {
        tn_fault_arm(places[i], 1);
        tn_status st = tn_file_write(path, "new", 3);
        TN_CHECK_MSG(st != TN_OK && strstr(tn_error_text(), path), "place %d: %d %s", i, (int)st,
                     tn_error_text());
        TN_CHECK(holds(path, "old") && entries(folder) == before);
        TN_CHECK_OK(tn_file_write(path, "old", 3)); /* a point fires once */
    }
    tn_fault_arm(TN_FAULT_FILE_SYNC, 2); /* the folder's sync: the file has its name already */
    TN_CHECK_FAILS(tn_file_write(path, "new", 3), TN_FAILED, "cannot sync");
    TN_CHECK(holds(path, "new") && entries(folder) == before);
    TN_CHECK(tn_test_each_alloc(replace, (void *)(uintptr_t) "newer") > 0 && holds(path, "newer"));
    tn_fault_arm(TN_FAULT_FILE_READ, 1);
    char *text = NULL;
    int64_t n = 0;
    TN_CHECK_FAILS(tn_file_read(path, 100, &text, &n), TN_FAILED, "cannot read");

    TN_CHECK_OK(tn_fault_parse("debug.fault", ""));
    TN_CHECK_OK(tn_fault_parse("debug.fault", "file.sync, file.write:2"));
    TN_CHECK(!tn_fault_hit(TN_FAULT_FILE_WRITE) && tn_fault_hit(TN_FAULT_FILE_WRITE) &&
             errno == ENOSPC);
    TN_CHECK(!tn_fault_hit(TN_FAULT_FILE_WRITE) && !tn_fault_hit(TN_FAULT_FILE_RENAME));
    tn_fault_clear();
    TN_CHECK(!tn_fault_hit(TN_FAULT_FILE_SYNC));
    TN_CHECK_FAILS(tn_fault_parse("debug.fault", "file.wirte:2"), TN_BAD_INPUT,
                   "debug.fault: no fault point 'file.wirte'; did you mean 'file.write'?");
    TN_CHECK_FAILS(tn_fault_parse("debug.fault", "file.write:0"), TN_BAD_INPUT, "counts from 1");
    TN_CHECK_FAILS(tn_fault_parse("debug.fault", "file.write:2x"), TN_BAD_INPUT, "counts from 1");
}

static void pieces(void)
{
    tn_file *f = NULL;
    int before = entries(folder);
    TN_CHECK_OK(tn_file_create(path, &f));
    TN_CHECK_OK(tn_file_put(f, "left", 4));
    TN_CHECK(holds(path, "newer"));
    tn_file_discard(f);
    TN_CHECK(holds(path, "newer") && entries(folder) == before);
    TN_CHECK_OK(tn_file_create(path, &f));
    TN_CHECK_OK(tn_file_put(f, "le", 2));
    TN_CHECK_OK(tn_file_put(f, "ft", 2));
    TN_CHECK_OK(tn_file_publish(f));
    TN_CHECK(holds(path, "left") && entries(folder) == before);
    for (int i = 0; i < 2; i++) {
        TN_CHECK_OK(tn_file_append(path, &f));
        TN_CHECK_OK(tn_file_put(f, "+", 1));
        tn_file_discard(f);
    }
    TN_CHECK(holds(path, "left++"));
}

static void maps(void)
{
    tn_map m = {0};
    tn_map_close(&m);
    TN_CHECK_OK(tn_map_open(path, &m));
    TN_CHECK(m.n == 6 && memcmp(m.data, "left++", 6) == 0);
    tn_map_close(&m);
    TN_CHECK(m.data == NULL);
    TN_CHECK_OK(tn_file_write(path, "", 0));
    TN_CHECK_OK(tn_map_open(path, &m));
    TN_CHECK(m.n == 0 && m.data != NULL);
    tn_map_close(&m);
    TN_CHECK_FAILS(tn_map_open("no/such/file", &m), TN_BAD_INPUT, "no/such/file");
    TN_CHECK_FAILS(tn_map_open(folder, &m), TN_BAD_INPUT, "Is a directory");
    TN_CHECK_FAILS(tn_map_open("/dev/null", &m), TN_BAD_INPUT, "not a regular file");
    TN_CHECK_OK(tn_file_write(path, "x", 1));
    tn_fault_arm(TN_FAULT_MAP, 1);
    TN_CHECK_FAILS(tn_map_open(path, &m), TN_FAILED, "cannot map");
    TN_CHECK(m.data == NULL);
}

int main(void)
{
    snprintf(folder, sizeof folder, "%s", tn_scratch_path(""));
    snprintf(path, sizeof path, "%sfile", folder);
    whole_files();
    folders();
    faults();
    pieces();
    maps();
    return tn_test_done("file");
}
