/* cmd_generate.c - `titan generate FOLDER --prompt TEXT`: continues prompts with the model of a
 * Hugging Face folder.
 *
 * The folder's tokenizer.json reads and writes the text; without one the ids are bytes. A row ends
 * at an end-of-text id, or when --max-tokens are added. */
#include "engine/base/file.h"
#include "engine/base/json.h"
#include "engine/base/jsonout.h"
#include "engine/encoder.h"
#include "engine/sample.h"
#include "lua/commands.h"
#include "lua/decoder.h"
#include "lua/model.h"

#include <stdio.h>
#include <string.h>

enum {
    MOST_BYTES = 512, /* of a vocabulary of bytes and a few marks */
    MAX_ENDS = 16,
    MAX_PROMPT_BYTES = 64 << 20
};

typedef struct sequence {
    int32_t *ids;
    int64_t n, n_prompt;
    bool done;
} sequence;

typedef struct generation {
    const tn_args *a;
    tn_recipe *recipe;
    tn_decoder *decoder;
    tn_tokenizer *tokenizer; /* NULL: bytes */
    tn_encoder *encoder;
    tn_arena arena;
    sequence *rows;
    int64_t n_rows, vocab, longest; /* tokens of the longest prompt */
    int64_t ends[MAX_ENDS];
    int n_ends;
} generation;

/* ------------------------------------------------------------ the folder */

static tn_status open_recipe(generation *q)
{
    tn_text text = {0};
    tn_text_add(&text,
                "return require('titan').recipe { model = { hf = [[%s]] }, device = 'cpu' }\n",
                q->a->paths[0]);
    tn_status st = tn_text_end(&text);
    if (!st) {
        tn_recipe_options o = {.text = tn_text_str(&text),
                               .name = q->a->paths[0],
                               .overrides = q->a->overrides,
                               .n_overrides = q->a->n_overrides,
                               .host = q->a->host};
        st = tn_recipe_open(&o, &q->recipe);
    }
    tn_text_fini(&text);
    return st;
}

static void add_end(generation *q, const tn_json *v)
{
    double x;
    if (q->n_ends < MAX_ENDS && tn_json_number(v, &x)) q->ends[q->n_ends++] = (int64_t)x;
    for (int64_t i = 0; q->n_ends < MAX_ENDS && tn_json_number(tn_json_at(v, i), &x); i++)
        q->ends[q->n_ends++] = (int64_t)x;
}

/* eos_token_id, a number or a list, of generation_config.json and config.json. */
static tn_status read_ends(generation *q)
{
    static const char *const files[] = {"generation_config.json", "config.json"};
    for (int i = 0; i < TN_COUNT(files); i++) {
        char path[4096];
        const tn_json *config;
        snprintf(path, sizeof path, "%s/%s", q->a->paths[0], files[i]);
        if (!tn_file_exists(path)) continue;
        TN_TRY(tn_json_read(path, &config));
        add_end(q, tn_json_find(config, "eos_token_id"));
        tn_json_free(config);
    }
    return TN_OK;
}

/* ------------------------------------------------------------ text and ids */

static tn_status open_tokenizer(generation *q)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/tokenizer.json", q->a->paths[0]);
    if (!tn_file_exists(path)) return TN_OK;
    TN_TRY(tn_tokenizer_open(path, &q->tokenizer));
    return tn_encoder_create(q->tokenizer, &q->encoder);
}

static tn_status keep_ids(generation *q, const int32_t *ids, int64_t n, sequence *s)
{
    void *mem;
    TN_TRY(tn_arena_alloc(&q->arena, (size_t)(n + q->a->max_tokens) * sizeof(int32_t), &mem));
    *s = (sequence){.ids = mem, .n = n, .n_prompt = n};
    memcpy(s->ids, ids, (size_t)n * sizeof *ids);
    return TN_OK;
}

static tn_status encode(generation *q, const char *text, int64_t n, sequence *s)
{
    void *mem;
    if (q->tokenizer) {
        tn_ids ids = {0};
        tn_status st = tn_encoder_encode(q->encoder, text, n, TN_ENCODE_TEMPLATE, &ids);
        if (!st && !ids.n)
            st = tn_error(TN_BAD_INPUT, "command line: --prompt: it has no token; give a text to "
                                        "continue");
        if (!st) st = keep_ids(q, ids.items, ids.n, s);
        tn_ids_fini(&ids);
        return st;
    }
    if (n < 1)
        TN_FAIL(TN_BAD_INPUT, "command line: --prompt: it is empty; give a text to continue");
    TN_TRY(tn_arena_alloc(&q->arena, (size_t)(n + q->a->max_tokens) * sizeof(int32_t), &mem));
    *s = (sequence){.ids = mem, .n = n, .n_prompt = n};
    for (int64_t i = 0; i < n; i++) s->ids[i] = (unsigned char)text[i];
    return TN_OK;
}

