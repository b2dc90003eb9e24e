/* cmd_data.c - `titan data build|info|show`: token files (engine/tokens.h), and what a sample of a
 * run really is. */
#include "engine/base/clock.h"
#include "engine/base/json.h"
#include "engine/base/jsonout.h"
#include "engine/data_built.h"
#include "lua/commands.h"
#include "lua/recipe_data.h"
#include "lua/show_sample.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ------------------------------------------------------------ progress */

void tn_command_progress(void *user, const struct tn_tokens_progress *p)
{
    static double begun, told;
    double now = tn_clock_s();
    bool bar = isatty(STDERR_FILENO);
    (void)user;
    if (!begun) begun = told = now;
    bool done = p->taken_bytes >= p->all_bytes;
    if (now - told < (bar ? 0.1 : 30) && !(bar && done)) return;
    told = now;
    double share = p->all_bytes ? (double)p->taken_bytes / (double)p->all_bytes : 1;
    double left = share > 0 ? (now - begun) / share * (1 - share) : 0;
    char marks[31];
    for (int i = 0; i < 30; i++) marks[i] = i < (int)(30 * share) ? '#' : '.';
    marks[30] = 0;
    const char *again = p->resumed ? " (resumed)" : "";
    if (!bar)
        fprintf(stderr, "tokenising: %.1f %%, %s tokens%s\n", 100 * share,
                tn_text_count((double)p->tokens).s, again);
    else if (done) fprintf(stderr, "\r\033[K");
    else
        fprintf(stderr, "\r[%s] tokenising %.1f %%, %s tokens, %s left%s \033[K", marks,
                100 * share, tn_text_count((double)p->tokens).s, tn_text_seconds(left).s, again);
}

/* ------------------------------------------------------------ recipes */

static bool is_recipe(const char *path)
{
    size_t n = strlen(path);
    return !strcmp(path, "-") || (n > 4 && !strcmp(path + n - 4, ".lua"));
}

static bool is_jsonl(const char *path)
{
    return strstr(path, ".json") != NULL;
}

/* Files alone: a recipe that names them. */
static tn_status open_recipe(const tn_args *a, tn_recipe **out)
{
    tn_recipe_options o = {
        .overrides = a->overrides, .n_overrides = a->n_overrides, .host = a->host};
    tn_text text = {0};
    if (a->n_paths == 2 && is_recipe(a->paths[1])) {
        o.path = a->paths[1];
        return tn_recipe_open(&o, out);
    }
    bool jsonl = is_jsonl(a->paths[1]);
    tn_text_add(&text,
                "local titan, llama3 = require 'titan', require 'models.llama3'\n"
                "return titan.recipe { model = llama3.debug {}, device = 'cpu', data = { source = "
                "'%s', path = {\n",
                jsonl ? "jsonl" : "text");
    for (int i = 1; i < a->n_paths; i++) {
        tn_text_add(&text, "[=[%s]=],\n", a->paths[i]);
        if (is_recipe(a->paths[i]) || is_jsonl(a->paths[i]) != jsonl) {
            tn_text_fini(&text);
            TN_FAIL(TN_BAD_INPUT,
                    "command line: '%s' and '%s': give one recipe, or files of one kind (text, or "
                    "JSONL named .json or .jsonl)",
                    a->paths[1], a->paths[i]);
        }
    }
    tn_text_add(&text, "} } }\n");
    tn_status st = tn_text_end(&text);
    o.text = tn_text_str(&text);
    o.name = "command line";
    if (!st) st = tn_recipe_open(&o, out);
    tn_text_fini(&text);
    return st;
}

/* ------------------------------------------------------------ build */

static tn_status print_built(const char *path, bool made)
{
    tn_tokens *t;
    TN_TRY(tn_tokens_open(path, &t));
    const tn_tokens_header *h = tn_tokens_about(t);
    printf("%s: %s tokens in %s documents, %u bits each, %s%s\n", path,
           tn_text_count((double)h->n_tokens).s, tn_text_count((double)h->n_documents).s, h->width,
           tn_text_bytes(h->file_bytes).s, made ? "" : "; was there and is up to date");
    tn_tokens_close(t);
    return TN_OK;
}

