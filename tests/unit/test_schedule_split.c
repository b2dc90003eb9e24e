/* Modules cut into stages: nothing is lost, TorchTitan's shares, and what cannot be is refused with
 * the nearest that can. */
#include "graph/schedule.h"
#include "tests/test.h"

enum { MAX_LAYERS = 40 };

static uint64_t state = 3;

static int64_t draw(int64_t least, int64_t most)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return least + (int64_t)((state >> 33) % (uint64_t)(most - least + 1));
}

/* tok_embeddings, layers.0 ..., norm, output. */
typedef struct model {
    char names[MAX_LAYERS][24];
    tn_schedule_module modules[MAX_LAYERS + 3];
} model;

static tn_schedule_split_options model_of(model *x, int32_t n_layers, const char *schedule,
                                          int32_t n_ranks)
{
    tn_schedule_split_options o = {.n_modules = n_layers + 3,
                                   .modules = x->modules,
                                   .n_ranks = n_ranks,
                                   .first_less = 1,
                                   .last_less = 1};
    x->modules[0] = (tn_schedule_module){"tok_embeddings", false};
    for (int32_t i = 0; i < n_layers; i++) {
        snprintf(x->names[i], sizeof x->names[i], "layers.%d", i);
        x->modules[i + 1] = (tn_schedule_module){x->names[i], true};
    }
    x->modules[n_layers + 1] = (tn_schedule_module){"norm", false};
    x->modules[n_layers + 2] = (tn_schedule_module){"output", false};
    TN_CHECK_OK(tn_schedule_type_of(schedule, &o.type));
    return o;
}

/* Layers per stage as text: "1 2 2 1". */
static void layers_are(const tn_schedule_split_options *o, const char *want)
{
    tn_schedule_stages s = {0};
    tn_text t = {0};
    if (!TN_CHECK_OK(tn_schedule_split(o, &s))) return;
    for (int32_t i = 0; i < s.n_stages; i++) tn_text_add(&t, "%s%d", i ? " " : "", s.n_layers[i]);
    TN_CHECK_TEXT(tn_text_str(&t), want);
    tn_text_fini(&t);
    tn_schedule_stages_fini(&s);
}

/* TorchTitan's rule, written as it is told in its documents. */
static int32_t expected(const tn_schedule_split_options *o, int32_t n_layers, int32_t stages,
                        int32_t stage)
{
    int32_t effective = n_layers + o->first_less + o->last_less, base = effective / stages,
            extra = effective % stages;
    int32_t layers = base + (stage < extra ? 1 : 0);
    if (stage == 0) layers -= o->first_less;
    if (stage == stages - 1) layers -= o->last_less;
    return layers;
}

/* Every module once, in order, none empty; the embedding first, norm and output last. */
static void check_stages(const tn_schedule_split_options *o, const tn_schedule_stages *s,
                         int32_t n_layers)
{
    int32_t layers = 0;
    TN_CHECK(s->n_stages == s->per_rank * o->n_ranks && s->first_module[0] == 0);
    TN_CHECK(s->first_module[s->n_stages] == o->n_modules &&
             s->first_module[s->n_stages - 1] <= o->n_modules - 2);
    for (int32_t i = 0; i < s->n_stages; i++) {
        int32_t n = 0;
        TN_CHECK(s->first_module[i] < s->first_module[i + 1]);
        for (int32_t j = s->first_module[i]; j < s->first_module[i + 1]; j++)
            n += o->modules[j].layer;
        TN_CHECK(n == s->n_layers[i] && n == expected(o, n_layers, s->n_stages, i));
        layers += n;
    }
    TN_CHECK(layers == n_layers);
}

static const char *const names[] = {"1F1B",         "GPipe", "Interleaved1F1B",
                                    "LoopedBFS",    "ZBH1",  "InterleavedZeroBubble",
                                    "ZBVZeroBubble"};

