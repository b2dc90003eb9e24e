#include "checkpoints/hf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoints/quote.h"
#include "engine/base/file.h"
#include "engine/base/mem.h"
#include "engine/base/text.h"

#define SINGLE "model.safetensors"
#define INDEX "model.safetensors.index.json"

enum { MAX_FILES = 4096, MAX_INDEX_BYTES = 128 << 20, MAX_FILE_NAME = 255 };

typedef struct shard {
    const char *name; /* within the folder */
    tn_safetensors *file;
} shard;

struct tn_hf {
    tn_arena arena;
    const char *dir;
    tn_hf_config config;
    shard *shards; /* sorted by name */
    int64_t n_shards;
    const tn_safetensors_tensor **tensors; /* sorted by name */
    int64_t n_tensors;
};

static tn_status path_of(tn_arena *arena, const char *dir, const char *name, const char **out)
{
    size_t n = strlen(dir) + strlen(name) + 2;
    void *mem;
    TN_TRY(tn_arena_alloc(arena, n, &mem));
    snprintf(mem, n, "%s/%s", dir, name);
    *out = mem;
    return TN_OK;
}

static tn_status open_shard(tn_hf *hf, const char *name)
{
    const char *path;
    shard *s = &hf->shards[hf->n_shards];
    TN_TRY(path_of(&hf->arena, hf->dir, name, &path));
    TN_TRY(tn_arena_text(&hf->arena, name, &s->name));
    TN_TRY(tn_safetensors_open(path, &s->file));
    hf->n_shards++;
    return TN_OK;
}

static int by_text(const void *a, const void *b)
{
    const char *const *x = a, *const *y = b;
    return strcmp(*x, *y);
}

