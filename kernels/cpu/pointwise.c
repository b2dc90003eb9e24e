/* pointwise.c - checks programs, and plans and interprets them block by block.
 *
 * The plan costs under a microsecond per call and needs the addresses (which outputs lie over
 * inputs), so it is not kept.
 */
#include "kernels/cpu/pointwise.h"

#include "kernels/cpu/cast.h"
#include "kernels/cpu/dispatch.h"

#include <assert.h>
#include <string.h>

TN_ISA_TABLES(tn_pointwise_fns, tn_pointwise_fns);
static const tn_pointwise_fns *const by_isa[TN_N_ISA] = TN_BY_ISA(tn_pointwise_fns);

/* Floats of all blocks of a thread together, and of one: small enough that the next step's loads
 * from memory overlap with this one's arithmetic, large enough to hide the interpreter. */
enum { BLOCK_FLOATS = 4096, BLOCK_MAX = 256, MAX_BLOCKS = 63 };

bool tn_pointwise_binary(tn_pointwise_op op)
{
    return op < TN_POINTWISE_NEG;
}

static tn_status check_ins(const tn_pointwise_program *p, int i, uint64_t *written)
{
    const tn_pointwise_ins *s = p->ins + i;
    if (s->op >= TN_N_POINTWISE)
        TN_FAIL(TN_BAD_INPUT, "fused, instruction %d: unknown op %d", i, s->op);
    if (s->dst >= TN_POINTWISE_REGISTERS || s->dst < p->n_in)
        TN_FAIL(TN_BAD_INPUT, "fused, instruction %d: writes register %d; use %d to %d", i, s->dst,
                p->n_in, TN_POINTWISE_REGISTERS - 1);
    for (int k = 0; k < (tn_pointwise_binary(s->op) ? 2 : 1); k++) {
        int r = k ? s->b : s->a;
        if (r >= TN_POINTWISE_REGISTERS || !(*written >> r & 1))
            TN_FAIL(TN_BAD_INPUT,
                    "fused, instruction %d: reads register %d, which nothing has written", i, r);
    }
    *written |= (uint64_t)1 << s->dst;
    return TN_OK;
}

tn_status tn_pointwise_check(const tn_pointwise_program *p)
{
    if (p->n_in < 0 || p->n_in > TN_POINTWISE_INPUTS)
        TN_FAIL(TN_BAD_INPUT, "fused: %d inputs; use at most %d", p->n_in, TN_POINTWISE_INPUTS);
    if (p->n_out < 1 || p->n_out > TN_POINTWISE_OUTPUTS)
        TN_FAIL(TN_BAD_INPUT, "fused: %d outputs; use 1 to %d", p->n_out, TN_POINTWISE_OUTPUTS);
    if (p->n_ins < 0 || p->n_ins > TN_POINTWISE_INS)
        TN_FAIL(TN_BAD_INPUT, "fused: %d instructions; use at most %d", p->n_ins, TN_POINTWISE_INS);
    uint64_t written = ((uint64_t)1 << p->n_in) - 1;
    for (int i = 0; i < p->n_in; i++)
        if (p->kind[i] > TN_POINTWISE_SCALAR)
            TN_FAIL(TN_BAD_INPUT, "fused, input %d: unknown kind %d", i, p->kind[i]);
    for (int i = 0; i < p->n_ins; i++) TN_TRY(check_ins(p, i, &written));
    for (int k = 0; k < p->n_out; k++)
        if (p->out[k] >= TN_POINTWISE_REGISTERS || !(written >> p->out[k] & 1))
            TN_FAIL(TN_BAD_INPUT, "fused, output %d: register %d, which nothing has written", k,
                    p->out[k]);
    return TN_OK;
}