static tn_status build_part(const tn_args *a, const tn_data_options *o, const tn_data_path *paths,
                            int64_t n_paths)
{
    char path[4096] = "";
    tn_paths sources;
    bool made;
    TN_TRY(tn_paths_find(o->section, paths, n_paths, &sources));
    if (!a->out && tn_data_built_is_mapped(o, &sources)) {
        printf("%s: plain text as bytes is read as it lies; nothing to build (--out FILE does it "
               "all the same)\n",
               paths->pattern);
        tn_paths_fini(&sources);
        return TN_OK;
    }
    if (a->out) snprintf(path, sizeof path, "%s", a->out);
    tn_status st = tn_data_built_make(o, &sources, path, sizeof path, &made);
    tn_paths_fini(&sources);
    return st ? st : print_built(path, made);
}

static tn_status build(const tn_args *a, tn_recipe *r)
{
    tn_arena arena = {0};
    tn_data_options o;
    tn_recipe_data_run run = {.threads = a->threads, .progress = tn_command_progress};
    tn_status st = tn_recipe_data_options(r, &run, &arena, &o);
    o.section = "data";
    bool parts = !st && o.n_paths && o.paths[0].weight > 0;
    if (!st && strcmp(o.source, "text") && strcmp(o.source, "jsonl"))
        st = tn_error(TN_BAD_INPUT, "data.source: '%s' is not tokenised; use text or jsonl",
                      o.source);
    else if (!st && parts && o.n_paths > 1 && a->out)
        st = tn_error(TN_BAD_INPUT,
                      "command line: --out %s: a mixture has a file for each of its %lld entries; "
                      "leave it out, they go to data.cache_folder",
                      a->out, (long long)o.n_paths);
    for (int64_t i = 0; !st && i < (parts ? o.n_paths : 1); i++)
        st = build_part(a, &o, o.paths + i, parts ? 1 : o.n_paths);
    tn_arena_fini(&arena);
    return st;
}

/* ------------------------------------------------------------ info */

static const char *text_of(const tn_json *about, const char *key)
{
    const char *s = tn_json_string(tn_json_find(about, key));
    return s ? s : "";
}

/* How many of the sources are no longer what they were. */
static int64_t changed_sources(const tn_json *sources)
{
    int64_t n = 0;
    for (int64_t i = 0; i < tn_json_count(sources); i++) {
        const tn_json *s = tn_json_at(sources, i);
        const char *path = text_of(s, "path");
        int64_t bytes = -1, modified = -1;
        struct stat now;
        tn_json_int(tn_json_find(s, "bytes"), &bytes);
        tn_json_int(tn_json_find(s, "modified_ns"), &modified);
        n += stat(path, &now) != 0 || now.st_size != bytes ||
             (int64_t)now.st_mtim.tv_sec * 1000000000 + now.st_mtim.tv_nsec != modified;
    }
    return n;
}

static void print_info(const char *path, const tn_tokens_header *h, const tn_json *about,
                       bool checked)
{
    const tn_json *sources = tn_json_find(about, "sources");
    int64_t n = tn_json_count(sources), changed = changed_sources(sources);
    const char *cut = text_of(about, "document"), *field = text_of(about, "field"),
               *end = text_of(about, "end_token");
    printf("%s\n", path);
    printf("  tokens       %lld, %u bits each, the largest %lld\n", (long long)h->n_tokens,
           h->width, (long long)h->largest);
    printf("  documents    %lld, %.1f tokens each\n", (long long)h->n_documents,
           (double)h->n_tokens / (double)h->n_documents);
    printf("  vocabulary   %lld\n", (long long)h->vocab);
    printf("  tokenizer    %s%s%s, fingerprint %016llx\n", text_of(about, "tokenizer"),
           end[0] ? ", behind each document " : "", end, (unsigned long long)h->tokenizer);
    printf("  made of      %s, %s %s: %lld file%s, '%s'%s\n", text_of(about, "kind"),
           field[0] ? "field" : "a document is a", field[0] ? field : cut, (long long)n,
           n == 1 ? "" : "s", text_of(tn_json_at(sources, 0), "path"), n > 1 ? " and others" : "");
    if (changed)
        printf("  sources      %lld of %lld are gone or have changed since\n", (long long)changed,
               (long long)n);
    printf("  file         version %u, %s, %s\n", h->version, tn_text_bytes(h->file_bytes).s,
           checked ? "every byte checked" : "header and tables checked (--check reads it all)");
}