static int by_shard_name(const void *a, const void *b)
{
    const shard *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static int by_tensor_name(const void *a, const void *b)
{
    const tn_safetensors_tensor *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static const shard *find_shard(const tn_hf *hf, const char *name)
{
    shard key = {.name = name};
    return bsearch(&key, hf->shards, (size_t)hf->n_shards, sizeof key, by_shard_name);
}

/* A name from an index is only ever a file of the folder itself. */
static tn_status check_file_name(const char *index, const char *tensor, const tn_json *json)
{
    static const char suffix[] = ".safetensors";
    const char *name = tn_json_string(json);
    size_t n = name ? strlen(name) : 0, end = sizeof suffix - 1;
    bool bad =
        n <= end || n > MAX_FILE_NAME || name[0] == '.' || strcmp(name + n - end, suffix) != 0;
    for (size_t i = 0; i < n; i++)
        bad |= name[i] == '/' || name[i] == '\\' || tn_quote_control(name + i);
    if (!name)
        TN_FAIL(TN_BAD_INPUT, "%s: weight_map '%s': is %s; it must be the name of a file", index,
                tn_quote_text(tensor).s, tn_json_kind_name(tn_json_kind_of(json)));
    if (bad)
        TN_FAIL(
            TN_BAD_INPUT,
            "%s: weight_map '%s': file name '%s'; it must be NAME.safetensors in the same folder",
            index, tn_quote_text(tensor).s, tn_quote_text(name).s);
    return TN_OK;
}

/* Open each file that the map names, once. names: room for a pointer for each entry. */
static tn_status open_shards(tn_hf *hf, const char *index, const tn_json *map, const char **names)
{
    int64_t n = 0, n_files = 0;
    void *mem;
    for (tn_json_pair p = tn_json_first(map); p.key; p = tn_json_next(p)) {
        TN_TRY(check_file_name(index, p.key, p.value));
        names[n++] = tn_json_string(p.value);
    }
    if (n) qsort(names, (size_t)n, sizeof *names, by_text);
    for (int64_t i = 0; i < n; i++)
        if (i == 0 || strcmp(names[i - 1], names[i]) != 0) names[n_files++] = names[i];
    if (n_files > MAX_FILES)
        TN_FAIL(TN_BAD_INPUT, "%s: weight_map: %lld files; at most %d", index, (long long)n_files,
                MAX_FILES);
    TN_TRY(tn_alloc((size_t)n_files * sizeof *hf->shards, &mem));
    hf->shards = mem;
    for (int64_t i = 0; i < n_files; i++)
        TN_TRY_WHILE(open_shard(hf, names[i]), "opening what %s names", index);
    return TN_OK;
}

/* Index and files name the same tensors. */
static tn_status check_map(const tn_hf *hf, const char *index, const tn_json *map)
{
    for (tn_json_pair p = tn_json_first(map); p.key; p = tn_json_next(p)) {
        const shard *s = find_shard(hf, tn_json_string(p.value));
        if (!tn_safetensors_find(s->file, p.key))
            TN_FAIL(TN_BAD_INPUT, "%s: weight_map '%s': missing from %s", index,
                    tn_quote_text(p.key).s, s->name);
    }
    for (int64_t i = 0; i < hf->n_shards; i++) {
        const shard *s = &hf->shards[i];
        for (int64_t j = 0; j < tn_safetensors_count(s->file); j++) {
            const char *name = tn_safetensors_get(s->file, j)->name;
            const char *at = tn_json_string(tn_json_find(map, name));
            if (!at || strcmp(at, s->name) != 0)
                TN_FAIL(TN_BAD_INPUT, "%s: tensor '%s' of %s is %s%s in weight_map", index, name,
                        s->name, at ? "placed in " : "not", at ? at : "");
        }
    }
    return TN_OK;
}

/* metadata.total_size is not compared: published files count shared tensors twice, or in another
 * dtype. */
static tn_status read_index(tn_hf *hf, const char *index, const tn_json *root)
{
    const tn_json *map = tn_json_find(root, "weight_map");
    void *names;
    if (tn_json_kind_of(map) != TN_JSON_OBJECT || tn_json_count(map) == 0)
        TN_FAIL(TN_BAD_INPUT, "%s: weight_map must be an object that names the file of each tensor",
                index);
    TN_TRY(tn_alloc((size_t)tn_json_count(map) * sizeof(char *), &names));
    tn_status st = open_shards(hf, index, map, names);
    tn_free(names);
    TN_TRY(st);
    return check_map(hf, index, map);
}

static tn_status open_index(tn_hf *hf, const char *index)
{
    const tn_json *root = NULL;
    char *text = NULL;
    int64_t n = 0;
    TN_TRY(tn_file_read(index, MAX_INDEX_BYTES, &text, &n));
    tn_status st = tn_json_parse(index, text, n, &root);
    tn_free(text);
    if (!st) st = read_index(hf, index, root);
    tn_json_free(root);
    return st;
}

static tn_status open_single(tn_hf *hf)
{
    void *mem;
    TN_TRY(tn_alloc(sizeof *hf->shards, &mem));
    hf->shards = mem;
    return open_shard(hf, SINGLE);
}

static tn_status open_weights(tn_hf *hf)
{
    const char *single, *index, *pickled;
    TN_TRY(path_of(&hf->arena, hf->dir, SINGLE, &single));
    TN_TRY(path_of(&hf->arena, hf->dir, INDEX, &index));
    TN_TRY(path_of(&hf->arena, hf->dir, "pytorch_model.bin", &pickled));
    if (tn_file_exists(single)) return open_single(hf);
    if (tn_file_exists(index)) return open_index(hf, index);
    TN_FAIL(TN_BAD_INPUT, "%s: neither " SINGLE " nor " INDEX "; %s", hf->dir,
            tn_file_exists(pickled) ? "pytorch_model.bin is not read: save the model as safetensors"
                                    : "name a Hugging Face folder");
}

static tn_status collect_tensors(tn_hf *hf)
{
    int64_t n = 0;
    void *mem;
    for (int64_t i = 0; i < hf->n_shards; i++) n += tn_safetensors_count(hf->shards[i].file);
    TN_TRY(tn_alloc((size_t)n * sizeof *hf->tensors, &mem));
    hf->tensors = mem;
    for (int64_t i = 0; i < hf->n_shards; i++)
        for (int64_t j = 0; j < tn_safetensors_count(hf->shards[i].file); j++)
            hf->tensors[hf->n_tensors++] = tn_safetensors_get(hf->shards[i].file, j);
    if (n) qsort(hf->tensors, (size_t)n, sizeof *hf->tensors, by_tensor_name);
    return TN_OK;
}

tn_status tn_hf_open(const char *dir, tn_hf **out)
{
    void *mem;
    TN_TRY(tn_alloc(sizeof **out, &mem));
    tn_hf *hf = mem;
    tn_status st = tn_arena_text(&hf->arena, dir, &hf->dir);
    if (!st) st = tn_hf_config_read(dir, &hf->config);
    if (!st) st = open_weights(hf);
    if (!st) st = collect_tensors(hf);
    if (st) {
        tn_hf_close(hf);
        return st;
    }
    *out = hf;
    return TN_OK;
}

void tn_hf_close(tn_hf *hf)
{
    if (!hf) return;
    for (int64_t i = 0; i < hf->n_shards; i++) tn_safetensors_close(hf->shards[i].file);
    tn_free(hf->shards);
    tn_free(hf->tensors);
    tn_hf_config_free(&hf->config);
    tn_arena_fini(&hf->arena);
    tn_free(hf);
}

const char *tn_hf_dir(const tn_hf *hf)
{
    return hf->dir;
}

const tn_hf_config *tn_hf_config_of(const tn_hf *hf)
{
    return &hf->config;
}

int64_t tn_hf_files(const tn_hf *hf)
{
    return hf->n_shards;
}

int64_t tn_hf_count(const tn_hf *hf)
{
    return hf->n_tensors;
}

const tn_safetensors_tensor *tn_hf_get(const tn_hf *hf, int64_t i)
{
    return hf->tensors[i];
}

const tn_safetensors_tensor *tn_hf_find(const tn_hf *hf, const char *name)
{
    const tn_safetensors_tensor key = {.name = name}, *p = &key;
    if (!hf->n_tensors) return NULL;
    const tn_safetensors_tensor **at =
        bsearch(&p, hf->tensors, (size_t)hf->n_tensors, sizeof p, by_tensor_name);
    return at ? *at : NULL;
}

static tn_status check_wanted(const tn_safetensors_tensor *t, const tn_hf_want *w)
{
    float none;
    TN_TRY(tn_safetensors_check_shape(t, w->rank, w->shape));
    return tn_safetensors_to_f32(t, 0, 0, &none); /* its dtype converts */
}

static bool is_ignored(const char *name, const char *const *ignored, int n)
{
    size_t length = strlen(name);
    for (int i = 0; i < n; i++) {
        size_t end = strlen(ignored[i]);
        if (length >= end && strcmp(name + length - end, ignored[i]) == 0) return true;
    }
    return false;
}

/* "'a', 'b', 'c' and 4 more": the first three that a sweep counts. */
typedef struct name_list {
    char text[3 * 72 + 96];
    size_t at;
    int64_t n;
} name_list;

static void list_name(name_list *l, const char *name)
{
    if (l->n++ < 3)
        l->at += (size_t)snprintf(l->text + l->at, sizeof l->text - l->at, "%s'%s'",
                                  l->n > 1 ? ", " : "", tn_quote_text(name).s);
}

static const char *list_end(name_list *l)
{
    if (l->n > 3)
        snprintf(l->text + l->at, sizeof l->text - l->at, " and %lld more", (long long)l->n - 3);
    return l->text;
}

static tn_status check_missing(const tn_hf *hf, const tn_hf_want *wants, int64_t n)
{
    name_list missing = {0};
    for (int64_t i = 0; i < n; i++)
        if (!tn_hf_find(hf, wants[i].name)) list_name(&missing, wants[i].name);
    if (missing.n)
        TN_FAIL(TN_BAD_INPUT, "%s: %lld of %lld tensors of the model are missing: %s", hf->dir,
                (long long)missing.n, (long long)n, list_end(&missing));
    return TN_OK;
}

tn_status tn_hf_match(const tn_hf *hf, const tn_hf_want *wants, int64_t n,
                      const char *const *ignored, int n_ignored)
{
    name_list surplus = {0};
    void *mem;
    TN_TRY(check_missing(hf, wants, n));
    TN_TRY(tn_alloc((size_t)n * sizeof(char *), &mem));
    const char **names = mem;
    for (int64_t i = 0; i < n; i++) names[i] = wants[i].name;
    if (n) qsort(names, (size_t)n, sizeof *names, by_text);
    for (int64_t i = 0; i < hf->n_tensors; i++) {
        const char *name = hf->tensors[i]->name;
        bool wanted = n && bsearch(&name, names, (size_t)n, sizeof *names, by_text);
        if (!wanted && !is_ignored(name, ignored, n_ignored)) list_name(&surplus, name);
    }
    tn_free(names);
    if (surplus.n)
        TN_FAIL(TN_BAD_INPUT, "%s: %lld tensors that the model does not have: %s", hf->dir,
                (long long)surplus.n, list_end(&surplus));
    for (int64_t i = 0; i < n; i++) TN_TRY(check_wanted(tn_hf_find(hf, wants[i].name), &wants[i]));
    return TN_OK;
}

typedef struct export_paths {
    const char *config, *weights;
} export_paths;

/* Gone from the disk too, before anything else of the folder changes (1). */
static tn_status remove_file(const char *dir, const char *path)
{
    if (unlink(path) != 0) return errno == ENOENT ? TN_OK : tn_file_error(path, "replace the file");
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int bad = fd < 0 || (fsync(fd) != 0 && errno != EINVAL); /* EINVAL: a file system without it */
    tn_status st = bad ? tn_file_error(dir, "sync") : TN_OK;
    if (fd >= 0) close(fd);
    return st;
}

static tn_status write_folder(const char *dir, const export_paths *at, const char *config_text,
                              const tn_safetensors_content *content)
{
    tn_hf_config config;
    TN_TRY(tn_hf_config_parse(at->config, config_text, (int64_t)strlen(config_text), &config));
    tn_hf_config_free(&config);
    TN_TRY(tn_file_mkdirs(dir));
    TN_TRY(remove_file(dir, at->config));
    TN_TRY(tn_safetensors_write(at->weights, content));
    return tn_file_write(at->config, config_text, strlen(config_text));
}

tn_status tn_hf_export(const char *dir, const char *config_text, const tn_safetensors_spec *specs,
                       int64_t n, tn_safetensors_source source, void *arg)
{
    static const char *const metadata[][2] = {{"format", "pt"}};
    const tn_safetensors_content content = {.specs = specs,
                                            .n = n,
                                            .metadata = metadata,
                                            .n_metadata = 1,
                                            .source = source,
                                            .arg = arg};
    tn_arena arena = {0};
    export_paths at;
    tn_status st = path_of(&arena, dir, "config.json", &at.config);
    if (!st) st = path_of(&arena, dir, SINGLE, &at.weights);
    if (!st) st = write_folder(dir, &at, config_text, &content);
    tn_arena_fini(&arena);
    return st;
}