/* ---- the plan of one call ----
 *
 * (1) A value is an input or what an instruction writes: value i < n_in is input i, n_in + i the
 * result of instruction i. Registers are forgotten; what no output needs is left out. (2) A step is
 * one instruction, or a gate: an activation and the product that alone reads it; and backwards the
 * four instructions that make both gradients of such a product. (3) Steps read all operands of an
 * element before they write it: a result may take the place of an operand. (4) Every value that is
 * neither a full input nor written straight to an output has a block of its own while it is needed;
 * with bf16 every value, as fp32.
 */
enum { MAX_VALUES = TN_POINTWISE_INPUTS + TN_POINTWISE_INS, IN_PLACE = -1, FIRST_OUTPUT = -2 };

typedef enum step_kind { STEP_NONE, STEP_OP, STEP_GATE, STEP_GATE_BWD } step_kind;

typedef struct step {
    uint8_t kind, f; /* f: the op, or the gate's activation */
    int8_t n_dst, n_src, dst[2], src[3];
    float c;
    bool wide;
} step;

typedef struct plan {
    const tn_pointwise_args *args;
    const tn_pointwise_fns *fns;
    const tn_cast_fns *casts;
    int64_t items, block;
    int n_steps;
    step steps[TN_POINTWISE_INS];
    int8_t home[MAX_VALUES]; /* the value's block, IN_PLACE (full input), or FIRST_OUTPUT - k:
                                straight to output k */
    int8_t out[TN_POINTWISE_OUTPUTS];   /* the value of output k */
    int8_t stage[TN_POINTWISE_OUTPUTS]; /* the block that keeps an output which is an input until
                                           all is read, or -1 */
} plan;

typedef struct values {
    int n_in, n;
    uint8_t op[MAX_VALUES];
    int8_t a[MAX_VALUES], b[MAX_VALUES]; /* operands, -1: none */
    int8_t uses[MAX_VALUES]; /* by instructions that are needed and by outputs; 0: not needed */
    step steps[MAX_VALUES];  /* at the place of the instruction that defines the value */
} values;

static void list_values(const tn_pointwise_program *p, values *v, int8_t *out)
{
    int8_t reg[TN_POINTWISE_REGISTERS];
    for (int i = 0; i < p->n_in; i++) reg[i] = (int8_t)i;
    v->n_in = p->n_in;
    v->n = p->n_in + p->n_ins;
    memset(v->uses, 0, sizeof v->uses);
    for (int i = 0; i < p->n_ins; i++) {
        const tn_pointwise_ins *s = p->ins + i;
        v->op[p->n_in + i] = s->op;
        v->a[p->n_in + i] = reg[s->a];
        v->b[p->n_in + i] = tn_pointwise_binary(s->op) ? reg[s->b] : -1;
        reg[s->dst] = (int8_t)(p->n_in + i);
    }
    for (int k = 0; k < p->n_out; k++) v->uses[out[k] = reg[p->out[k]]]++;
    for (int i = v->n - 1; i >= p->n_in; i--) {
        if (v->uses[i] == 0) continue;
        v->uses[v->a[i]]++;
        if (v->b[i] >= 0) v->uses[v->b[i]]++;
    }
}

static int gate_of(tn_pointwise_op op)
{
    return op == TN_POINTWISE_SILU        ? 0
           : op == TN_POINTWISE_GELU_TANH ? 1
           : op == TN_POINTWISE_GELU_ERF  ? 2
                                          : -1;
}

static int gate_bwd_of(tn_pointwise_op op)
{
    return op == TN_POINTWISE_SILU_BWD        ? 0
           : op == TN_POINTWISE_GELU_TANH_BWD ? 1
           : op == TN_POINTWISE_GELU_ERF_BWD  ? 2
                                              : -1;
}

/* An operand of product m that is activation f of some value and is read by nothing else; -1: there
 * is none. */
static int gate_operand(const values *v, int m, int f)
{
    for (int k = 0; k < 2; k++) {
        int t = k ? v->b[m] : v->a[m];
        if (t >= v->n_in && v->uses[t] == 1 && gate_of(v->op[t]) == f && f >= 0) return t;
    }
    return -1;
}

