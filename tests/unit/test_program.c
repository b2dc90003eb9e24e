/* test_program.c - programs and their verifier. A plain replay of the whole run, byte by byte, with
 * every iteration of every loop, is the definition: the verifier must agree with it on sound
 * programs and on damaged ones. Lifetimes and the bound are counted again from that run. */
#include "graph/text.h"
#include "tests/programs.h"

#include <stdlib.h>

/* ------------------------------------------------------------ the plain replay */

enum { CELL = 64 };

typedef struct plain {
    const tn_program *p;
    int32_t *cell[TN_N_REGIONS]; /* by 64 bytes: number of the content there */
    int32_t *now;                /* by value: number of its content */
    int32_t *epoch;              /* by value: microbatch in which that began */
    int32_t n;
    int64_t time, *born, *dies; /* by content: first and last use, in entries run */
    int64_t *at_node;           /* by time: the node that ran */
    bool sound;
} plain;

static int64_t bytes_of(const tn_program *p, int32_t v)
{
    const tn_value *x = &p->local[v];
    int64_t bytes = tn_value_elements(x) * tn_dtype_bytes((tn_dtype)x->dtype);
    return x->carried && x->levels > 1 ? bytes + (x->levels - 1) * p->places[v].level_bytes : bytes;
}

static int32_t *cells(plain *q, int32_t v, int64_t mb, int64_t chunk, int64_t bytes, int64_t *n)
{
    const tn_place *at = &q->p->places[v];
    int64_t first = at->offset + mb * at->microbatch_stride + chunk * at->chunk_stride;
    *n = (bytes + first % CELL + CELL - 1) / CELL;
    if (first < 0 || first + bytes > q->p->region_bytes[at->region]) {
        q->sound = false;
        *n = 0;
    }
    return q->cell[at->region] + first / CELL;
}

static int32_t source_of(const tn_graph *g, int32_t v)
{
    const tn_node *n = &g->nodes[g->values[v].node];
    return n->n_in && tn_node_is_view(g, n) ? source_of(g, tn_node_in(g, n, 0)) : v;
}

static void plain_read(plain *q, int32_t v, int64_t mb, int64_t chunk, int64_t bytes)
{
    int64_t n;
    int32_t id = q->now[source_of(q->p->g, v)], *c = cells(q, v, mb, chunk, bytes, &n);
    if (!id) q->sound = false;
    for (int64_t i = 0; i < n; i++)
        if (c[i] != id) q->sound = false;
    if (id) q->dies[id] = q->time;
}

static void plain_write(plain *q, const tn_node *n, int o, int64_t mb, int64_t chunk)
{
    int32_t v = n->out0 + o;
    const tn_value *x = &q->p->g->values[v];
    const tn_place *at = &q->p->places[v];
    bool piece = q->now[v] && (at->microbatch_stride || (at->chunk_stride && q->epoch[v] == mb));
    int64_t n_cells;
    int32_t *c = cells(q, v, mb, chunk, bytes_of(q->p, v), &n_cells);
    if (x->carried && q->now[v]) plain_read(q, v, mb, chunk, bytes_of(q->p, v));
    else if (!piece) {
        q->now[v] = ++q->n;
        q->epoch[v] = (int32_t)mb;
        q->born[q->n] = q->dies[q->n] = q->time;
    }
    q->dies[q->now[v]] = q->time;
    for (int64_t i = 0; i < n_cells; i++) c[i] = q->now[v];
}

/* What an op may write over: its reuse operand, or any if it goes element by element. */
static void plain_overlaps(plain *q, const tn_node *n, int o, int64_t mb, int64_t chunk)
{
    const tn_op *op = tn_op_get((tn_op_id)n->op);
    int64_t n_out, n_in;
    int32_t v = n->out0 + o, *a = cells(q, v, mb, chunk, bytes_of(q->p, v), &n_out);
    int8_t reuse = o < TN_COUNT(op->reuse) ? op->reuse[o] : 0;
    for (int i = 0; i < n->n_in + o; i++) {
        int32_t w = i < n->n_in ? tn_node_in(q->p->g, n, i) : n->out0 + i - n->n_in;
        int32_t *b = cells(q, w, mb, chunk, bytes_of(q->p, w), &n_in);
        bool over = i < n->n_in && a == b && bytes_of(q->p, v) == bytes_of(q->p, w) &&
                    (reuse == i + 1 || op->cheap);
        if (n_in && n_out && a < b + n_in && b < a + n_out && !over) q->sound = false;
    }
    bool must = op->reuse_must && reuse && reuse <= n->n_in;
    if (!must && q->p->places[v].region != TN_REGION_STEP) q->sound = false;
    if (must &&
        a != cells(q, tn_node_in(q->p->g, n, reuse - 1), mb, chunk, bytes_of(q->p, v), &n_in))
        q->sound = false;
}