static void print_info_json(const char *path, const tn_tokens_header *h, const tn_json *about,
                            bool checked)
{
    tn_text text = {0};
    tn_jsonout w = {.text = &text};
    char hex[20];
    tn_jsonout_open(&w, NULL, '{');
    tn_jsonout_string(&w, "path", path);
    tn_jsonout_int(&w, "version", h->version);
    tn_jsonout_int(&w, "width", h->width);
    tn_jsonout_int(&w, "vocabulary", h->vocab);
    tn_jsonout_int(&w, "largest", h->largest);
    tn_jsonout_int(&w, "tokens", h->n_tokens);
    tn_jsonout_int(&w, "documents", h->n_documents);
    tn_jsonout_int(&w, "bytes", h->file_bytes);
    tn_jsonout_string(&w, "tokenizer", text_of(about, "tokenizer"));
    snprintf(hex, sizeof hex, "%016llx", (unsigned long long)h->tokenizer);
    tn_jsonout_string(&w, "tokenizer_fingerprint", hex);
    snprintf(hex, sizeof hex, "%016llx", (unsigned long long)h->source);
    tn_jsonout_string(&w, "source_fingerprint", hex);
    tn_jsonout_int(&w, "sources", tn_json_count(tn_json_find(about, "sources")));
    tn_jsonout_int(&w, "changed_sources", changed_sources(tn_json_find(about, "sources")));
    tn_jsonout_bool(&w, "checked", checked);
    tn_jsonout_close(&w);
    if (!text.failed) printf("%s\n", tn_text_str(&text));
    tn_text_fini(&text);
}

static tn_status info(const tn_args *a, const char *path)
{
    tn_tokens *t;
    const tn_json *about = NULL;
    int64_t n;
    TN_TRY(tn_tokens_open(path, &t));
    const char *json = tn_tokens_json(t, &n);
    tn_status st = a->check ? tn_tokens_check(t) : TN_OK;
    if (!st) st = tn_json_parse(path, json, n, &about);
    if (!st && a->json) print_info_json(path, tn_tokens_about(t), about, a->check);
    else if (!st) print_info(path, tn_tokens_about(t), about, a->check);
    tn_json_free(about);
    tn_tokens_close(t);
    return st;
}

/* ------------------------------------------------------------ show */

static tn_status show(const tn_args *a, tn_recipe *r)
{
    tn_text text = {0};
    bool held = a->split && !strcmp(a->split, "validation");
    tn_show_sample_options o = {.sample = a->sample,
                                .split = held ? TN_DATA_VALIDATION : TN_DATA_TRAIN,
                                .json = a->json,
                                .progress = tn_command_progress};
    tn_status st = tn_show_sample(r, &o, &text);
    if (!st) fwrite(tn_text_str(&text), 1, (size_t)text.n_bytes, stdout);
    tn_text_fini(&text);
    return st;
}

/* ------------------------------------------------------------ all */

static tn_status with_recipe(const tn_args *a)
{
    tn_recipe *r;
    TN_TRY(open_recipe(a, &r));
    if (!strcmp(a->paths[0], "show")) return show(a, r); /* closes the recipe */
    tn_status st = build(a, r);
    tn_recipe_close(r);
    return st;
}

tn_status tn_command_data(const tn_args *a)
{
    static const char *const verbs[] = {"build", "info", "show"};
    const char *verb = a->paths[0];
    int which = 0;
    while (which < TN_COUNT(verbs) && strcmp(verb, verbs[which])) which++;
    if (which == TN_COUNT(verbs))
        TN_FAIL(TN_BAD_INPUT, "command line: data %s: use build, info or show%s", verb,
                tn_text_hint(verb, verbs, TN_COUNT(verbs)).s);
    if (which == 1) {
        for (int i = 1; i < a->n_paths; i++) TN_TRY(info(a, a->paths[i]));
        return TN_OK;
    }
    if (which == 2 && (a->n_paths > 2 || !is_recipe(a->paths[1])))
        TN_FAIL(
            TN_BAD_INPUT,
            "command line: data show %s: a sample belongs to a run; write titan data show RECIPE "
            "[--sample I], with data.source=tokens data.path=%s for this file",
            a->paths[1], a->paths[1]);
    if (a->split && strcmp(a->split, "training") && strcmp(a->split, "validation"))
        TN_FAIL(TN_BAD_INPUT, "command line: --split %s: use training or validation", a->split);
    return with_recipe(a);
}