static bool is_product(const values *v, int i)
{
    return i >= v->n_in && v->uses[i] > 0 && v->op[i] == TN_POINTWISE_MUL &&
           v->steps[i].kind == STEP_OP;
}

/* dg = f_bwd(dy u, g) and du = f(g) dy */
static void find_gate_bwd(values *v, int dg)
{
    const int f = gate_bwd_of(v->op[dg]), t = v->a[dg], g = v->b[dg];
    if (f < 0 || !is_product(v, t) || v->uses[t] != 1) return;
    for (int du = v->n_in; du < v->n; du++) {
        if (du == t || !is_product(v, du)) continue;
        const int y = gate_operand(v, du, f), dy = v->a[du] == y ? v->b[du] : v->a[du],
                  at = du < dg ? du : dg;
        if (y < 0 || v->a[y] != g || (v->a[t] != dy && v->b[t] != dy)) continue;
        const int u = v->a[t] == dy ? v->b[t] : v->a[t];
        if (u >= at || dy >= at || g >= at) continue;
        v->steps[t].kind = v->steps[y].kind = v->steps[dg].kind = v->steps[du].kind = STEP_NONE;
        v->steps[at] = (step){STEP_GATE_BWD,
                              (uint8_t)f,
                              2,
                              3,
                              {(int8_t)dg, (int8_t)du},
                              {(int8_t)dy, (int8_t)g, (int8_t)u},
                              0,
                              false};
        return;
    }
}

static void find_gate(values *v, int m)
{
    if (!is_product(v, m) || v->a[m] == v->b[m]) return;
    for (int f = 0; f < TN_POINTWISE_GATES; f++) {
        const int y = gate_operand(v, m, f);
        if (y < 0) continue;
        const int u = v->a[m] == y ? v->b[m] : v->a[m];
        v->steps[y].kind = STEP_NONE;
        v->steps[m] =
            (step){STEP_GATE, (uint8_t)f, 1, 2, {(int8_t)m, 0}, {v->a[y], (int8_t)u, 0}, 0, false};
        return;
    }
}

static void list_steps(const tn_pointwise_program *p, values *v, plan *pl)
{
    for (int i = v->n_in; i < v->n; i++)
        v->steps[i] = (step){v->uses[i] ? STEP_OP : STEP_NONE,
                             v->op[i],
                             1,
                             v->b[i] < 0 ? 1 : 2,
                             {(int8_t)i, 0},
                             {v->a[i], v->b[i], 0},
                             p->ins[i - v->n_in].c,
                             p->ins[i - v->n_in].wide};
    for (int i = v->n_in; i < v->n; i++)
        if (v->steps[i].kind == STEP_OP) find_gate_bwd(v, i);
    for (int i = v->n_in; i < v->n; i++) find_gate(v, i);
    for (int i = v->n_in; i < v->n; i++)
        if (v->steps[i].kind != STEP_NONE) pl->steps[pl->n_steps++] = v->steps[i];
}

/* The step that reads a value last, n_steps where an output is copied from it; the step that writes
 * it, -1 for inputs. */
typedef struct span {
    int write[MAX_VALUES], read[MAX_VALUES];
} span;

static void find_spans(const plan *pl, span *s)
{
    memset(s, -1, sizeof *s);
    for (int i = 0; i < pl->n_steps; i++) {
        for (int k = 0; k < pl->steps[i].n_src; k++) s->read[pl->steps[i].src[k]] = i;
        for (int k = 0; k < pl->steps[i].n_dst; k++) s->write[pl->steps[i].dst[k]] = i;
    }
    for (int k = 0; k < pl->args->program->n_out; k++) s->read[pl->out[k]] = pl->n_steps;
}

/* May output k's value be written where it belongs? Not while an input that lies there is still to
 * be read. */
