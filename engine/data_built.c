#include "engine/data_built.h"

#include "engine/base/file.h"
#include "engine/base/hash.h"

#include <stdio.h>
#include <string.h>

static bool is(const char *value, const char *word)
{
    return value && strcmp(value, word) == 0;
}

tn_status tn_data_built_rule(const tn_data_options *o, tn_documents_rule *out)
{
    static const char *const documents[] = {[TN_CORPUS_LINE] = "line",
                                            [TN_CORPUS_BLANK_LINE] = "blank_line",
                                            [TN_CORPUS_FILE] = "file"};
    int cut;
    TN_TRY(tn_data_choose(o, "document", o->document, documents, TN_COUNT(documents), &cut));
    bool jsonl = is(o->source, "jsonl");
    if (jsonl || is(o->source, "tokens"))
        TN_TRY(tn_data_refuse(o, "document", cut != TN_CORPUS_LINE,
                              jsonl ? "each line of JSONL is a document"
                                    : "a token file knows its documents"));
    *out = (tn_documents_rule){.section = o->section,
                               .jsonl = jsonl,
                               .field = o->field ? o->field : "text",
                               .cut = (tn_corpus_rule)cut};
    return TN_OK;
}

bool tn_data_built_is_mapped(const tn_data_options *o, const tn_paths *sources)
{
    bool mapped = !is(o->source, "jsonl") && (!o->tokenizer || is(o->tokenizer, "bytes"));
    for (int64_t i = 0; i < sources->n; i++)
        mapped = mapped && !tn_inflate_is_packed(sources->items[i].name);
    return mapped;
}

static const char *cache_of(const tn_data_options *o)
{
    return o->cache_folder && o->cache_folder[0] ? o->cache_folder : "cache";
}

static tn_status name_file(const tn_data_options *o, const tn_paths *sources,
                           const tn_documents_rule *rule, const tn_codec *codec, char *out,
                           size_t size)
{
    tn_tokens_origin origin = tn_tokens_origin_of(sources, rule, codec);
    const char *name = sources->items[0].name, *slash = strrchr(name, '/');
    const char *base = slash ? slash + 1 : name;
    int stem = (int)strcspn(base, ".");
    int n = snprintf(out, size, "%s/%.*s-%016llx.tokens", cache_of(o), stem < 48 ? stem : 48, base,
                     (unsigned long long)tn_hash_xxh64(&origin, sizeof origin, 0));
    if (n < 0 || (size_t)n >= size)
        TN_FAIL(TN_BAD_INPUT, "%s.cache_folder: '%s': the name is too long", o->section,
                cache_of(o));
    return TN_OK;
}

static tn_status make(const tn_data_options *o, const tn_paths *sources,
                      const tn_documents_rule *rule, const tn_codec *codec, char *path, size_t size,
                      bool *made)
{
    char folder[4096];
    const char *slash;
    if (!path[0]) TN_TRY(name_file(o, sources, rule, codec, path, size));
    slash = strrchr(path, '/');
    if (slash && slash > path) {
        snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path);
        TN_TRY_WHILE(tn_file_mkdirs(folder), "making the folder of a token file");
    }
    tn_tokens_build_options b = {path, sources, *rule, codec, o->threads, o->progress, o->user};
    return tn_tokens_build(&b, made);
}

tn_status tn_data_built_fits(const tn_data_options *o, const tn_codec *codec)
{
    int64_t size = tn_codec_size(codec);
    if (!o->vocab_size || size <= o->vocab_size || is(tn_codec_name(codec), "bytes")) return TN_OK;
    TN_FAIL(TN_BAD_INPUT,
            "%s.tokenizer: '%s' has ids up to %lld, and model.vocab_size is %lld; set "
            "model.vocab_size = %lld",
            o->section, o->tokenizer, (long long)size - 1, (long long)o->vocab_size,
            (long long)size);
}

tn_status tn_data_built_make(const tn_data_options *o, const tn_paths *sources, char *path,
                             size_t size, bool *made)
{
    tn_documents_rule rule;
    tn_codec *codec;
    TN_TRY(tn_data_built_rule(o, &rule));
    TN_TRY(tn_codec_open(o->section, o->tokenizer, o->end_token, &codec));
    tn_status st = tn_data_built_fits(o, codec);
    if (!st) st = make(o, sources, &rule, codec, path, size, made);
    tn_codec_close(codec);
    return st;
}

static tn_status open_built(const tn_data_options *o, const tn_paths *sources, tn_windows **out)
{
    char path[4096] = "";
    uint64_t tokenizer;
    bool made;
    TN_TRY(tn_data_built_make(o, sources, path, sizeof path, &made));
    return tn_windows_open_tokens(o->section, &(tn_data_path){.pattern = path}, 1, &tokenizer, out);
}

static tn_status check_tokenizer(const tn_data_options *o, const tn_data_path *path,
                                 uint64_t tokenizer)
{
    tn_codec *codec;
    if (!o->tokenizer) return TN_OK;
    TN_TRY(tn_codec_open(o->section, o->tokenizer, "", &codec));
    bool same = tn_codec_fingerprint(codec) == tokenizer;
    tn_codec_close(codec);
    if (!same)
        TN_FAIL(TN_BAD_INPUT,
                "%s.path: '%s' was made with another tokenizer than %s.tokenizer = '%s'; build it "
                "again, or leave the tokenizer out",
                o->section, path->pattern, o->section, o->tokenizer);
    return TN_OK;
}

static tn_status open_tokens(const tn_data_options *o, const tn_data_path *paths, int64_t n_paths,
                             tn_windows **out)
{
    uint64_t tokenizer;
    tn_documents_rule rule;
    tn_windows *w;
    TN_TRY(tn_data_built_rule(o, &rule));
    TN_TRY(tn_windows_open_tokens(o->section, paths, n_paths, &tokenizer, &w));
    tn_status st = check_tokenizer(o, paths, tokenizer);
    if (st) {
        tn_windows_close(w);
        return st;
    }
    *out = w;
    return TN_OK;
}

tn_status tn_data_built_open(const tn_data_options *o, const tn_data_path *paths, int64_t n_paths,
                             tn_windows **out)
{
    tn_paths sources;
    tn_documents_rule rule;
    if (is(o->source, "tokens")) return open_tokens(o, paths, n_paths, out);
    TN_TRY(tn_data_built_rule(o, &rule));
    TN_TRY(tn_paths_find(o->section, paths, n_paths, &sources));
    tn_status st = tn_data_built_is_mapped(o, &sources)
                       ? tn_windows_open_text(o->section, paths, n_paths, rule.cut, out)
                       : open_built(o, &sources, out);
    tn_paths_fini(&sources);
    return st;
}