static void plain_range(plain *q, int64_t begin, int64_t end, int64_t mb, int64_t chunk,
                        tn_scope scope)
{
    const tn_graph *g = q->p->g;
    for (int64_t i = begin; i < end; i++) {
        const tn_node *n = &g->nodes[q->p->entries[i].node];
        q->at_node[++q->time] = q->p->entries[i].node;
        if (n->scope != scope) q->sound = false;
        for (int k = 0; k < n->n_in; k++) {
            int32_t v = tn_node_in(g, n, k);
            const tn_value *x = &q->p->local[v];
            bool moves_here =
                scope == TN_SCOPE_CHUNK || !q->p->places[v].chunk_stride || g->n_chunks == 1;
            if (!moves_here) q->sound = false;
            plain_read(q, v, mb, chunk, tn_value_elements(x) * tn_dtype_bytes((tn_dtype)x->dtype));
        }
        for (int o = 0; o < n->n_out; o++) plain_overlaps(q, n, o, mb, chunk);
        for (int o = 0; o < n->n_out; o++) plain_write(q, n, o, mb, chunk);
    }
}

static tn_status plain_begin(plain *q, const tn_program *p)
{
    const tn_graph *g = p->g;
    int64_t runs = 1 + p->n_entries * (1 + g->n_microbatches * (1 + g->n_chunks));
    void *mem = NULL;
    *q = (plain){.p = p, .sound = true};
    for (int r = 0; r < TN_N_REGIONS; r++) {
        TN_TRY(tn_alloc((size_t)(p->region_bytes[r] / CELL + 1) * sizeof(int32_t), &mem));
        q->cell[r] = mem;
    }
    TN_TRY(tn_alloc(2 * (size_t)(g->n_values + 1) * sizeof(int32_t), &mem));
    q->now = mem;
    q->epoch = q->now + g->n_values;
    TN_TRY(tn_alloc((size_t)(5 * runs + 2 * g->n_values) * 3 * sizeof(int64_t), &mem));
    q->born = mem;
    q->dies = q->born + 5 * runs + 2 * g->n_values;
    q->at_node = q->dies + 5 * runs + 2 * g->n_values;
    return TN_OK;
}

static void plain_fini(plain *q)
{
    for (int r = 0; r < TN_N_REGIONS; r++) tn_free(q->cell[r]);
    tn_free(q->now);
    tn_free(q->born);
}

/* The whole run; the caller ends with plain_fini. */
static bool plain_run(plain *q, const tn_program *p)
{
    const tn_graph *g = p->g;
    if (!TN_CHECK_OK(plain_begin(q, p))) return false;
    for (int64_t i = 0; i < g->n_nodes; i++)
        for (int o = 0; !g->nodes[i].n_in && o < g->nodes[i].n_out; o++) {
            int64_t n;
            int32_t v = g->nodes[i].out0 + o, *c = cells(q, v, 0, 0, bytes_of(p, v), &n);
            q->now[v] = ++q->n;
            for (int64_t k = 0; k < n; k++) c[k] = q->n;
        }
    plain_range(q, 0, p->microbatch, 0, 0, TN_SCOPE_HEAD);
    for (int64_t m = 0; m < g->n_microbatches; m++) {
        plain_range(q, p->microbatch, p->chunk, m, 0, TN_SCOPE_MICROBATCH);
        for (int64_t c = 0; c < g->n_chunks; c++)
            plain_range(q, p->chunk, p->chunk_end, m, c, TN_SCOPE_CHUNK);
        plain_range(q, p->chunk_end, p->tail, m, 0, TN_SCOPE_MICROBATCH);
    }
    plain_range(q, p->tail, p->n_entries, 0, 0, TN_SCOPE_TAIL);
    for (int32_t v = 0; v < g->n_values; v++) {
        const tn_node *n = &g->nodes[g->values[v].node];
        if (!g->values[v].rank && n->n_in && !tn_op_get((tn_op_id)n->op)->reuse_must &&
            source_of(g, v) == v)
            plain_read(q, v, 0, 0, bytes_of(p, v));
    }
    return q->sound;
}

