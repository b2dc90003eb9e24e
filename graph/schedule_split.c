/* schedule_split.c - modules cut into pipeline stages.
 *
 * By weight: first_less + layers + last_less units, stages as equal as can be, the first (units mod
 * stages) of them one unit larger (TorchTitan's rule). What the modules around the layers count as
 * is taken off the first and the last stage.
 *
 * Whether a choice is legal is one function of the numbers, so the nearest legal value of a key is
 * found by asking it. */
#include "graph/schedule.h"

#include "graph/schedule_faults.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define KEY "parallelism.pipeline_parallel_"

/* ------------------------------------------------------------ numbers */

typedef struct numbers {
    int64_t n_layers, n_ranks, n_stages, layers_per_stage, first_less,
        last_less; /* n_stages: of a table; 0: by rule */
    bool before,
        behind; /* whether there are modules around the layers: without, the stage needs a layer */
    const tn_schedule_type *type;
} numbers;

enum fault {              /* bits */
             UNEVEN = 1,  /* ranks do not divide stages */
             TOO_FEW = 2, /* stages per rank for the schedule */
             TOO_MANY = 4,
             EMPTY = 8,        /* more stages than units */
             FIRST_HEAVY = 16, /* first_less above the first stage's share */
             LAST_HEAVY = 32,
             FAULTS_END = 64,
};

enum { MAX_NUMBER = 1 << 16 }; /* of every key: nearest values are found by trying */

static int64_t units_of(const numbers *n)
{
    return n->first_less + n->n_layers + n->last_less;
}

static int64_t stages_of(const numbers *n)
{
    if (n->n_stages) return n->n_stages;
    if (n->layers_per_stage) return (units_of(n) + n->layers_per_stage - 1) / n->layers_per_stage;
    return n->n_ranks * (n->type ? n->type->default_stages : 1);
}

static int64_t share_of(const numbers *n, int64_t stage)
{
    int64_t units = units_of(n), stages = stages_of(n);
    return units / stages + (stage < units % stages);
}

static int64_t layers_of(const numbers *n, int64_t stage)
{
    int64_t last = stages_of(n) - 1, layers = share_of(n, stage);
    if (stage == 0) layers -= n->first_less;
    if (stage == last) layers -= n->last_less;
    return layers;
}

static int faults_of(const numbers *n)
{
    int64_t stages = stages_of(n), per_rank = stages / n->n_ranks;
    int f = stages % n->n_ranks ? UNEVEN : 0;
    if (n->type && !f && per_rank < n->type->min_stages) f |= TOO_FEW;
    if (n->type && !f && n->type->max_stages && per_rank > n->type->max_stages) f |= TOO_MANY;
    if (stages > units_of(n)) return f | EMPTY;
    if (stages > 1 && layers_of(n, 0) < !n->before) f |= FIRST_HEAVY;
    if (stages > 1 && layers_of(n, stages - 1) < !n->behind) f |= LAST_HEAVY;
    return f;
}

/* "8", "6 or 10": the nearest values of one field that make the rest legal; "" if there is none up
 * to `most`. */
static tn_text_short nearest(const numbers *n, size_t field, int64_t least, int64_t most)
{
    numbers try = *n;
    int64_t *value = (int64_t *)(void *)((char *)&try + field), now = *value, down = -1, up = -1;
    tn_text_short t = {0};
    for (int64_t v = now - 1; v >= least && down < 0; v--)
        if (*value = v, faults_of(&try) == 0) down = v;
    for (int64_t v = now + 1; v <= most && up < 0; v++)
        if (*value = v, v >= least && faults_of(&try) == 0) up = v;
    if (down >= 0 && up >= 0)
        snprintf(t.s, sizeof t.s, "%lld or %lld", (long long)down, (long long)up);
    else if (down >= 0 || up >= 0)
        snprintf(t.s, sizeof t.s, "%lld", (long long)(down >= 0 ? down : up));
    return t;
}