static bool is_direct(const plan *pl, const span *s, int k)
{
    const tn_pointwise_args *a = pl->args;
    const int v = pl->out[k], n_in = a->program->n_in;
    if (a->bf16 || v < n_in || pl->home[v] <= FIRST_OUTPUT) return false;
    for (int i = 0; i < n_in; i++)
        if (a->in[i] == a->out[k] && s->read[i] > s->write[v]) return false;
    return true;
}

/* (4); returns how many blocks there are. */
static int place_values(plan *pl)
{
    const tn_pointwise_program *p = pl->args->program;
    uint64_t used = 0;
    int n = 0;
    span s;
    find_spans(pl, &s);
    memset(pl->home, IN_PLACE, sizeof pl->home);
    for (int i = 0; i < p->n_in; i++)
        if (p->kind[i] != TN_POINTWISE_FULL || pl->args->bf16) pl->home[i] = (int8_t)n++;
    for (int k = 0; k < p->n_out; k++) {
        pl->stage[k] = pl->out[k] < p->n_in && pl->home[pl->out[k]] == IN_PLACE ? (int8_t)n++ : -1;
        if (is_direct(pl, &s, k)) pl->home[pl->out[k]] = (int8_t)(FIRST_OUTPUT - k);
    }
    used = (1u << n) - 1;
    for (int i = 0; i < pl->n_steps; i++) {
        const step *st = pl->steps + i;
        for (int k = 0; k < st->n_src; k++)
            if (st->src[k] >= p->n_in && s.read[st->src[k]] == i && pl->home[st->src[k]] >= 0)
                used &= ~((uint64_t)1 << pl->home[st->src[k]]);
        for (int k = 0; k < st->n_dst; k++) {
            if (pl->home[st->dst[k]] <= FIRST_OUTPUT) continue;
            int at = __builtin_ctzll(~used);
            used |= (uint64_t)1 << at;
            pl->home[st->dst[k]] = (int8_t)at;
            n = at >= n ? at + 1 : n;
        }
    }
    assert(n <= MAX_BLOCKS);
    return n;
}

static void make_plan(const tn_cpu *cpu, const tn_pointwise_args *a, plan *pl)
{
    values v;
    int64_t streams = a->program->n_out;
    pl->args = a;
    pl->fns = by_isa[cpu->isa];
    pl->casts = tn_cast_table(cpu->isa);
    pl->n_steps = 0;
    list_values(a->program, &v, pl->out);
    list_steps(a->program, &v, pl);
    const int n = place_values(pl);
    for (int i = 0; i < a->program->n_in; i++) streams += a->program->kind[i] == TN_POINTWISE_FULL;
    pl->block = n > BLOCK_FLOATS / BLOCK_MAX ? BLOCK_FLOATS / n / 16 * 16 : BLOCK_MAX;
    pl->items = (tn_tile_items(cpu, a->n, (a->bf16 ? 2 : 4) * streams) + 15) / 16 * 16;
}

/* ---- running it ---- */

static void repeat_row(const float *row, int64_t d, int64_t begin, int64_t n, float *out)
{
    int64_t at = begin % d;
    for (int64_t i = 0; i < n;) {
        int64_t m = d - at < n - i ? d - at : n - i;
        memcpy(out + i, row + at, (size_t)m * sizeof *out);
        i += m;
        at = 0;
    }
}

static void run_step(const plan *pl, const step *s, float *const *dst, const float *const *src,
                     int64_t n)
{
    const tn_pointwise_fns *fns = pl->fns;
    const bool bf16 = pl->args->bf16;
    switch ((step_kind)s->kind) {
    case STEP_OP:
        fns->op[s->f](dst[0], src[0], src[s->n_src - 1], s->c, n);
        break;
    case STEP_GATE:
        (bf16 ? fns->rounded_gate : fns->gate)[s->f](dst[0], src[0], src[1], n);
        break;
    case STEP_GATE_BWD:
        (bf16 ? fns->rounded_gate_bwd : fns->gate_bwd)[s->f](dst[0], dst[1], src[0], src[1], src[2],
                                                             n);
        break;
    case STEP_NONE:
        break;
    }
    for (int k = 0; k < s->n_dst && bf16 && !s->wide; k++) pl->casts->round(dst[k], n);
}

