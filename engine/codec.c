#include "engine/codec.h"

#include "engine/base/file.h"
#include "engine/base/hash.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/bytes.h"
#include "engine/encoder.h"

#include <stdio.h>
#include <string.h>

/* What stands around every document. */
typedef struct frame {
    tn_ids before, behind;
} frame;

struct tn_codec {
    const char *name, *end_token; /* "": none */
    tn_tokenizer *tokenizer;      /* NULL: bytes */
    frame frame;
    tn_arena arena;
};

struct tn_codec_worker {
    const tn_codec *codec;
    tn_encoder *encoder;
};

/* ------------------------------------------------------------ opening */

static tn_status append(tn_ids *to, const int32_t *ids, int64_t n)
{
    TN_TRY(tn_ids_grow(to, n));
    if (n) memcpy(to->items + to->n, ids, (size_t)n * sizeof *ids);
    to->n += n;
    return TN_OK;
}

/* The template is what a text has with it and lacks without. */
static tn_status find_template(tn_codec *c, tn_encoder *e, tn_ids *plain, tn_ids *full)
{
    TN_TRY(tn_encoder_encode(e, "a", 1, 0, plain));
    TN_TRY(tn_encoder_encode(e, "a", 1, TN_ENCODE_TEMPLATE, full));
    int64_t at = 0, rest = full->n - plain->n;
    size_t bytes = (size_t)plain->n * sizeof(int32_t);
    while (at < rest && memcmp(full->items + at, plain->items, bytes) != 0) at++;
    TN_TRY(append(&c->frame.before, full->items, at));
    return append(&c->frame.behind, full->items + at + plain->n, rest - at);
}

static tn_status open_frame(tn_codec *c)
{
    tn_encoder *e;
    tn_ids plain = {0}, full = {0};
    TN_TRY(tn_encoder_create(c->tokenizer, &e));
    tn_status st = find_template(c, e, &plain, &full);
    tn_ids_fini(&plain);
    tn_ids_fini(&full);
    tn_encoder_destroy(e);
    return st;
}

/* eos_token of tokenizer_config.json in the same folder: a text, or an object with "content". */
static tn_status configured_end(tn_codec *c, const char **out)
{
    char path[4096];
    const char *slash = strrchr(c->name, '/');
    const tn_json *config;
    *out = "";
    snprintf(path, sizeof path, "%.*stokenizer_config.json", slash ? (int)(slash - c->name + 1) : 0,
             c->name);
    if (!tn_file_exists(path)) return TN_OK;
    TN_TRY(tn_json_read(path, &config));
    const tn_json *eos = tn_json_find(config, "eos_token");
    const char *text = tn_json_string(eos);
    if (!text) text = tn_json_string(tn_json_find(eos, "content"));
    tn_status st = text ? tn_arena_text(&c->arena, text, out) : TN_OK;
    tn_json_free(config);
    return st;
}

/* Behind the template, unless that ends with it. */
static tn_status add_end(tn_codec *c, const char *section)
{
    int32_t id;
    frame *f = &c->frame;
    if (!c->end_token[0]) return TN_OK;
    TN_TRY(tn_tokenizer_find(c->tokenizer, c->end_token, &id));
    if (id < 0)
        TN_FAIL(TN_BAD_INPUT, "%s.end_token: '%s' has no token '%s'; set end_token = \"\" for none",
                section, c->name, c->end_token);
    if (f->behind.n && f->behind.items[f->behind.n - 1] == id) return TN_OK;
    return append(&f->behind, &id, 1);
}