static bool plainly_sound(const tn_program *p)
{
    plain q;
    bool sound = plain_run(&q, p);
    plain_fini(&q);
    return sound;
}

/* ------------------------------------------------------------ sound programs */

/* Buffers live at least as long as their contents, and the bound is what those need: at every node,
 * over all iterations. */
static void check_lifetimes(const char *what, const tn_program *p)
{
    plain q;
    bool sound = plain_run(&q, p);
    TN_CHECK_MSG(sound, "%s: the plain replay fails", what);
    int64_t n_nodes = p->g->n_nodes, most = 0, *live = calloc((size_t)n_nodes + 1, sizeof *live),
            bad = 0;
    for (int32_t v = 0, *seen = calloc((size_t)p->n_buffers, sizeof *seen); seen; v++) {
        if (v == p->g->n_values) {
            free(seen);
            break;
        }
        int32_t b = p->places[v].buffer;
        if (p->buffers[b].region != TN_REGION_STEP) continue;
        for (int64_t t = p->buffers[b].start; !seen[b] && t < p->buffers[b].end; t++)
            live[t] += p->buffers[b].bytes;
        seen[b] = 1;
        TN_CHECK_MSG(p->places[v].offset == p->buffers[b].offset, "%s: value %d", what, v);
        TN_CHECK(p->buffers[b].bytes >= bytes_of(p, v));
    }
    for (int32_t v = 0; v < p->g->n_values;
         v++) { /* the last content of each value: its buffer lives while it does */
        const tn_buffer *b = &p->buffers[p->places[v].buffer];
        if (source_of(p->g, v) != v || !q.now[v] || b->region != TN_REGION_STEP) continue;
        for (int64_t t = q.born[q.now[v]]; t <= q.dies[q.now[v]]; t++)
            bad += q.at_node[t] && (q.at_node[t] < b->start || q.at_node[t] >= b->end);
    }
    for (int64_t t = 0; t < n_nodes; t++)
        if (live[t] > most) most = live[t];
    TN_CHECK_MSG(!bad, "%s: %lld moments at which a content lives and its buffer does not", what,
                 (long long)bad);
    TN_CHECK_MSG(most == p->pack.bound, "%s: bound %lld, counted %lld", what,
                 (long long)p->pack.bound, (long long)most);
    TN_CHECK_MSG((double)p->pack.peak <= 1.005 * (double)most, "%s: the arena is %.4f of the bound",
                 what, (double)p->pack.peak / (double)most);
    TN_CHECK(p->region_bytes[TN_REGION_STEP] == p->pack.peak);
    free(live);
    plain_fini(&q);
}

static void check_regions(const char *what, const tn_program *p)
{
    int64_t states = 0, inputs = 0, work = 0;
    for (int64_t i = 0; i < p->g->n_nodes; i++) {
        const tn_node *n = &p->g->nodes[i];
        int64_t bytes = 0;
        for (int o = 0; o < n->n_out; o++) bytes += (bytes_of(p, n->out0 + o) + 63) / 64 * 64;
        if (n->op == TN_OP_state) states += bytes;
        if (n->op == TN_OP_input) inputs += bytes;
        work += n->n_in && !tn_node_is_view(p->g, n);
    }
    TN_CHECK_MSG(p->region_bytes[TN_REGION_PROCESS] == states, "%s: process %lld, counted %lld",
                 what, (long long)p->region_bytes[0], (long long)states);
    TN_CHECK(p->region_bytes[TN_REGION_PLAN] == inputs && p->n_entries == work);
}

