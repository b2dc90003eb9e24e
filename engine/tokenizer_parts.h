/* tokenizer_parts.h - what a tokenizer.json becomes; for the files tokenizer_*.c only.
 *
 *   tokenizer.c        opening, closing, questions, decoding
 *   tokenizer_vocab.c  vocabulary and merges: reading, hash tables
 *   tokenizer_added.c  added tokens: reading
 *   tokenizer_steps.c  normalizer, pre-tokenizers, post-processor, decoder: reading
 *   added.c            added tokens: search
 *   merger.c           one piece to ids
 *   encoder.c          one text to ids
 *
 * (1) Tokens are bytes: a token of the file whose characters all lie in the byte alphabet stands
 *     for these bytes; any other (`raw`) for its own UTF-8, and no piece is ever equal to it.
 * (2) Ids lie in [0, size); byte_ids has an id for every byte; a merge's three tokens exist.
 */
#ifndef TN_ENGINE_TOKENIZER_PARTS_H
#define TN_ENGINE_TOKENIZER_PARTS_H
#include "engine/added.h"
#include "engine/base/json.h"
#include "engine/regex.h"
#include "engine/tokenizer.h"

TN_C_BEGIN

typedef struct tn_token {
    int64_t at, text_at; /* in tn_tokenizer.blob: what is looked up, what it decodes to */
    int32_t n, text_n;   /* bytes; the two differ for added tokens that the normaliser changes */
    bool is, raw, added, special;
    bool outside; /* added, and not in model.vocab: no piece becomes it */
} tn_token;

/* key = left << 32 | right; UINT64_MAX: empty */
typedef struct tn_merge {
    uint64_t key;
    uint32_t rank;
    int32_t id;
} tn_merge;

typedef enum tn_behavior {
    TN_SPLIT_ISOLATED,
    TN_SPLIT_REMOVED,
    TN_SPLIT_CONTIGUOUS,
    TN_SPLIT_WITH_PREVIOUS,
    TN_SPLIT_WITH_NEXT
} tn_behavior;

/* One step of the pre-tokenizer: a split, or (neither regex nor literal) a blank put in front. */
typedef struct tn_step {
    tn_regex *regex;
    const char *literal;
    int64_t n_literal;
    tn_behavior behavior;
    bool invert;
} tn_step;

enum { TN_MAX_STEPS = 32, TN_MAX_TEMPLATE = 64 };

struct tn_tokenizer {
    const char *path;
    uint64_t fingerprint;
    tn_arena arena; /* contents, literals */
    tn_text blob;   /* the tokens' bytes */
    tn_token *tokens;
    int64_t size, capacity, n_vocab; /* n_vocab: entries of model.vocab */
    int32_t *lookup;                 /* by hash of (bytes, raw); -1: empty */
    uint64_t lookup_mask;
    tn_merge *merges; /* by hash of the pair */
    uint64_t merges_mask;
    int32_t byte_ids[256];
    bool ignore_merges, nfc, byte_level, decodes;
    tn_added_set raw_added, normal_added;
    tn_step steps[TN_MAX_STEPS];
    int n_steps;
    int32_t before[TN_MAX_TEMPLATE], after[TN_MAX_TEMPLATE]; /* template */
    int n_before, n_after;
};

/* Part of a file's text in a message: quoted, short, one line. */
tn_text_short tn_tokenizer_quote(const char *text);

/* JSON of a kind, or TN_BAD_INPUT that says what is there. A boolean that is absent stays. */
tn_status tn_tokenizer_want(const tn_tokenizer *t, const char *key, const tn_json *j,
                            tn_json_kind kind) TN_MUST_USE;
tn_status tn_tokenizer_bool(const tn_tokenizer *t, const char *key, const tn_json *object,
                            const char *name, bool *out) TN_MUST_USE;
/* A JSON value as an id; WHAT names it in the message. */
tn_status tn_tokenizer_id(const tn_tokenizer *t, const char *what, const tn_json *j,
                          int32_t *out) TN_MUST_USE;

/* The bytes that a token's characters stand for; false: raw, as they are. `out` is cleared. */
bool tn_tokenizer_bytes(const char *token, tn_text *out);

tn_status tn_tokenizer_read_model(tn_tokenizer *t, const tn_json *model) TN_MUST_USE;
tn_status tn_tokenizer_read_added(tn_tokenizer *t, const tn_json *list) TN_MUST_USE;
tn_status tn_tokenizer_read_steps(tn_tokenizer *t, const tn_json *top) TN_MUST_USE;
tn_status tn_tokenizer_read_template(tn_tokenizer *t, const tn_json *post) TN_MUST_USE;

/* Room for n tokens. */
tn_status tn_tokenizer_make_lookup(tn_tokenizer *t, int64_t n) TN_MUST_USE;
tn_status tn_tokenizer_add(tn_tokenizer *t, int32_t id, const char *bytes, int64_t n,
                           bool raw) TN_MUST_USE;
int32_t tn_tokenizer_lookup(const tn_tokenizer *t, const char *bytes, int64_t n, bool raw);

static inline const tn_merge *tn_tokenizer_merge(const tn_tokenizer *t, int32_t left, int32_t right)
{
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    uint64_t at = (key * 0x9e3779b97f4a7c15u) >> 32 & t->merges_mask;
    for (;; at = (at + 1) & t->merges_mask) {
        if (t->merges[at].key == key) return &t->merges[at];
        if (t->merges[at].key == UINT64_MAX) return NULL;
    }
}

TN_C_END
#endif