static void add_mend(tn_text *t, int *n, const char *key, tn_text_short values)
{
    if (values.s[0]) tn_text_add(t, "%s%s = %s", (*n)++ ? ", or " : "; nearest: ", key, values.s);
}

/* What could be changed: one key, or layers_per_stage left out, if need be with another degree. */
static void mends(const numbers *n, int f, tn_text *t)
{
    int64_t units = units_of(n);
    int said = 0;
    numbers free = *n;
    if (!n->n_stages)
        add_mend(t, &said, KEY "layers_per_stage",
                 nearest(n, offsetof(numbers, layers_per_stage), 1, units));
    add_mend(t, &said, KEY "degree", nearest(n, offsetof(numbers, n_ranks), 1, units));
    if (f & (EMPTY | FIRST_HEAVY | LAST_HEAVY)) {
        add_mend(t, &said, KEY "first_stage_less_layers",
                 nearest(n, offsetof(numbers, first_less), 0, units));
        add_mend(t, &said, KEY "last_stage_less_layers",
                 nearest(n, offsetof(numbers, last_less), 0, units));
    }
    free.layers_per_stage = 0;
    if (n->layers_per_stage && faults_of(&free) == 0)
        tn_text_add(t, "%sno " KEY "layers_per_stage", said++ ? ", or " : "; nearest: ");
    if (n->layers_per_stage && said == 0)
        add_mend(t, &said, "no " KEY "layers_per_stage and " KEY "degree",
                 nearest(&free, offsetof(numbers, n_ranks), 1, units));
    if (said == 0) tn_text_add(t, "; nearest: " KEY "degree = 1: no pipeline");
}

static void say(const numbers *n, int fault, tn_text *t)
{
    long long stages = (long long)stages_of(n), ranks = (long long)n->n_ranks;
    const tn_schedule_type *type = n->type;
    const char *from = n->n_stages           ? "of the table"
                       : n->layers_per_stage ? "by layers_per_stage"
                                             : "by the schedule";
    if (fault == UNEVEN) {
        tn_text_add(t, KEY "degree: %lld ranks cannot share %lld stages (%s) evenly", ranks, stages,
                    from);
    } else if (fault == TOO_FEW || fault == TOO_MANY) {
        tn_text_add(
            t,
            KEY
            "schedule: %s needs %s %d stage%s per rank, %lld stages (%s) on %lld rank%s make %lld",
            type->name, type->max_stages ? "exactly" : "at least", type->min_stages,
            type->min_stages == 1 ? "" : "s", stages, from, ranks, ranks == 1 ? "" : "s",
            stages / ranks);
    } else if (fault == EMPTY) {
        tn_text_add(t,
                    KEY "degree: %lld stages (%s) for %lld layers, of which those before count as "
                        "%lld and those behind as %lld: "
                        "some would hold nothing",
                    stages, from, (long long)units_of(n), (long long)n->first_less,
                    (long long)n->last_less);
    } else {
        bool first = fault == FIRST_HEAVY, other = first ? n->before : n->behind;
        int64_t less = first ? n->first_less : n->last_less;
        tn_text_add(
            t, KEY "%s_stage_less_layers: %lld, but the %s of %lld stages has a share of %lld%s",
            first ? "first" : "last", (long long)less, first ? "first" : "last", stages,
            (long long)share_of(n, first ? 0 : stages - 1), other ? "" : " and nothing but layers");
    }
}

static tn_status check_numbers(const numbers *n)
{
    tn_schedule_faults all = {0};
    tn_text line = {0};
    int f = faults_of(n);
    tn_status st = TN_OK;
    for (int bit = 1; bit < FAULTS_END && st == TN_OK; bit *= 2) {
        if (!(f & bit)) continue;
        tn_text_cut(&line, 0);
        say(n, bit, &line);
        if (all.n == 0) mends(n, f, &line);
        st = tn_text_end(&line);
        if (st == TN_OK) tn_schedule_fault(&all, "%s", tn_text_str(&line));
    }
    tn_text_fini(&line);
    return st == TN_OK ? tn_schedule_faults_end(&all) : st;
}

