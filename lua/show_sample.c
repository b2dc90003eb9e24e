#include "lua/show_sample.h"

#include "engine/base/jsonout.h"
#include "engine/codec.h"
#include "lua/recipe_data.h"
#include "lua/session.h"

#include <string.h>

typedef struct shown {
    const tn_show_sample_options *o;
    tn_session s;
    tn_arena arena;
    tn_codec *codec; /* NULL: not known, ids are shown */
    int64_t seq, samples;
    int32_t *ids, *labels, *positions, *documents; /* [seq] */
} shown;

static const char *const split_names[] = {"training", "validation"};

/* ------------------------------------------------------------ opening */

/* Ids of no known tokenizer are shown as they are. */
static tn_status open_codec(shown *q)
{
    char name[4096];
    TN_TRY(tn_recipe_data_tokenizer(q->s.recipe, name, sizeof name));
    return name[0] ? tn_codec_open("data", name, "", &q->codec) : TN_OK;
}

static tn_status read_row(shown *q)
{
    void *mem;
    const tn_data *d =
        q->s.validation && q->o->split == TN_DATA_VALIDATION ? q->s.validation : q->s.data;
    int64_t i = q->o->sample, b = q->s.global_batch;
    q->samples = tn_data_about(d)->samples[q->o->split];
    bool ends = q->o->split == TN_DATA_VALIDATION;
    if ((ends && i >= q->samples) || i / b >= tn_data_steps(d, q->o->split))
        TN_FAIL(TN_BAD_INPUT, "command line: --sample %lld: the %s split has %lld; use 0 to %lld",
                (long long)i, split_names[q->o->split], (long long)q->samples,
                (long long)q->samples - 1);
    TN_TRY(tn_arena_alloc(&q->arena, (size_t)q->seq * 4 * sizeof(int32_t), &mem));
    q->ids = mem;
    q->labels = q->ids + q->seq;
    q->positions = q->labels + q->seq;
    q->documents = q->positions + q->seq;
    tn_data_batch batch = {q->ids, q->labels, q->positions, q->documents};
    return tn_data_rows(d, q->o->split, i / b, i % b, 1, &batch);
}

/* ------------------------------------------------------------ printing */

/* Lines of a text behind a bar; what a terminal would obey is written as an escape. */
static void add_text(tn_text *out, const char *text, int64_t n)
{
    tn_text_add(out, "    | ");
    for (int64_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '\n') tn_text_add(out, i + 1 < n ? "\\n\n    | " : "\\n");
        else if (c < 0x20 || c == 0x7f) tn_text_add(out, "\\x%02x", c);
        else tn_text_put(out, text + i, 1);
    }
    tn_text_add(out, "\n");
}

static tn_status add_piece(const shown *q, int64_t begin, int64_t end, tn_text *out)
{
    tn_text text = {0};
    tn_status st = TN_OK;
    if (q->codec) {
        st = tn_codec_decode(q->codec, q->ids + begin, end - begin, &text);
        if (!st) add_text(out, tn_text_str(&text), text.n_bytes);
    } else {
        tn_text_add(out, "    | ids");
        for (int64_t i = begin; i < end; i++) tn_text_add(out, " %d", q->ids[i]);
        tn_text_add(out, "\n");
    }
    tn_text_fini(&text);
    return st;
}

/* "without target: 3, 17-19" */
static void add_masked(const shown *q, int64_t begin, int64_t end, tn_text *out)
{
    int64_t n = 0;
    for (int64_t i = begin; i < end; i++) {
        if (q->labels[i] != TN_DATA_NO_TARGET) continue;
        int64_t last = i;
        while (last + 1 < end && q->labels[last + 1] == TN_DATA_NO_TARGET) last++;
        tn_text_add(out, n++ ? ", " : "; without target: ");
        if (last > i) tn_text_add(out, "%lld-%lld", (long long)i, (long long)last);
        else tn_text_add(out, "%lld", (long long)i);
        i = last;
    }
}

