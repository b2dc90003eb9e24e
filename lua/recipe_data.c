#include "lua/recipe_data.h"

#include "engine/base/json.h"
#include "lua/model.h"

#include <stdio.h>
#include <string.h>

static tn_status path_list(const tn_recipe *r, const char *key, tn_arena *arena, tn_data_options *o)
{
    void *mem;
    char sub[96];
    int count = tn_recipe_is_set(r, key) ? tn_recipe_count(r, key) : 0;
    TN_TRY(tn_arena_alloc(arena, (size_t)(count + 1) * sizeof(tn_data_path), &mem));
    tn_data_path *paths = mem;
    for (int i = 0; i < count; i++) {
        tn_data_path p = {.pattern = tn_recipe_text_at(r, key, i)};
        snprintf(sub, sizeof sub, "%s[%d].weight", key, i + 1);
        if (!p.pattern[0]) { /* { "file", weight = 2 } */
            char name[96];
            snprintf(name, sizeof name, "%s[%d][1]", key, i + 1);
            p.pattern = tn_recipe_text(r, name);
            p.weight = tn_recipe_num(r, sub);
        }
        paths[i] = p;
    }
    o->paths = paths;
    o->n_paths = count;
    return TN_OK;
}

/* "hf": the tokenizer.json of model.hf. A token file knows its own unless the recipe insists. */
static tn_status choose_tokenizer(tn_recipe *r, tn_arena *arena, tn_data_options *o)
{
    char path[4096];
    const char *folder;
    o->tokenizer = tn_recipe_text(r, "data.tokenizer");
    if (!strcmp(o->source, "tokens") && !strcmp(tn_recipe_where(r, "data.tokenizer"), "default"))
        o->tokenizer = NULL;
    if (!o->tokenizer || strcmp(o->tokenizer, "hf")) return TN_OK;
    TN_TRY(tn_model_hf_dir(r, arena, &folder));
    if (!folder[0])
        TN_FAIL(
            TN_BAD_INPUT,
            "%s: data.tokenizer: 'hf' is the tokenizer of model.hf, and this model is not built "
            "from a Hugging Face folder; name a tokenizer.json",
            tn_recipe_where(r, "data.tokenizer"));
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    return tn_arena_text(arena, path, &o->tokenizer);
}

static tn_status choose_cache(const tn_recipe *r, tn_arena *arena, tn_data_options *o)
{
    char path[4096];
    o->cache_folder = tn_recipe_text(r, "data.cache_folder");
    if (o->cache_folder[0]) return TN_OK;
    snprintf(path, sizeof path, "%s/cache", tn_recipe_text(r, "job.dump_folder"));
    return tn_arena_text(arena, path, &o->cache_folder);
}

tn_status tn_recipe_data_options(tn_recipe *r, const tn_recipe_data_run *run, tn_arena *arena,
                                 tn_data_options *out)
{
    tn_data_options o = {.source = tn_recipe_text(r, "data.source"),
                         .end_token = tn_recipe_is_set(r, "data.end_token")
                                          ? tn_recipe_text(r, "data.end_token")
                                          : NULL,
                         .field = tn_recipe_text(r, "data.field"),
                         .mode = tn_recipe_text(r, "data.mode"),
                         .packing = tn_recipe_bool(r, "data.packing") ? "documents" : "stream",
                         .document = tn_recipe_text(r, "data.document"),
                         .validation = tn_recipe_num(r, "data.validation"),
                         .shuffle = tn_recipe_bool(r, "data.shuffle"),
                         .seed = (uint64_t)tn_recipe_int(r, "data.seed"),
                         .epochs = tn_recipe_int(r, "data.epochs"),
                         .seq_len = run->seq_len,
                         .global_batch = run->global_batch,
                         .vocab_size = run->vocab_size,
                         .threads = run->threads,
                         .progress = run->progress,
                         .user = run->user};
    TN_TRY(path_list(r, "data.path", arena, &o));
    TN_TRY(choose_tokenizer(r, arena, &o));
    TN_TRY(choose_cache(r, arena, &o));
    if (!strcmp(o.source, "random")) { /* `data.source=random` on a recipe made for a text: the rest
                                          of the section is idle */
        o.n_paths = 0;
        o.validation = 0;
        o.epochs = 0;
        o.packing = "stream";
        o.mode = "built";
    }
    *out = o;
    return TN_OK;
}

static tn_status open_both(tn_recipe *r, tn_data_options *o, tn_data **data, tn_data **validation)
{
    tn_data_path path = {.pattern = tn_recipe_text(r, "validation.data")};
    TN_TRY(tn_data_open(o, data));
    if (!tn_recipe_bool(r, "validation.enable")) return TN_OK;
    if (!tn_recipe_is_set(r, "validation.data")) {
        if (o->validation <= 0)
            TN_FAIL(TN_BAD_INPUT,
                    "%s: validation.enable: nothing is held out; set data.validation = 0.02 or "
                    "validation.data",
                    tn_recipe_where(r, "validation.enable"));
        return TN_OK;
    }
    o->section = "validation.data";
    o->validation = 1;
    o->shuffle = false;
    o->mode = "built"; /* its size must be known */
    o->n_paths = 1;
    o->paths = &path;
    return tn_data_open(o, validation);
}

tn_status tn_recipe_data_open(tn_recipe *r, const tn_recipe_data_run *run, tn_data **data,
                              tn_data **validation)
{
    tn_arena arena = {0};
    tn_data_options o;
    tn_status st = tn_recipe_data_options(r, run, &arena, &o);
    if (!st) st = open_both(r, &o, data, validation);
    tn_arena_fini(&arena);
    return st;
}

/* ------------------------------------------------------------ the tokenizer */

/* The one that a token file names, if it is still what it was. */
static tn_status of_token_file(const char *path, tn_arena *arena, const char **out)
{
    tn_tokens *t;
    const tn_json *about = NULL;
    tn_codec *codec = NULL;
    int64_t n;
    if (tn_tokens_open(path, &t)) { /* a pattern */
        tn_error_clear();
        return TN_OK;
    }
    const char *json = tn_tokens_json(t, &n), *name = NULL;
    tn_status st = tn_json_parse(path, json, n, &about);
    if (!st) name = tn_json_string(tn_json_find(about, "tokenizer"));
    if (name && tn_codec_open("data", name, "", &codec)) tn_error_clear();
    if (codec && tn_codec_fingerprint(codec) == tn_tokens_about(t)->tokenizer)
        st = tn_arena_text(arena, name, out);
    tn_codec_close(codec);
    tn_json_free(about);
    tn_tokens_close(t);
    return st;
}

tn_status tn_recipe_data_tokenizer(tn_recipe *r, char *out, size_t size)
{
    tn_arena arena = {0};
    tn_recipe_data_run run = {0};
    tn_data_options o;
    const char *name = NULL;
    tn_status st = tn_recipe_data_options(r, &run, &arena, &o);
    bool text = !st && (!strcmp(o.source, "text") || !strcmp(o.source, "jsonl"));
    bool tokens = !st && !strcmp(o.source, "tokens");
    if (text || tokens) name = o.tokenizer;
    if (tokens && !name && o.n_paths) st = of_token_file(o.paths[0].pattern, &arena, &name);
    if (!st) snprintf(out, size, "%s", name ? name : "");
    tn_arena_fini(&arena);
    return st;
}