static void sound_programs(void)
{
    static const char *const recipes[] = {"recipes/demo.lua", "recipes/llama3_debug.lua",
                                          tiny_recipe};
    static const char *const modes[] = {"activation_checkpoint.mode=none",
                                        "activation_checkpoint.mode=full"};
    static const char *const dtypes[] = {"training.mixed_precision_param=float32",
                                         "training.mixed_precision_param=bfloat16"};
    static const char *const batches[] = {"training.global_batch_size=48",
                                          "training.global_batch_size=144"};
    for (int i = 0; i < 3 * 2 * 2 * 2 * 3; i++) {
        wanted w = {.recipe = recipes[i % 3],
                    .kind = (tn_build_kind)(i / 24),
                    .overrides = {modes[i / 3 % 2], dtypes[i / 6 % 2], batches[i / 12 % 2]}};
        tn_program *p;
        char what[160];
        snprintf(what, sizeof what, "%s kind %d %s %s %s", i % 3 == 2 ? "tiny" : recipes[i % 3],
                 (int)w.kind, w.overrides[0], w.overrides[1], w.overrides[2]);
        if (!TN_CHECK_OK(build_program(&w, &p))) continue;
        TN_CHECK_OK(tn_program_verify(p));
        check_lifetimes(what, p);
        check_regions(what, p);
        tn_program_destroy(p);
    }
}

/* Several ranks: the last one, whose shards are the smallest or the largest. */
static void sound_layouts(void)
{
    static const char *const degrees[][3] = {
        {"parallelism.data_parallel_shard_degree=2"},
        {"parallelism.data_parallel_replicate_degree=2"},
        {"parallelism.tensor_parallel_degree=2"},
        {"parallelism.tensor_parallel_degree=2", "parallelism.data_parallel_shard_degree=2"},
        {"parallelism.tensor_parallel_degree=4", "parallelism.data_parallel_shard_degree=2",
         "parallelism.enable_sequence_parallel=false"}};
    static const int worlds[] = {2, 2, 2, 4, 8};
    for (int i = 0; i < 5 * 2 * 3; i++) {
        int k = i % 5, n = 2;
        wanted w = {.recipe = tiny_recipe,
                    .kind = (tn_build_kind)(i / 10),
                    .world = worlds[k],
                    .rank = i % 2 ? worlds[k] - 1 : 0,
                    .overrides = {i / 5 % 2 ? "activation_checkpoint.mode=full"
                                            : "activation_checkpoint.mode=none",
                                  "training.global_batch_size=36"}};
        for (int d = 0; d < 3 && degrees[k][d]; d++) w.overrides[n++] = degrees[k][d];
        tn_program *p;
        if (!TN_CHECK_OK(build_program(&w, &p))) continue;
        TN_CHECK_OK(tn_program_verify(p));
        TN_CHECK_MSG(plainly_sound(p), "layout %d kind %d: the plain replay fails", k, (int)w.kind);
        tn_program_destroy(p);
    }
}

/* Results that must not take over an operand's memory: it is read again in the next iteration, or
 * elsewhere in the same op. */