/* ------------------------------------------------------------ explicit names */

static int32_t find(const tn_schedule_split_options *o, const char *name)
{
    for (int32_t i = 0; i < o->n_modules; i++)
        if (strcmp(o->modules[i].name, name) == 0) return i;
    return -1;
}

static const char *hint(const tn_schedule_split_options *o, const char *name, const char **names,
                        tn_text_short *t)
{
    for (int32_t i = 0; i < o->n_modules; i++) names[i] = o->modules[i].name;
    *t = tn_text_hint(name, names, o->n_modules);
    return t->s;
}

/* stage_of: by module, -1 so far. names: room for all. */
static void place_names(const tn_schedule_split_options *o, int32_t *stage_of, const char **names,
                        tn_schedule_faults *f)
{
    tn_text_short t;
    for (int32_t s = 0; s < o->n_parts; s++) {
        if (o->parts[s].n == 0)
            tn_schedule_fault(f, "stage %d holds nothing; every stage holds a module", s);
        for (int32_t j = 0; j < o->parts[s].n; j++) {
            const char *name = o->parts[s].names[j];
            int32_t i = find(o, name);
            if (i < 0)
                tn_schedule_fault(f, "stage %d: the model has no module '%.80s'%s", s, name,
                                  hint(o, name, names, &t));
            else if (stage_of[i] >= 0)
                tn_schedule_fault(f, "'%.80s' is in stage %d and in stage %d; once is enough", name,
                                  stage_of[i], s);
            else stage_of[i] = s;
        }
    }
    for (int32_t i = 0, before = -1; i < o->n_modules; i++) {
        if (stage_of[i] < 0)
            tn_schedule_fault(f, "'%.80s' is in no stage; nothing may be left out",
                              o->modules[i].name);
        else if (before >= 0 && stage_of[i] < stage_of[before])
            tn_schedule_fault(f,
                              "'%.80s' is in stage %d, but '%.80s', which runs before it, is in "
                              "stage %d; stages follow the "
                              "order of "
                              "forward",
                              o->modules[i].name, stage_of[i], o->modules[before].name,
                              stage_of[before]);
        if (stage_of[i] >= 0) before = i;
    }
}

static void check_parts(const tn_schedule_split_options *o, tn_schedule_faults *f)
{
    int32_t n = o->n_parts, p = o->n_ranks, v = n / p;
    const tn_schedule_type *type = o->type;
    if (n % p) {
        char less[32] = "";
        if (n > p) snprintf(less, sizeof less, "%d or ", n / p * p);
        tn_schedule_fault(f,
                          "%d stages for pipeline_parallel_degree = %d, which must divide them; "
                          "nearest: %s%d stages",
                          n, p, less, (n / p + 1) * p);
    } else if (type && (v < type->min_stages || (type->max_stages && v > type->max_stages))) {
        int32_t near = v < type->min_stages ? type->min_stages : type->max_stages;
        tn_schedule_fault(
            f, "%d stages on %d ranks are %d per rank, %s needs %s %d; nearest: %d stages", n, p, v,
            type->name, type->max_stages ? "exactly" : "at least", type->min_stages, near * p);
    }
    if (o->n_stages && n != o->n_stages)
        tn_schedule_fault(f, "%d stages, the table has %d; both must be the same", n, o->n_stages);
}

static tn_status by_names(const tn_schedule_split_options *o, int32_t *stage_of)
{
    tn_schedule_faults f = {.where = "parallelism.module_fqns_per_model_part"};
    void *mem = NULL;
    TN_TRY(tn_alloc((size_t)o->n_modules * sizeof(char *), &mem));
    for (int32_t i = 0; i < o->n_modules; i++) stage_of[i] = -1;
    check_parts(o, &f);
    place_names(o, stage_of, mem, &f);
    tn_free(mem);
    return tn_schedule_faults_end(&f);
}