/* The error's first number behind `key`, or -1. */
static int64_t value_in_error(const char *key)
{
    const char *at = strstr(tn_error_text(), "; nearest: ");
    at = at ? strstr(at, key) : NULL;
    long long v = -1;
    if (at && sscanf(at + strlen(key), " = %lld", &v) == 1) return v;
    return -1;
}

/* What the error offers does work. */
static void try_offers(const tn_schedule_split_options *o)
{
    static const char *const keys[] = {"parallel_layers_per_stage", "parallel_degree",
                                       "first_stage_less_layers", "last_stage_less_layers"};
    int64_t values[4];
    int offered = 0;
    bool without =
        strstr(tn_error_text(), "no parallelism.pipeline_parallel_layers_per_stage") != NULL;
    bool both =
        strstr(tn_error_text(), "no parallelism.pipeline_parallel_layers_per_stage and ") != NULL;
    bool none = strstr(tn_error_text(),
                       "; nearest: parallelism.pipeline_parallel_degree = 1: no pipeline") != NULL;
    for (int i = 0; i < 4; i++) values[i] = value_in_error(keys[i]);
    tn_error_clear();
    if (none) {
        TN_CHECK(o->n_modules == 4 ||
                 (o->n_modules < 7 && o->first_less + o->last_less > 2)); /* hardly a model */
        return;
    }
    if (without && !both) {
        tn_schedule_split_options p = *o;
        tn_schedule_stages s = {0};
        p.layers_per_stage = 0;
        TN_CHECK_OK(tn_schedule_split(&p, &s));
        tn_schedule_stages_fini(&s);
        offered++;
    }
    for (int i = 0; i < 4; i++) {
        tn_schedule_split_options p = *o;
        tn_schedule_stages s = {0};
        if (values[i] < 0) continue;
        if (both) p.layers_per_stage = 0;
        int32_t *const keys_of[] = {&p.layers_per_stage, &p.n_ranks, &p.first_less, &p.last_less};
        *keys_of[i] = (int32_t)values[i];
        TN_CHECK_OK(tn_schedule_split(&p, &s));
        tn_schedule_stages_fini(&s);
        offered++;
    }
    TN_CHECK_MSG(offered > 0, "%s, %d modules on %d ranks: nothing offered", o->type->name,
                 o->n_modules, o->n_ranks);
}

static void test_random(void)
{
    model x;
    int n_good = 0, n_bad = 0;
    for (int i = 0; i < 4000; i++) {
        int32_t n_layers = (int32_t)draw(1, MAX_LAYERS);
        tn_schedule_split_options o =
            model_of(&x, n_layers, names[draw(0, 6)], (int32_t)draw(1, 8));
        tn_schedule_stages s = {0};
        o.first_less = (int32_t)draw(0, 3);
        o.last_less = (int32_t)draw(0, 3);
        o.layers_per_stage = draw(0, 1) ? 0 : (int32_t)draw(1, 8);
        tn_status st = tn_schedule_split(&o, &s);
        if (st == TN_OK) {
            check_stages(&o, &s, n_layers);
            TN_CHECK(s.per_rank >= o.type->min_stages &&
                     (!o.type->max_stages || s.per_rank <= o.type->max_stages));
            n_good++;
        } else {
            TN_CHECK(st == TN_BAD_INPUT && strncmp(tn_error_text(), "parallelism.", 12) == 0);
            try_offers(&o);
            n_bad++;
        }
        tn_schedule_stages_fini(&s);
    }
    TN_CHECK_MSG(n_good > 800 && n_bad > 800, "%d good, %d bad", n_good, n_bad);
}