static tn_status decode(const generation *q, const int32_t *ids, int64_t n, tn_text *out)
{
    if (q->tokenizer) return tn_tokenizer_decode(q->tokenizer, ids, n, true, out);
    for (int64_t i = 0; i < n; i++) {
        char byte = (char)ids[i];
        if (ids[i] < 256) tn_text_put(out, &byte, 1);
    }
    return tn_text_end(out);
}

static tn_status read_prompts(generation *q)
{
    void *mem;
    if (!q->a->n_prompts)
        TN_FAIL(TN_BAD_INPUT,
                "command line: generate: no --prompt; write --prompt TEXT, or --prompt - "
                "for standard input");
    TN_TRY(tn_arena_alloc(&q->arena, (size_t)q->a->n_prompts * sizeof(sequence), &mem));
    q->rows = mem;
    for (int i = 0; i < q->a->n_prompts; i++) {
        const char *text = q->a->prompts[i];
        char *file = NULL;
        int64_t n = (int64_t)strlen(text);
        if (!strcmp(text, "-"))
            TN_TRY(tn_file_read_input(MAX_PROMPT_BYTES, "give a shorter prompt", &file, &n));
        tn_status st = encode(q, file ? file : text, n, &q->rows[q->n_rows]);
        tn_free(file);
        if (st) return st;
        if (q->rows[q->n_rows].n > q->longest) q->longest = q->rows[q->n_rows].n;
        q->n_rows++;
    }
    return TN_OK;
}

/* ------------------------------------------------------------ drawing */

static bool is_end(const generation *q, int64_t id)
{
    for (int i = 0; i < q->n_ends; i++)
        if (q->ends[i] == id) return true;
    return false;
}

/* One more token for every row that is not done. */
static tn_status step(generation *q, int32_t *ids, int32_t *positions, int32_t *order)
{
    const float *logits;
    tn_sample_options o = {q->a->temperature, q->a->top_k, q->a->top_p};
    for (int64_t r = 0; r < q->n_rows; r++) {
        const sequence *s = &q->rows[r];
        ids[r] = s->ids[s->n - 1];
        positions[r] = (int32_t)(s->n - 1);
    }
    TN_TRY(tn_decoder_step(q->decoder, ids, positions, &logits));
    for (int64_t r = 0; r < q->n_rows; r++) {
        sequence *s = &q->rows[r];
        if (s->done) continue;
        tn_rng rng = tn_rng_make((uint64_t)q->a->seed, "generate", (uint64_t)r);
        int64_t id =
            tn_sample_draw(logits + r * q->vocab, q->vocab, &o, rng, (uint64_t)s->n, order);
        s->done = is_end(q, id);
        if (!s->done) s->ids[s->n++] = (int32_t)id;
        s->done |= s->n == s->n_prompt + q->a->max_tokens;
    }
    return TN_OK;
}

static tn_status print_text(const char *bytes, int64_t n)
{
    tn_text text = {0};
    tn_text_put_utf8(&text, bytes, (size_t)n);
    tn_status st = tn_text_end(&text);
    if (!st) fwrite(tn_text_str(&text), 1, (size_t)text.n_bytes, stdout);
    tn_text_fini(&text);
    return st;
}

/* A single prompt is shown while it grows, as far as its text is certain. */
static tn_status show_more(const generation *q, tn_text *text, int64_t *shown)
{
    const sequence *s = &q->rows[0];
    tn_text_cut(text, 0);
    TN_TRY(decode(q, s->ids, s->n, text));
    int64_t end = text->n_bytes;
    const char *t = tn_text_str(text);
    for (int k = 0; k < 3 && !s->done && end > *shown && (t[end - 1] & 0x80); k++) {
        end--; /* perhaps a character that is not complete */
        if ((t[end] & 0xc0) == 0xc0) break;
    }
    if (end <= *shown) return TN_OK;
    TN_TRY(print_text(t + *shown, end - *shown));
    fflush(stdout);
    *shown = end;
    return TN_OK;
}

static bool all_done(const generation *q)
{
    for (int64_t r = 0; r < q->n_rows; r++)
        if (!q->rows[r].done) return false;
    return true;
}