static tn_status print(const shown *q, tn_text *out)
{
    int64_t targets = 0;
    for (int64_t i = 0; i < q->seq; i++) targets += q->labels[i] != TN_DATA_NO_TARGET;
    tn_text_add(out, "sample %lld (%s", (long long)q->o->sample, split_names[q->o->split]);
    if (q->o->split == TN_DATA_TRAIN && q->samples > 0)
        tn_text_add(out, ", epoch %lld of %lld samples", (long long)(q->o->sample / q->samples),
                    (long long)q->samples);
    else if (q->samples > 0) tn_text_add(out, ", one of %lld", (long long)q->samples);
    tn_text_add(out, "): row %lld of step %lld; %lld tokens, %lld targets, %d document%s\n",
                (long long)(q->o->sample % q->s.global_batch),
                (long long)(q->o->sample / q->s.global_batch) + 1, (long long)q->seq,
                (long long)targets, q->documents[q->seq - 1] + 1,
                q->documents[q->seq - 1] ? "s" : "");
    for (int64_t begin = 0, end; begin < q->seq; begin = end) {
        for (end = begin + 1; end < q->seq && q->documents[end] == q->documents[begin]; end++) {
        }
        tn_text_add(out, "  document %d: tokens %lld to %lld, positions %d to %d",
                    q->documents[begin], (long long)begin, (long long)end - 1, q->positions[begin],
                    q->positions[end - 1]);
        add_masked(q, begin, end, out);
        tn_text_add(out, "\n");
        TN_TRY(add_piece(q, begin, end, out));
    }
    int32_t last = q->labels[q->seq - 1];
    if (last == TN_DATA_NO_TARGET) return tn_text_end(out);
    tn_text_add(out, "  target of the last token:\n");
    q->ids[0] = last;
    return add_piece(q, 0, 1, out);
}

static void add_list(tn_jsonout *w, const char *key, const int32_t *x, int64_t n)
{
    tn_jsonout_open(w, key, '[');
    for (int64_t i = 0; i < n; i++) tn_jsonout_int(w, NULL, x[i]);
    tn_jsonout_close(w);
}

static tn_status print_json(const shown *q, tn_text *out)
{
    tn_jsonout w = {.text = out};
    tn_text text = {0};
    tn_status st = q->codec ? tn_codec_decode(q->codec, q->ids, q->seq, &text) : TN_OK;
    tn_jsonout_open(&w, NULL, '{');
    tn_jsonout_int(&w, "sample", q->o->sample);
    tn_jsonout_string(&w, "split", split_names[q->o->split]);
    tn_jsonout_int(&w, "samples", q->samples);
    tn_jsonout_string(&w, "text", q->codec ? tn_text_str(&text) : NULL);
    add_list(&w, "ids", q->ids, q->seq);
    add_list(&w, "labels", q->labels, q->seq);
    add_list(&w, "positions", q->positions, q->seq);
    add_list(&w, "documents", q->documents, q->seq);
    tn_jsonout_close(&w);
    tn_text_add(out, "\n");
    tn_text_fini(&text);
    return st ? st : tn_text_end(out);
}

static tn_status show(shown *q, tn_recipe *recipe, tn_text *out)
{
    int64_t world = q->o->world ? q->o->world : tn_recipe_int(recipe, "job.world");
    TN_TRY(tn_session_plan(recipe, true, world, &q->s));
    q->s.progress = q->o->progress;
    q->seq = q->s.shape.seq;
    TN_TRY(tn_session_data(&q->s));
    TN_TRY(open_codec(q));
    TN_TRY(read_row(q));
    return q->o->json ? print_json(q, out) : print(q, out);
}

tn_status tn_show_sample(tn_recipe *recipe, const tn_show_sample_options *o, tn_text *out)
{
    shown q = {.o = o};
    tn_status st = show(&q, recipe, out);
    tn_codec_close(q.codec);
    tn_session_close(&q.s);
    tn_arena_fini(&q.arena);
    return st;
}