/* Elements [begin, begin + n), n a multiple of 16; in and out point to them. */
static void run_block(const plan *pl, float *blocks, const float *const *in, float *const *out,
                      int64_t begin, int64_t n)
{
    const tn_pointwise_args *a = pl->args;
    const tn_pointwise_program *p = a->program;
    const float *at[MAX_VALUES];
    for (int i = 0; i < p->n_in; i++) {
        at[i] = pl->home[i] < 0 ? in[i] : blocks + pl->home[i] * pl->block;
        if (p->kind[i] == TN_POINTWISE_ROW)
            repeat_row(a->in[i], a->d, begin, n, blocks + pl->home[i] * pl->block);
    }
    for (int i = 0; i < pl->n_steps; i++) {
        const step *s = pl->steps + i;
        float *dst[2] = {NULL, NULL};
        const float *src[3] = {NULL, NULL, NULL};
        for (int k = 0; k < s->n_src; k++) src[k] = at[s->src[k]];
        for (int k = 0; k < s->n_dst; k++) {
            int home = pl->home[s->dst[k]];
            at[s->dst[k]] = dst[k] =
                home >= 0 ? blocks + home * pl->block : out[FIRST_OUTPUT - home];
        }
        run_step(pl, s, dst, src, n);
    }
    for (int k = 0; k < p->n_out; k++)
        if (pl->stage[k] >= 0)
            memcpy(blocks + pl->stage[k] * pl->block, at[pl->out[k]], (size_t)n * sizeof *blocks);
    for (int k = 0; k < p->n_out && !a->bf16; k++)
        if (pl->home[pl->out[k]] != FIRST_OUTPUT - k)
            memcpy(out[k], pl->stage[k] >= 0 ? blocks + pl->stage[k] * pl->block : at[pl->out[k]],
                   (size_t)n * sizeof *blocks);
}

/* The last elements, fewer than 16, in blocks filled up with zeros. */
static void run_rest(const plan *pl, float *blocks, int64_t begin, int64_t n)
{
    const tn_pointwise_args *a = pl->args;
    float x[TN_POINTWISE_INPUTS][16] = {{0}}, y[TN_POINTWISE_OUTPUTS][16];
    const float *in[TN_POINTWISE_INPUTS];
    float *out[TN_POINTWISE_OUTPUTS];
    for (int i = 0; i < a->program->n_in; i++) {
        if (a->program->kind[i] == TN_POINTWISE_FULL)
            memcpy(x[i], (const float *)a->in[i] + begin, (size_t)n * sizeof(float));
        in[i] = x[i];
    }
    for (int k = 0; k < a->program->n_out; k++) out[k] = y[k];
    run_block(pl, blocks, in, out, begin, 16);
    for (int k = 0; k < a->program->n_out; k++)
        memcpy((float *)a->out[k] + begin, y[k], (size_t)n * sizeof(float));
}

