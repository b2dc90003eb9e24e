#include "engine/windows.h"

#include "engine/base/mem.h"
#include "engine/paths.h"
#include "engine/tokens.h"

#include <assert.h>

typedef struct file {
    tn_tokens *tokens;
    int64_t first, n; /* tokens of the row */
} file;

struct tn_windows {
    tn_corpus *text; /* or: */
    file *files;
    int64_t n_files, n_tokens, n_documents, bytes;
    tn_paths paths;
};

/* ------------------------------------------------------------ opening */

static tn_status new_windows(tn_windows **out)
{
    void *mem;
    TN_TRY(tn_alloc(sizeof(tn_windows), &mem));
    *out = mem;
    return TN_OK;
}

tn_status tn_windows_open_text(const char *section, const tn_data_path *paths, int64_t n_paths,
                               tn_corpus_rule rule, tn_windows **out)
{
    tn_windows *w;
    TN_TRY(new_windows(&w));
    tn_status st = tn_corpus_open(section, paths, n_paths, rule, &w->text);
    if (st) {
        tn_windows_close(w);
        return st;
    }
    *out = w;
    return TN_OK;
}

static tn_status open_file(tn_windows *w, const char *section, const char *path,
                           uint64_t *tokenizer)
{
    file *f = &w->files[w->n_files];
    TN_TRY_WHILE(tn_tokens_open(path, &f->tokens), "opening %s.path", section);
    const tn_tokens_header *h = tn_tokens_about(f->tokens);
    if (w->n_files && h->tokenizer != *tokenizer) {
        tn_tokens_close(f->tokens);
        TN_FAIL(TN_BAD_INPUT,
                "%s.path: '%s' was made with another tokenizer than '%s'; build both "
                "with one",
                section, path, w->paths.items[0].name);
    }
    *tokenizer = h->tokenizer;
    f->first = w->n_tokens;
    f->n = h->n_tokens;
    w->n_tokens += h->n_tokens;
    w->n_documents += h->n_documents;
    w->bytes += h->file_bytes;
    w->n_files++;
    return TN_OK;
}

static tn_status open_files(tn_windows *w, const char *section, const tn_data_path *paths,
                            int64_t n_paths, uint64_t *tokenizer)
{
    void *mem;
    TN_TRY(tn_paths_find(section, paths, n_paths, &w->paths));
    TN_TRY(tn_alloc((size_t)w->paths.n * sizeof *w->files, &mem));
    w->files = mem;
    for (int64_t i = 0; i < w->paths.n; i++)
        TN_TRY(open_file(w, section, w->paths.items[i].name, tokenizer));
    return TN_OK;
}

tn_status tn_windows_open_tokens(const char *section, const tn_data_path *paths, int64_t n_paths,
                                 uint64_t *tokenizer, tn_windows **out)
{
    tn_windows *w;
    TN_TRY(new_windows(&w));
    tn_status st = open_files(w, section, paths, n_paths, tokenizer);
    if (st) {
        tn_windows_close(w);
        return st;
    }
    *out = w;
    return TN_OK;
}

void tn_windows_close(tn_windows *w)
{
    if (!w) return;
    tn_corpus_close(w->text);
    for (int64_t i = 0; i < w->n_files; i++) tn_tokens_close(w->files[i].tokens);
    tn_free(w->files);
    tn_paths_fini(&w->paths);
    tn_free(w);
}

/* ------------------------------------------------------------ questions */

int64_t tn_windows_files(const tn_windows *w)
{
    return w->text ? tn_corpus_files(w->text) : w->n_files;
}

int64_t tn_windows_bytes(const tn_windows *w)
{
    return w->text ? tn_corpus_tokens(w->text) : w->bytes;
}

int64_t tn_windows_tokens(const tn_windows *w)
{
    return w->text ? tn_corpus_tokens(w->text) : w->n_tokens;
}

int64_t tn_windows_documents(const tn_windows *w)
{
    return w->text ? tn_corpus_documents(w->text) : w->n_documents;
}

tn_status tn_windows_check(const tn_windows *w, const char *section, int64_t vocab_size)
{
    if (w->text) return tn_corpus_check(w->text, section, vocab_size);
    for (int64_t i = 0; i < w->n_files; i++) {
        const tn_tokens_header *h = tn_tokens_about(w->files[i].tokens);
        if (h->largest >= vocab_size)
            TN_FAIL(TN_BAD_INPUT,
                    "%s.path: '%s' holds id %lld, and model.vocab_size is %lld; use %lld", section,
                    w->paths.items[i].name, (long long)h->largest, (long long)vocab_size,
                    (long long)h->vocab);
    }
    return TN_OK;
}

static const file *find_file(const tn_windows *w, int64_t token)
{
    int64_t low = 0, high = w->n_files; /* files[low].first <= token < files[high].first */
    while (high - low > 1) {
        int64_t middle = (low + high) / 2;
        if (w->files[middle].first <= token) low = middle;
        else high = middle;
    }
    return &w->files[low];
}

tn_status tn_windows_tail(const tn_windows *w, int64_t documents, int64_t *out)
{
    assert(documents >= 1);
    if (w->text) {
        *out = tn_corpus_tail(w->text, documents);
        return TN_OK;
    }
    for (int64_t i = w->n_files - 1; i >= 0; i--) {
        const file *f = &w->files[i];
        int64_t n = tn_tokens_about(f->tokens)->n_documents, start;
        if (documents <= n) {
            TN_TRY(tn_tokens_start(f->tokens, n - documents, &start));
            *out = f->first + start;
            return TN_OK;
        }
        documents -= n;
    }
    *out = 0;
    return TN_OK;
}

tn_status tn_windows_next(const tn_windows *w, int64_t token, int64_t end, int64_t *out)
{
    if (w->text) {
        *out = tn_corpus_next(w->text, token, end);
        return TN_OK;
    }
    const file *f = find_file(w, token);
    int64_t stop = end - f->first < f->n ? end - f->first : f->n, next;
    TN_TRY(tn_tokens_next(f->tokens, token - f->first, stop, &next));
    *out = f->first + next;
    return TN_OK;
}

tn_status tn_windows_copy(const tn_windows *w, int64_t token, int64_t n, int32_t *ids)
{
    if (w->text) {
        tn_corpus_copy(w->text, token, n, ids);
        return TN_OK;
    }
    for (const file *f = find_file(w, token); n > 0; f++) {
        int64_t o = token - f->first, count = f->n - o < n ? f->n - o : n;
        TN_TRY(tn_tokens_copy(f->tokens, o, count, ids));
        token += count;
        ids += count;
        n -= count;
    }
    return TN_OK;
}

void tn_windows_forget(const tn_windows *w, int64_t token, int64_t n)
{
    if (w->text) {
        tn_corpus_forget(w->text, token, n);
        return;
    }
    for (const file *f = find_file(w, token); n > 0; f++) {
        int64_t o = token - f->first, count = f->n - o < n ? f->n - o : n;
        tn_tokens_forget(f->tokens, o, count);
        token += count;
        n -= count;
    }
}