static void memory_that_stays(void)
{
    static const char head[] =
        "graph titan 1\nmesh pp=1 dp_replicate=1 dp_shard=1 cp=1 tp=1\nsums canonical tp=1 seq=1 "
        "rows=1\n"
        "step rows=2 seq=4 microbatches=1 chunks=2\n"
        "%w : f32[8,8] {dp:R cp:R tp:R} = state() name=\"w\" @m F head s0\n"
        "%t : i32[2,4] {dp:R cp:R tp:R} = input() @m F head s0\n"
        "%x : f32[2,4,8] {dp:R cp:R tp:R} = embedding(%t, %w) @m F microbatch s0\n";
    static const char *const bodies[] = {
        "%y : f32[2,4,8] {dp:R cp:R tp:R} = unary(%x) @m F chunk s0\n%z : f32[2,4,8] {dp:R cp:R "
        "tp:R} = add(%x, %y) @m F chunk s0\n",
        "%y : f32[2,4,8] {dp:R cp:R tp:R} = linear_add(%x, %w, %x) @m F microbatch s0\n",
        "%y : f32[2,4,8] {dp:R cp:R tp:R} = add(%x, %x) @m F microbatch s0\n", /* may */
        "%a : f32[1,4,8] {dp:R cp:R tp:R} = chunk(%x) rows=1 seq=4 @m F chunk s0\n"
        "%b : f32[1,4,8] {dp:R cp:R tp:R} = unary(%a) @m F chunk s0\n"
        "%c : f32[2,4,8] {dp:R cp:R tp:R} = unchunk(%b) rows=2 seq=4 @m F chunk s0\n"
        "%d : f32[2,4,8] {dp:R cp:R tp:R} = add(%c, %x) @m F microbatch s0\n"};
    for (int i = 0; i < TN_COUNT(bodies); i++) {
        char text[2048];
        tn_graph *g;
        tn_program *p;
        int n = snprintf(text, sizeof text, "%s%s", head, bodies[i]);
        if (!TN_CHECK_OK(tn_graph_parse("hand", text, (size_t)n, &g)) ||
            !TN_CHECK_OK(tn_program_build(g, NULL, 0, 0, NULL, &p)))
            continue;
        TN_CHECK_OK(tn_program_verify(p));
        TN_CHECK_MSG(plainly_sound(p), "graph %d by hand: the plain replay fails", i);
        if (i == 2) TN_CHECK(p->places[2].buffer == p->places[3].buffer);
        tn_program_destroy(p);
    }
}

/* What is kept is not taken over by the last node either. */
static void kept_values(void)
{
    static const char text[] =
        "graph titan 1\nmesh pp=1 dp_replicate=1 dp_shard=1 cp=1 tp=1\nsums canonical tp=1 seq=1 "
        "rows=1\nstep rows=2 seq=4 microbatches=1 chunks=1\n"
        "%w : f32[8,8] {dp:R cp:R tp:R} = state() name=\"w\" @m F head s0\n"
        "%t : i32[2,4] {dp:R cp:R tp:R} = input() @m F head s0\n"
        "%x : f32[2,4,8] {dp:R cp:R tp:R} = embedding(%t, %w) @m F microbatch s0\n"
        "%y : f32[2,4,8] {dp:R cp:R tp:R} = unary(%x) @m F microbatch s0\n";
    for (int32_t n_keep = 0; n_keep < 2; n_keep++) {
        tn_graph *g;
        tn_program *p;
        int32_t keep = 2;
        if (!TN_CHECK_OK(tn_graph_parse("hand", text, sizeof text - 1, &g)) ||
            !TN_CHECK_OK(tn_program_build(g, NULL, 0, n_keep, &keep, &p)))
            continue;
        TN_CHECK((p->places[2].buffer == p->places[3].buffer) == !n_keep);
        tn_program_destroy(p);
    }
}

/* ------------------------------------------------------------ damaged programs */

static int64_t n_harmful, n_harmless;

/* The verifier finds what the plain replay finds, and beside it views that no entry reads and that
 * lie outside of their region. */
static void judge(const char *what, int64_t at, const tn_program *p)
{
    bool sound = plainly_sound(p);
    tn_status st = tn_program_verify(p);
    bool stricter = sound && st && strstr(tn_error_text(), "outside of the");
    TN_CHECK_MSG(sound == (st == TN_OK) || stricter,
                 "%s %lld: the plain replay says %s, the verifier '%s'", what, (long long)at,
                 sound ? "sound" : "broken", st ? tn_error_text() : "sound");
    if (!sound) TN_CHECK(st == TN_FAILED && !strncmp(tn_error_text(), "program: ", 9));
    n_harmful += !sound;
    n_harmless += sound;
    tn_error_clear();
}

static void count(const char *what, int64_t harmful_at_least)
{
    TN_CHECK_MSG(n_harmful >= harmful_at_least, "%s: only %lld of %lld did harm", what,
                 (long long)n_harmful, (long long)(n_harmful + n_harmless));
    n_harmful = n_harmless = 0;
}

static void swapped_entries(tn_program *p)
{
    for (int64_t i = 0; i + 1 < p->n_entries; i++)
        for (int64_t k = i + 1; k < p->n_entries; k += 1 + 5 * (k - i)) {
            tn_entry a = p->entries[i];
            p->entries[i] = p->entries[k];
            p->entries[k] = a;
            judge("swap", i, p);
            p->entries[k] = p->entries[i];
            p->entries[i] = a;
        }
    count("swap", p->n_entries / 2);
}