static tn_status run(generation *q, tn_text *text)
{
    void *mem;
    int64_t shown = 0;
    bool stream = q->n_rows == 1 && !q->a->json;
    TN_TRY(tn_arena_alloc(&q->arena, (size_t)(2 * q->n_rows + q->vocab) * sizeof(int32_t), &mem));
    int32_t *ids = mem, *positions = ids + q->n_rows, *order = positions + q->n_rows;
    TN_TRY(
        tn_arena_alloc(&q->arena, (size_t)q->n_rows * (sizeof(int64_t) + sizeof(int32_t *)), &mem));
    const int32_t **rows = mem;
    int64_t *n = (int64_t *)(rows + q->n_rows);
    for (int64_t r = 0; r < q->n_rows; r++) {
        rows[r] = q->rows[r].ids;
        n[r] = q->rows[r].n;
    }
    TN_TRY(tn_decoder_prefill(q->decoder, rows, n));
    while (!all_done(q)) {
        if (stream) TN_TRY(show_more(q, text, &shown));
        TN_TRY(step(q, ids, positions, order));
    }
    if (!stream) return TN_OK;
    TN_TRY(show_more(q, text, &shown));
    putchar('\n');
    return TN_OK;
}

/* ------------------------------------------------------------ all */

static tn_status print_json(const generation *q)
{
    for (int64_t r = 0; r < q->n_rows; r++) {
        const sequence *s = &q->rows[r];
        tn_text text = {0}, line = {0};
        tn_jsonout w = {.text = &line};
        tn_status st = decode(q, s->ids + s->n_prompt, s->n - s->n_prompt, &text);
        tn_jsonout_open(&w, NULL, '{');
        tn_jsonout_string(&w, "text", tn_text_str(&text));
        tn_jsonout_open(&w, "ids", '[');
        for (int64_t i = s->n_prompt; i < s->n; i++) tn_jsonout_int(&w, NULL, s->ids[i]);
        tn_jsonout_close(&w);
        tn_jsonout_int(&w, "prompt_tokens", s->n_prompt);
        tn_jsonout_close(&w);
        if (!st) st = tn_text_end(&line);
        if (!st) printf("%s\n", tn_text_str(&line));
        tn_text_fini(&text);
        tn_text_fini(&line);
        if (st) return st;
    }
    return TN_OK;
}

static tn_status print_texts(const generation *q)
{
    for (int64_t r = 0; r < q->n_rows; r++) {
        tn_text text = {0};
        tn_status st = decode(q, q->rows[r].ids, q->rows[r].n, &text);
        printf("--- %lld\n", (long long)r + 1);
        if (!st) st = print_text(tn_text_str(&text), text.n_bytes);
        putchar('\n');
        tn_text_fini(&text);
        if (st) return st;
    }
    return TN_OK;
}

static tn_status check_length(const generation *q)
{
    int64_t most;
    TN_TRY(tn_model_int(q->recipe, "max_seq_len", &most));
    if (!most || q->longest + q->a->max_tokens <= most) return TN_OK;
    TN_FAIL(TN_BAD_INPUT,
            "command line: --max-tokens %lld: with a prompt of %lld tokens that is more than the "
            "model's max_seq_len %lld; %lld",
            (long long)q->a->max_tokens, (long long)q->longest, (long long)most,
            (long long)(most > q->longest ? most - q->longest : 0));
}

static tn_status generate(generation *q)
{
    int64_t vocab = 0;
    TN_TRY(open_recipe(q));
    TN_TRY(read_ends(q));
    TN_TRY(open_tokenizer(q));
    TN_TRY(read_prompts(q));
    TN_TRY(check_length(q));
    TN_TRY(tn_model_int(q->recipe, "vocab_size", &vocab));
    if (!q->tokenizer && vocab > MOST_BYTES)
        TN_FAIL(TN_BAD_INPUT,
                "%s/tokenizer.json: it is not there, and %lld ids are no bytes; put the model's "
                "tokenizer into the folder",
                q->a->paths[0], (long long)vocab);
    TN_TRY(tn_decoder_open(q->recipe, q->n_rows, q->longest + q->a->max_tokens, q->a->paths[0],
                           &q->decoder));
    q->vocab = tn_decoder_vocab(q->decoder);
    for (int64_t r = 0; r < q->n_rows; r++)
        for (int64_t i = 0; i < q->rows[r].n; i++)
            if (q->rows[r].ids[i] >= q->vocab)
                TN_FAIL(TN_BAD_INPUT,
                        "%s: the prompt has token %d, the model's vocabulary ends at %lld; its "
                        "tokenizer.json belongs into the folder",
                        q->a->paths[0], q->rows[r].ids[i], (long long)q->vocab);
    tn_text text = {0};
    tn_status st = run(q, &text);
    tn_text_fini(&text);
    if (st) return st;
    if (q->a->json) return print_json(q);
    return q->n_rows > 1 ? print_texts(q) : TN_OK;
}

tn_status tn_command_generate(const tn_args *a)
{
    generation q = {.a = a};
    tn_status st = generate(&q);
    tn_decoder_close(q.decoder);
    tn_encoder_destroy(q.encoder);
    tn_tokenizer_close(q.tokenizer);
    tn_recipe_close(q.recipe);
    tn_arena_fini(&q.arena);
    return st;
}