/* Blocks of fp32 between memories of bf16; the last one is filled up with zeros. */
static void run_tile_bf16(const plan *pl, int64_t begin, int64_t end)
{
    const tn_pointwise_args *a = pl->args;
    _Alignas(64) float blocks[BLOCK_FLOATS];
    float *out[TN_POINTWISE_OUTPUTS];
    const float *in[TN_POINTWISE_INPUTS] = {NULL};
    for (int64_t b = begin, n; b < end; b += n) {
        n = end - b < pl->block ? end - b : pl->block;
        const int64_t whole = (n + 15) / 16 * 16;
        for (int i = 0; i < a->program->n_in; i++) {
            float *x = blocks + pl->home[i] * pl->block;
            pl->casts->widen(x, (const uint16_t *)a->in[i] + b, n);
            memset(x + n, 0, (size_t)(whole - n) * sizeof *x);
        }
        for (int k = 0; k < a->program->n_out; k++)
            out[k] = blocks + pl->home[pl->out[k]] * pl->block;
        run_block(pl, blocks, in, out, b, whole);
        for (int k = 0; k < a->program->n_out; k++)
            pl->casts->narrow((uint16_t *)a->out[k] + b, out[k], n);
    }
}

static void run_tile(void *arg, int64_t tile, int thread)
{
    const plan *pl = arg;
    const tn_pointwise_args *a = pl->args;
    _Alignas(64) float blocks[BLOCK_FLOATS];
    const float *in[TN_POINTWISE_INPUTS];
    float *out[TN_POINTWISE_OUTPUTS];
    (void)thread;
    for (int i = 0; i < a->program->n_in; i++)
        for (int64_t k = 0; k < pl->block && a->program->kind[i] == TN_POINTWISE_SCALAR; k++)
            blocks[pl->home[i] * pl->block + k] = *(const float *)a->in[i];
    const int64_t end = tn_tile_end(a->n, pl->items, tile), rest = end % 16;
    if (a->bf16) {
        run_tile_bf16(pl, tile * pl->items, end);
        return;
    }
    for (int64_t b = tile * pl->items, n; b < end - rest; b += n) {
        n = end - rest - b < pl->block ? end - rest - b : pl->block;
        for (int i = 0; i < a->program->n_in; i++) in[i] = (const float *)a->in[i] + b;
        for (int k = 0; k < a->program->n_out; k++) out[k] = (float *)a->out[k] + b;
        run_block(pl, blocks, in, out, b, n);
    }
    if (rest) run_rest(pl, blocks, end - rest, rest);
}

void tn_pointwise_run(const tn_cpu *cpu, const tn_pointwise_args *a)
{
    plan pl;
    make_plan(cpu, a, &pl);
    tn_pool_run(cpu->pool, tn_tile_count(a->n, pl.items), run_tile, &pl);
}

void tn_pointwise_add(const tn_cpu *cpu, int64_t n, const float *a, const float *b, float *y)
{
    static const tn_pointwise_program add = {2,   1,   1,
                                             {0}, {2}, {{TN_POINTWISE_ADD, 2, 0, 1, 0, false}}};
    tn_pointwise_run(cpu, &(tn_pointwise_args){&add, n, n, {a, b}, {y}, false});
}

typedef struct move {
    int64_t n, items;
    const float *x;
    float value, *y;
} move;

static void fill_tile(void *arg, int64_t tile, int thread)
{
    const move *m = arg;
    (void)thread;
    for (int64_t i = tile * m->items, end = tn_tile_end(m->n, m->items, tile); i < end; i++)
        m->y[i] = m->value;
}

static void copy_tile(void *arg, int64_t tile, int thread)
{
    const move *m = arg;
    const int64_t begin = tile * m->items;
    (void)thread;
    memcpy(m->y + begin, m->x + begin,
           (size_t)(tn_tile_end(m->n, m->items, tile) - begin) * sizeof *m->y);
}

void tn_pointwise_fill(const tn_cpu *cpu, int64_t n, float value, float *y)
{
    move m = {n, tn_tile_items(cpu, n, 4), NULL, value, y};
    tn_pool_run(cpu->pool, tn_tile_count(n, m.items), fill_tile, &m);
}

void tn_pointwise_copy(const tn_cpu *cpu, int64_t n, const float *x, float *y)
{
    move m = {n, tn_tile_items(cpu, n, 8), x, 0, y};
    tn_pool_run(cpu->pool, tn_tile_count(n, m.items), copy_tile, &m);
}