/* ------------------------------------------------------------ both */

/* What stands between layers and is none rides with the layer before it; modules around the layers
 * with the first and last. */
static void by_weight(const tn_schedule_split_options *o, const numbers *n, int32_t *stage_of)
{
    int64_t stage = 0, left = layers_of(n, 0), last = stages_of(n) - 1, n_left = n->n_layers;
    for (int32_t i = 0; i < o->n_modules; i++) {
        bool behind = !o->modules[i].layer && n_left == 0;
        if (o->modules[i].layer) {
            while (left == 0) left = layers_of(n, ++stage);
            left--;
            n_left--;
        }
        stage_of[i] = (int32_t)(behind ? last : stage);
    }
}

static tn_status collect(const tn_schedule_split_options *o, const int32_t *stage_of,
                         tn_schedule_stages *out)
{
    void *mem = NULL;
    int32_t n = o->n_modules ? stage_of[o->n_modules - 1] + 1 : 0;
    tn_schedule_stages s = {.n_stages = n, .per_rank = n / o->n_ranks};
    TN_TRY(tn_alloc(((size_t)n + 1) * sizeof(int32_t), &mem));
    s.first_module = mem;
    tn_status st = tn_alloc((size_t)n * sizeof(int32_t), &mem);
    if (st != TN_OK) {
        tn_schedule_stages_fini(&s);
        return st;
    }
    s.n_layers = mem;
    for (int32_t i = 0, at = 0; i < o->n_modules; i++) {
        while (at <= stage_of[i]) s.first_module[at++] = i;
        s.n_layers[stage_of[i]] += o->modules[i].layer;
    }
    s.first_module[n] = o->n_modules;
    *out = s;
    return TN_OK;
}

static bool in_range(int32_t n)
{
    return n >= 0 && n <= MAX_NUMBER;
}

tn_status tn_schedule_split(const tn_schedule_split_options *o, tn_schedule_stages *out)
{
    numbers n = {.n_ranks = o->n_ranks,
                 .n_stages = o->n_stages,
                 .layers_per_stage = o->layers_per_stage,
                 .first_less = o->first_less,
                 .last_less = o->last_less,
                 .type = o->type};
    void *mem = NULL;
    if (o->n_ranks < 1 || o->n_ranks > MAX_NUMBER || !in_range(o->layers_per_stage) ||
        !in_range(o->first_less) || !in_range(o->last_less) || o->n_stages < 0)
        TN_FAIL(TN_BAD_INPUT,
                KEY "degree = %d, layers_per_stage = %d, first_stage_less_layers = %d, "
                    "last_stage_less_layers = %d; "
                    "the degree is at least 1, the others at least 0, all at most %d",
                o->n_ranks, o->layers_per_stage, o->first_less, o->last_less, MAX_NUMBER);
    for (int32_t i = 0; i < o->n_modules; i++) {
        n.n_layers += o->modules[i].layer;
        n.before = n.before || n.n_layers == 0;
    }
    n.behind = o->n_modules > 0 && !o->modules[o->n_modules - 1].layer;
    if (n.n_layers == 0)
        TN_FAIL(TN_BAD_INPUT, KEY "degree: the model has no layers to cut into stages; nearest: 1");
    if (o->n_parts == 0) TN_TRY(check_numbers(&n));
    TN_TRY(tn_alloc((size_t)o->n_modules * sizeof(int32_t), &mem));
    tn_status st = TN_OK;
    if (o->n_parts > 0) st = by_names(o, mem);
    else by_weight(o, &n, mem);
    if (st == TN_OK) st = collect(o, mem, out);
    tn_free(mem);
    return st;
}

void tn_schedule_stages_fini(tn_schedule_stages *s)
{
    tn_free(s->first_module);
    tn_free(s->n_layers);
    *s = (tn_schedule_stages){0};
}