static void dropped_entries(tn_program *p)
{
    int64_t *bounds[4] = {&p->microbatch, &p->chunk, &p->chunk_end, &p->tail};
    tn_entry *all = malloc((size_t)p->n_entries * sizeof *all);
    int64_t n = p->n_entries, kept[4];
    if (!TN_CHECK(all)) return;
    memcpy(all, p->entries, (size_t)n * sizeof *all);
    for (int b = 0; b < 4; b++) kept[b] = *bounds[b];
    for (int64_t i = 0; i < n; i++) {
        memmove(p->entries + i, all + i + 1, (size_t)(n - i - 1) * sizeof *all);
        p->n_entries = n - 1;
        for (int b = 0; b < 4; b++) *bounds[b] = kept[b] - (kept[b] > i);
        TN_CHECK_FAILS(tn_program_verify(p), TN_FAILED, "program: ");
        p->n_entries = n;
        for (int b = 0; b < 4; b++) *bounds[b] = kept[b];
        memcpy(p->entries, all, (size_t)n * sizeof *all);
        if (i + 1 == n) break;
        p->entries[i + 1] = all[i]; /* instead of the next one */
        TN_CHECK_FAILS(tn_program_verify(p), TN_FAILED, "program: ");
        p->entries[i + 1] = all[i + 1];
    }
    for (int b = 0; b < 4; b++)
        for (int d = -1; d <= 1; d += 2) {
            *bounds[b] += d;
            TN_CHECK_FAILS(tn_program_verify(p), TN_FAILED, "program: ");
            *bounds[b] -= d;
        }
    free(all);
    TN_CHECK_OK(tn_program_verify(p));
}

/* One value alone, then everything that shares its buffer. */
static void shifted_places(tn_program *p)
{
    static const int64_t shifts[] = {64, -64, 4096};
    for (int32_t v = 0; v < p->g->n_values; v++)
        for (int s = 0; s < TN_COUNT(shifts); s++) {
            p->places[v].offset += shifts[s];
            judge("shift of value", v, p);
            p->places[v].offset -= shifts[s];
        }
    count("shift", p->g->n_values * 2);
    for (int32_t b = 0; b < p->n_buffers; b++)
        for (int s = 0; s < TN_COUNT(shifts); s++) {
            for (int32_t v = 0; v < p->g->n_values; v++)
                p->places[v].offset += p->places[v].buffer == b ? shifts[s] : 0;
            judge("shift of buffer", b, p);
            for (int32_t v = 0; v < p->g->n_values; v++)
                p->places[v].offset -= p->places[v].buffer == b ? shifts[s] : 0;
        }
    count("shift of buffer", p->n_buffers);
}

static void wrong_places(tn_program *p)
{
    for (int32_t v = 0; v < p->g->n_values; v++) {
        tn_place kept = p->places[v];
        p->places[v].region = (int8_t)((kept.region + 1) % TN_N_REGIONS);
        judge("region of value", v, p);
        p->places[v] = kept;
        if (kept.chunk_stride) {
            p->places[v].chunk_stride = 0;
            judge("no chunk stride of value", v, p);
            p->places[v].chunk_stride = kept.chunk_stride + 64;
            judge("chunk stride of value", v, p);
            p->places[v].chunk_stride = 0;
        }
        if (kept.microbatch_stride) {
            p->places[v].microbatch_stride += 64;
            judge("microbatch stride of value", v, p);
        }
        p->places[v] = kept;
        if (p->g->values[v].levels > 1) {
            p->places[v].level_bytes *= 2;
            judge("levels of value", v, p);
        }
        p->places[v] = kept;
    }
    count("places", p->g->n_values / 2);
}

/* Lifetimes that end too early or begin too late, packed again: what the packer then puts on top is
 * found. */