static tn_status open_parts(const char *section, const char *name, const char *end_token,
                            tn_codec *c)
{
    TN_TRY(tn_arena_text(&c->arena, name ? name : "bytes", &c->name));
    TN_TRY(tn_arena_text(&c->arena, end_token ? end_token : "", &c->end_token));
    if (strcmp(c->name, "bytes") == 0) {
        if (end_token && end_token[0])
            TN_FAIL(TN_BAD_INPUT, "%s.end_token: bytes have no token '%s'; leave it out", section,
                    end_token);
        return TN_OK;
    }
    if (!tn_file_exists(c->name) || tn_file_is_folder(c->name))
        TN_FAIL(
            TN_BAD_INPUT,
            "%s.tokenizer: '%s': %s; use bytes, or the path of a tokenizer.json: `huggingface-cli "
            "download MODEL tokenizer.json tokenizer_config.json --local-dir DIR` brings one "
            "(docs/data.md)",
            section, c->name, tn_file_is_folder(c->name) ? "is a folder" : "no such file");
    TN_TRY_WHILE(tn_tokenizer_open(c->name, &c->tokenizer), "opening %s.tokenizer", section);
    TN_TRY(open_frame(c));
    if (!end_token) TN_TRY(configured_end(c, &c->end_token));
    return add_end(c, section);
}

tn_status tn_codec_open(const char *section, const char *name, const char *end_token,
                        tn_codec **out)
{
    void *mem;
    TN_TRY(tn_alloc(sizeof(tn_codec), &mem));
    tn_codec *c = mem;
    tn_status st = open_parts(section, name, end_token, c);
    if (st) {
        tn_codec_close(c);
        return st;
    }
    *out = c;
    return TN_OK;
}

void tn_codec_close(tn_codec *c)
{
    if (!c) return;
    tn_tokenizer_close(c->tokenizer);
    tn_ids_fini(&c->frame.before);
    tn_ids_fini(&c->frame.behind);
    tn_arena_fini(&c->arena);
    tn_free(c);
}

const char *tn_codec_name(const tn_codec *c)
{
    return c->name;
}

int64_t tn_codec_size(const tn_codec *c)
{
    return c->tokenizer ? tn_tokenizer_size(c->tokenizer) : TN_BYTES_VOCAB;
}

uint64_t tn_codec_fingerprint(const tn_codec *c)
{
    return c->tokenizer ? tn_tokenizer_fingerprint(c->tokenizer) : tn_hash_text("bytes");
}

const char *tn_codec_end_token(const tn_codec *c)
{
    return c->end_token;
}

/* ------------------------------------------------------------ text and ids */

tn_status tn_codec_worker_open(const tn_codec *codec, tn_codec_worker **out)
{
    void *mem;
    TN_TRY(tn_alloc(sizeof(tn_codec_worker), &mem));
    tn_codec_worker *w = mem;
    w->codec = codec;
    tn_status st = codec->tokenizer ? tn_encoder_create(codec->tokenizer, &w->encoder) : TN_OK;
    if (st) {
        tn_free(w);
        return st;
    }
    *out = w;
    return TN_OK;
}

void tn_codec_worker_close(tn_codec_worker *w)
{
    if (!w) return;
    tn_encoder_destroy(w->encoder);
    tn_free(w);
}

tn_status tn_codec_encode(tn_codec_worker *w, const char *text, int64_t n, bool first, bool last,
                          tn_ids *out)
{
    const frame *f = &w->codec->frame;
    if (!w->encoder) {
        TN_TRY(tn_ids_grow(out, n));
        tn_bytes_encode((const uint8_t *)text, n, out->items + out->n);
        out->n += n;
        return TN_OK;
    }
    if (first) TN_TRY(append(out, f->before.items, f->before.n));
    TN_TRY(tn_encoder_encode(w->encoder, text, n, 0, out));
    return last ? append(out, f->behind.items, f->behind.n) : TN_OK;
}

tn_status tn_codec_decode(const tn_codec *c, const int32_t *ids, int64_t n, tn_text *out)
{
    if (c->tokenizer) return tn_tokenizer_decode(c->tokenizer, ids, n, false, out);
    for (int64_t i = 0; i < n; i++) {
        uint8_t byte;
        TN_TRY(tn_bytes_decode(&ids[i], 1, &byte));
        tn_text_put(out, (const char *)&byte, 1);
    }
    return tn_text_end(out);
}
