#include "engine/paths.h"

#include "engine/base/file.h"
#include "engine/base/hash.h"

#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int64_t modified(const struct stat *s)
{
    return (int64_t)s->st_mtim.tv_sec * 1000000000 + s->st_mtim.tv_nsec;
}

/* What the user can have got wrong, in the words of the recipe. */
static tn_status look_at(const char *section, const char *path, struct stat *s)
{
    if (stat(path, s) != 0)
        TN_FAIL(TN_BAD_INPUT, "%s.path: '%s': %s; give a file that exists, or a glob", section,
                path, strerror(errno));
    if (S_ISDIR(s->st_mode))
        TN_FAIL(TN_BAD_INPUT,
                "%s.path: '%s' is a directory; name the files in it, as in '%s/*.txt'", section,
                path, path);
    if (!S_ISREG(s->st_mode))
        TN_FAIL(
            TN_BAD_INPUT,
            "%s.path: '%s' is no regular file and cannot be read twice; write it to a file first",
            section, path);
    if (s->st_size == 0)
        TN_FAIL(TN_BAD_INPUT, "%s.path: '%s' is empty; leave it out or fill it", section, path);
    return TN_OK;
}

static tn_status add_file(tn_paths *p, const char *section, const char *path)
{
    void *items = p->items;
    struct stat s;
    TN_TRY(look_at(section, path, &s));
    TN_TRY(tn_grow(&items, &p->capacity, p->n + 1, sizeof *p->items));
    p->items = items;
    tn_path *f = &p->items[p->n];
    TN_TRY(tn_arena_text(&p->names, path, &f->name));
    f->bytes = s.st_size;
    f->modified_ns = modified(&s);
    p->n++;
    return TN_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static tn_status add_glob(tn_paths *p, const char *section, const char *pattern)
{
    glob_t g = {0};
    tn_status st = TN_OK;
    int64_t before = p->n;
    int rc = glob(pattern, GLOB_NOSORT, NULL, &g); /* glob sorts by locale */
    if (rc == GLOB_NOSPACE) {
        st = tn_error(TN_FAILED, "memory: too many files match '%s'", pattern);
        goto out;
    }
    if (g.gl_pathc) qsort(g.gl_pathv, g.gl_pathc, sizeof *g.gl_pathv, by_name);
    for (size_t i = 0; i < g.gl_pathc; i++) {
        if (tn_file_is_folder(g.gl_pathv[i])) continue;
        if ((st = add_file(p, section, g.gl_pathv[i]))) goto out;
    }
    if (p->n == before)
        st = tn_error(TN_BAD_INPUT,
                      "%s.path: no file matches '%s'; correct the glob or put files there", section,
                      pattern);
out:
    globfree(&g);
    return st;
}

static tn_status add_pattern(tn_paths *p, const char *section, const char *pattern)
{
    struct stat s;
    if (!pattern || !pattern[0])
        TN_FAIL(TN_BAD_INPUT, "%s.path: the name is empty; give a file or a glob", section);
    if (stat(pattern, &s) == 0 || !strpbrk(pattern, "*?[")) return add_file(p, section, pattern);
    return add_glob(p, section, pattern);
}

tn_status tn_paths_find(const char *section, const tn_data_path *patterns, int64_t n, tn_paths *out)
{
    tn_paths p = {0};
    if (n < 1)
        TN_FAIL(TN_BAD_INPUT, "%s.path: no file is given; name a file, a glob or a list", section);
    for (int64_t i = 0; i < n; i++) {
        tn_status st = add_pattern(&p, section, patterns[i].pattern);
        if (st) {
            tn_paths_fini(&p);
            return st;
        }
    }
    *out = p;
    return TN_OK;
}

void tn_paths_fini(tn_paths *p)
{
    tn_free(p->items);
    tn_arena_fini(&p->names);
    *p = (tn_paths){0};
}

uint64_t tn_paths_fingerprint(const tn_paths *p)
{
    tn_hash h;
    tn_hash_start(&h, 0);
    for (int64_t i = 0; i < p->n; i++) {
        const tn_path *f = &p->items[i];
        const char *slash = strrchr(f->name, '/'), *base = slash ? slash + 1 : f->name;
        tn_hash_add(&h, base, strlen(base) + 1);
        tn_hash_add(&h, &f->bytes, sizeof f->bytes);
        tn_hash_add(&h, &f->modified_ns, sizeof f->modified_ns);
    }
    return tn_hash_value(&h);
}

tn_status tn_paths_check(const char *section, const tn_paths *p)
{
    for (int64_t i = 0; i < p->n; i++) {
        const tn_path *f = &p->items[i];
        struct stat s;
        TN_TRY(look_at(section, f->name, &s));
        if (s.st_size != f->bytes || modified(&s) != f->modified_ns)
            TN_FAIL(TN_BAD_INPUT, "%s.path: '%s' was changed while it was read; start again",
                    section, f->name);
    }
    return TN_OK;
}