static void test_shares(void)
{
    model x;
    tn_schedule_split_options o = model_of(&x, 6, "1F1B", 4);
    layers_are(&o, "1 2 2 1");
    o = model_of(&x, 5, "1F1B", 2);
    layers_are(&o, "3 2");
    o = model_of(&x, 5, "Interleaved1F1B",
                 2); /* 7 on 4 stages: 2 2 2 1, the last holds norm and output alone */
    layers_are(&o, "1 2 2 0");
    o = model_of(&x, 4, "1F1B", 6);
    layers_are(&o, "0 1 1 1 1 0");
    o.first_less = 0;
    o.n_ranks = 5;
    layers_are(&o, "1 1 1 1 0");
    o = model_of(&x, 7, "Interleaved1F1B", 1);
    o.layers_per_stage = 3; /* 9 by threes */
    layers_are(&o, "2 3 2");
    o = model_of(&x, 3, "1F1B", 1);
    o.first_less = 9; /* one stage holds all, whatever it counts as */
    layers_are(&o, "3");
    o = model_of(&x, 6, "1F1B", 2); /* a table that says 4 stages */
    o.type = NULL;
    o.n_stages = 4;
    layers_are(&o, "1 2 2 1");
    /* A module between layers rides with the one before it. */
    static const tn_schedule_module odd[] = {{"in", false},     {"a.0", true}, {"a.1", true},
                                             {"bridge", false}, {"b.0", true}, {"b.1", true},
                                             {"out", false}};
    tn_schedule_stages s = {0};
    o = (tn_schedule_split_options){
        .n_modules = 7, .modules = odd, .n_ranks = 2, .type = tn_schedule_type_at(0)};
    if (TN_CHECK_OK(tn_schedule_split(&o, &s)))
        TN_CHECK(s.first_module[1] == 4 && s.n_layers[0] == 2 && s.n_layers[1] == 2);
    tn_schedule_stages_fini(&s);
}

static void test_refused(void)
{
    static const struct {
        const char *schedule;
        int32_t n_layers, n_ranks, per_stage, first, last;
        const char *part;
    } rows[] = {
        {"1F1B", 5, 3, 2, 1, 1,
         "parallelism.pipeline_parallel_degree: 3 ranks cannot share 4 stages (by "
         "layers_per_stage) evenly; nearest: "
         "parallelism.pipeline_parallel_layers_per_stage = 3, or "
         "parallelism.pipeline_parallel_degree = 4"},
        {"1F1B", 6, 2, 2, 1, 1,
         "parallelism.pipeline_parallel_schedule: 1F1B needs exactly 1 stage per rank, 4 stages "
         "(by "
         "layers_per_stage) on 2 ranks "
         "make 2; nearest: parallelism.pipeline_parallel_layers_per_stage = 4, or "
         "parallelism.pipeline_parallel_degree = 4"},
        {"Interleaved1F1B", 6, 4, 2, 1, 1,
         "Interleaved1F1B needs at least 2 stages per rank, 4 stages (by layers_per_stage) on 4 "
         "ranks make 1; "
         "nearest: "
         "parallelism.pipeline_parallel_layers_per_stage = 1, or "
         "parallelism.pipeline_parallel_degree = 2"},
        {"ZBVZeroBubble", 10, 2, 2, 1, 1,
         "ZBVZeroBubble needs exactly 2 stages per rank, 6 stages"},
        {"1F1B", 5, 8, 0, 1, 1,
         "parallelism.pipeline_parallel_degree: 8 stages (by the schedule) for 7 layers, of which "
         "those before "
         "count as 1 and those "
         "behind as 1: some would hold nothing; nearest: parallelism.pipeline_parallel_degree = 7"},
        {"Interleaved1F1B", 5, 4, 0, 1, 1, "8 stages (by the schedule) for 7 layers"},
        {"1F1B", 5, 6, 0, 0, 0,
         "; nearest: parallelism.pipeline_parallel_degree = 5, or "
         "parallelism.pipeline_parallel_first_stage_less_layers = 1"},
        {"1F1B", 8, 4, 0, 4, 1,
         "parallelism.pipeline_parallel_first_stage_less_layers: 4, but the first of 4 stages has "
         "a share of 4"},
        {"1F1B", 8, 5, 0, 4, 1,
         "parallelism.pipeline_parallel_first_stage_less_layers: 4, but the first of 5 stages has "
         "a share of 3"},
        {"1F1B", 8, 5, 0, 1, 4,
         "parallelism.pipeline_parallel_last_stage_less_layers: 4, but the last of 5 stages has a "
         "share of 2"},
        {"1F1B", 8, 0, 0, 1, 1, "parallelism.pipeline_parallel_degree = 0"},
        {"1F1B", 8, 2, -1, 1, 1, "layers_per_stage = -1"},
        {"1F1B", 8, 2, 0, 65537, 1, "first_stage_less_layers = 65537"},
        {"1F1B", 0, 2, 0, 1, 1, "the model has no layers to cut into stages; nearest: 1"},
    };
    model x;
    tn_schedule_stages s = {0};
    for (int i = 0; i < TN_COUNT(rows); i++) {
        tn_schedule_split_options o =
            model_of(&x, rows[i].n_layers, rows[i].schedule, rows[i].n_ranks);
        o.layers_per_stage = rows[i].per_stage;
        o.first_less = rows[i].first;
        o.last_less = rows[i].last;
        if (i == 7) continue; /* 4 of 4 is legal: see below */
        TN_CHECK_FAILS(tn_schedule_split(&o, &s), TN_BAD_INPUT, rows[i].part);
    }
    TN_CHECK(!s.first_module && !s.n_layers);
    /* A stage of a share of 0 layers needs a module that is none. */
    tn_schedule_split_options o = model_of(&x, 8, "1F1B", 4);
    o.first_less = 4;
    o.n_modules = 10;
    layers_are(&o, "0 3 3 2");
    o.modules++;
    o.n_modules--;
    TN_CHECK_FAILS(tn_schedule_split(&o, &s), TN_BAD_INPUT,
                   "the first of 4 stages has a share of 4 and nothing but layers");
    /* Both ends at once, and then the keys that mend it. */
    o = model_of(&x, 2, "1F1B", 4);
    o.first_less = o.last_less = 5;
    TN_CHECK(tn_schedule_split(&o, &s) == TN_BAD_INPUT);
    TN_CHECK(
        strstr(
            tn_error_text(),
            "first_stage_less_layers: 5, but the first of 4 stages has a share of 3; nearest: ") &&
        strstr(tn_error_text(), "\nparallelism.pipeline_parallel_last_stage_less_layers: 5, but"));
    tn_error_clear();
}