static void shortened_lifetimes(tn_program *p)
{
    tn_pack_item *items = calloc((size_t)p->n_buffers, sizeof *items);
    int64_t *kept = malloc((size_t)p->g->n_values * sizeof *kept),
            step = p->region_bytes[TN_REGION_STEP];
    if (!TN_CHECK(items && kept)) return;
    for (int32_t v = 0; v < p->g->n_values; v++) kept[v] = p->places[v].offset;
    for (int i = 0; i < 3 * p->n_buffers; i++) {
        int32_t cut = i / 3;
        const tn_buffer *c = &p->buffers[cut];
        tn_pack_result r;
        if (c->region != TN_REGION_STEP || c->end - c->start < 2) continue;
        for (int32_t b = 0; b < p->n_buffers; b++)
            items[b] =
                (tn_pack_item){p->buffers[b].start, p->buffers[b].end,
                               p->buffers[b].region == TN_REGION_STEP ? p->buffers[b].bytes : 0, 0};
        if (i % 3 == 0) items[cut].end = c->start + 1;
        if (i % 3 == 1) items[cut].end = c->start + (c->end - c->start + 1) / 2;
        if (i % 3 == 2) items[cut].start = c->end - 1;
        if (!TN_CHECK_OK(tn_pack(items, p->n_buffers, &r))) break;
        p->region_bytes[TN_REGION_STEP] = r.peak;
        for (int32_t v = 0; v < p->g->n_values; v++)
            if (p->places[v].region == TN_REGION_STEP)
                p->places[v].offset = items[p->places[v].buffer].offset;
        judge("lifetime of buffer", cut, p);
        p->region_bytes[TN_REGION_STEP] = step;
        for (int32_t v = 0; v < p->g->n_values; v++) p->places[v].offset = kept[v];
    }
    count("lifetimes", p->n_buffers / 4);
    free(items);
    free(kept);
}

static void damaged_programs(void)
{
    static const char *const modes[] = {"activation_checkpoint.mode=none",
                                        "activation_checkpoint.mode=full"};
    for (int i = 0; i < 2; i++) {
        wanted w = {.recipe = tiny_recipe,
                    .overrides = {modes[i], "model.n_layers=1", "model.dim=16", "model.n_heads=2",
                                  "model.n_kv_heads=1"}};
        tn_program *p;
        if (!TN_CHECK_OK(build_program(&w, &p))) continue;
        TN_CHECK(p->g->n_chunks == 3 && p->g->n_microbatches == 3);
        swapped_entries(p);
        dropped_entries(p);
        shifted_places(p);
        wrong_places(p);
        shortened_lifetimes(p);
        TN_CHECK_OK(tn_program_verify(p));
        tn_program_destroy(p);
    }
}

/* The message names both values, where they lie, and who wrote when. */
static void message(void)
{
    wanted w = {.recipe = tiny_recipe};
    tn_program *p;
    if (!TN_CHECK_OK(build_program(&w, &p))) return;
    int32_t a = -1, b = -1; /* the one is kept for backward, the other written while it is */
    for (int64_t i = 0; i < p->g->n_nodes; i++) {
        const tn_node *n = &p->g->nodes[i];
        if (n->op == TN_OP_attention && a < 0) a = n->out0;
        if (n->op == TN_OP_rmsnorm && !strcmp(n->path, "layers.1.ffn_norm") &&
            n->phase == TN_PHASE_F)
            b = n->out0;
    }
    if (TN_CHECK(a >= 0 && b >= 0)) {
        for (int32_t v = 0; v < p->g->n_values; v++)
            if (p->places[v].buffer == p->places[b].buffer)
                p->places[v].offset = p->places[a].offset;
        tn_status st = tn_program_verify(p);
        const char *said = tn_error_text();
        TN_CHECK_MSG(st == TN_FAILED && strstr(said, "%layers.0.attention.merge_heads") &&
                         strstr(said, "%layers.1.ffn_norm.rmsnorm") && strstr(said, "step+") &&
                         strstr(said, "written by node") && strstr(said, "microbatch 0"),
                     "'%s'", said);
        tn_error_clear();
    }
    tn_program_destroy(p);
}

int main(void)
{
    sound_programs();
    sound_layouts();
    memory_that_stays();
    kept_values();
    damaged_programs();
    message();
    return tn_test_done("program");
}