/* ------------------------------------------------------------ explicit names */

static tn_status named(tn_schedule_split_options o, const char *text, tn_schedule_stages *out)
{
    static char buffer[512];
    static const char *words[32];
    static tn_schedule_names parts[16];
    int32_t n = 0;
    o.parts = parts;
    o.n_parts = 0;
    snprintf(buffer, sizeof buffer, "%s", text);
    for (char *part = buffer, *next = NULL; part; part = next) { /* "a b | c d" */
        next = strstr(part, "|");
        if (next) *next++ = 0;
        parts[o.n_parts] = (tn_schedule_names){0, words + n};
        for (char *save = NULL, *w = strtok_r(part, " ", &save); w;
             w = strtok_r(NULL, " ", &save), parts[o.n_parts].n++)
            words[n++] = w;
        o.n_parts++;
    }
    return tn_schedule_split(&o, out);
}

static void test_names(void)
{
    static const struct {
        const char *schedule;
        int32_t n_ranks, n_stages;
        const char *text, *part;
    } rows[] = {
        {"1F1B", 2, 0, "tok_embeddings layers.0 layers.1 | layer.2 norm output",
         "parallelism.module_fqns_per_model_part: stage 1: the model has no module 'layer.2'; did "
         "you mean "
         "'layers.2'?"},
        {"1F1B", 2, 0, "tok_embeddings layers.0 layers.1 | norm output",
         "parallelism.module_fqns_per_model_part: 'layers.2' is in no stage; nothing may be left "
         "out"},
        {"1F1B", 2, 0, "tok_embeddings layers.0 layers.1 | layers.1 layers.2 norm output",
         "'layers.1' is in stage 0 and in stage 1; once is enough"},
        {"1F1B", 2, 0, "tok_embeddings layers.0 layers.2 | layers.1 norm output",
         "'layers.2' is in stage 0, but 'layers.1', which runs before it, is in stage 1; stages "
         "follow the order "
         "of forward"},
        {"1F1B", 2, 0, "| tok_embeddings layers.0 layers.1 layers.2 norm output",
         "stage 0 holds nothing"},
        {"1F1B", 2, 0, "tok_embeddings | layers.0 layers.1 layers.2 | norm output",
         "3 stages for pipeline_parallel_degree = 2, which must divide them; nearest: 2 or 4 "
         "stages"},
        {"1F1B", 4, 0, "tok_embeddings layers.0 layers.1 | layers.2 norm output",
         "which must divide them; nearest: 4 stages"},
        {"Interleaved1F1B", 2, 0, "tok_embeddings layers.0 layers.1 | layers.2 norm output",
         "2 stages on 2 ranks are 1 per rank, Interleaved1F1B needs at least 2; nearest: 4 stages"},
        {"1F1B", 1, 0, "tok_embeddings layers.0 layers.1 | layers.2 norm output",
         "2 stages on 1 ranks are 2 per rank, 1F1B needs exactly 1; nearest: 1 stages"},
        {NULL, 2, 4, "tok_embeddings layers.0 layers.1 | layers.2 norm output",
         "2 stages, the table has 4; both must be the same"},
    };
    model x;
    tn_schedule_stages s = {0};
    for (int i = 0; i < TN_COUNT(rows); i++) {
        tn_schedule_split_options o =
            model_of(&x, 3, rows[i].schedule ? rows[i].schedule : "1F1B", rows[i].n_ranks);
        if (!rows[i].schedule) o.type = NULL;
        o.n_stages = rows[i].n_stages;
        TN_CHECK_FAILS(named(o, rows[i].text, &s), TN_BAD_INPUT, rows[i].part);
    }
    tn_schedule_split_options o = model_of(&x, 3, "1F1B", 2);
    if (TN_CHECK_OK(named(o, "layers.0 tok_embeddings|layers.2 layers.1 norm output", &s)))
        TN_CHECK(s.n_stages == 2 && s.per_rank == 1 && s.first_module[1] == 2 &&
                 s.n_layers[0] == 1 && s.n_layers[1] == 2);
    tn_schedule_stages_fini(&s);
    o = model_of(&x, 3, "Interleaved1F1B", 2);
    if (TN_CHECK_OK(named(o, "tok_embeddings|layers.0|layers.1 layers.2 norm|output", &s)))
        TN_CHECK(s.n_stages == 4 && s.per_rank == 2 && s.n_layers[0] == 0 && s.n_layers[3] == 0 &&
                 s.first_module[3] == 5);
    tn_schedule_stages_fini(&s);
    o = model_of(&x, 3, "1F1B", 2); /* all at once */
    TN_CHECK(named(o, "layers.0 layers.0 | layers.9", &s) == TN_BAD_INPUT);
    TN_CHECK(strstr(tn_error_text(), "once is enough\n") &&
             strstr(tn_error_text(), "no module 'layers.9'") &&
             strstr(tn_error_text(),
                    "\nparallelism.module_fqns_per_model_part: 'output' is in no stage"));
    tn_error_clear();
}

static tn_status split_once(void *user)
{
    tn_schedule_stages s = {0};
    TN_TRY(tn_schedule_split(user, &s));
    tn_schedule_stages_fini(&s);
    return TN_OK;
}

int main(void)
{
    model x;
    tn_schedule_split_options o = model_of(&x, 6, "1F1B", 2);
    test_random();
    test_shares();
    test_refused();
    test_names();
    TN_CHECK(tn_test_each_alloc(split_once, &o) >= 3);
    return tn_test_done("schedule_split");
}
