/* schedule_table.c - lists as rows of cells: <stage><op><microbatch>, as TorchTitan's CSV files
 * have them. */
#include "graph/schedule.h"

#include "graph/schedule_faults.h"

#include <string.h>

enum { MAX_BYTES = 1 << 29 }; /* rows and columns fit 32 bits */

typedef struct cell {
    int32_t rank;
    tn_schedule_action action;
} cell;

typedef struct table {
    const char *where, *text, *end;
    tn_schedule_faults faults;
    int32_t row, column;
    int64_t n_cells, capacity;
    cell *cells; /* that are not idle, row by row */
    int32_t n_stages, n_microbatches;
} table;

static const char OPS[] = "FIWB"; /* by kind */

static bool blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* What stands in a cell, fit for a message. */
static tn_text_short shown(const char *text, size_t n)
{
    tn_text_short t = {0};
    size_t most = 24, i = 0;
    for (; i < n && i < most; i++) t.s[i] = text[i] >= ' ' && text[i] <= '~' ? text[i] : '?';
    if (n > most) memcpy(t.s + i, "...", 4);
    return t;
}

/* The digits at *p; false: none, or beyond what a schedule can hold. */
static bool number(const char **p, const char *end, int32_t *out)
{
    const char *begin = *p;
    int32_t n = 0;
    for (; *p < end && **p >= '0' && **p <= '9'; (*p)++) {
        n = 10 * n + (**p - '0');
        if (n > TN_SCHEDULE_MAX_CELLS) return false;
    }
    *out = n;
    return *p > begin;
}

/* NULL, or what is wrong with it. */
static const char *read_cell(const char *p, const char *end, tn_schedule_action *out)
{
    const char *op = NULL;
    if (!number(&p, end, &out->stage))
        return "it must begin with the stage, a number below 16777216";
    if (p < end && *p) op = strchr(OPS, *p);
    if (!op)
        return "behind the stage stands F (forward), B (whole backward), I (input gradient) or W "
               "(weight gradient)";
    out->kind = (uint8_t)(op - OPS);
    p++;
    if (!number(&p, end, &out->microbatch))
        return "behind the op stands the microbatch, a number below 16777216";
    return p == end ? NULL : "nothing may stand behind the microbatch; cells are divided by commas";
}

static tn_status take_cell(table *t, const char *p, const char *end)
{
    cell c = {.rank = t->row};
    while (p < end && blank(*p)) p++;
    while (end > p && blank(end[-1])) end--;
    t->column++;
    if (p == end) return TN_OK;
    const char *fault = read_cell(p, end, &c.action);
    if (fault) {
        tn_schedule_fault(&t->faults, "row %d, cell %d: '%s': %s", t->row + 1, t->column,
                          shown(p, (size_t)(end - p)).s, fault);
        return TN_OK;
    }
    if (c.action.stage >= t->n_stages) t->n_stages = c.action.stage + 1;
    if (c.action.microbatch >= t->n_microbatches) t->n_microbatches = c.action.microbatch + 1;
    TN_TRY(tn_grow((void **)&t->cells, &t->capacity, t->n_cells + 1, sizeof *t->cells));
    t->cells[t->n_cells++] = c;
    return TN_OK;
}

/* One row; *p moves behind its newline. */
static tn_status take_row(table *t, const char **p)
{
    const char *end = memchr(*p, '\n', (size_t)(t->end - *p)), *comma = NULL;
    if (!end) end = t->end;
    int64_t before = t->n_cells, faults = t->faults.n;
    t->column = 0;
    for (const char *at = *p;; at = comma + 1) {
        comma = memchr(at, ',', (size_t)(end - at));
        TN_TRY(take_cell(t, at, comma ? comma : end));
        if (!comma) break;
    }
    *p = end < t->end ? end + 1 : end;
    if (t->n_cells > before || t->faults.n > faults) {
        t->row++;
        return TN_OK;
    }
    if (*p == t->end && t->column == 1) return TN_OK; /* the empty last row */
    tn_schedule_fault(&t->faults,
                      "row %d has no action; every rank has its row, and every row its stages",
                      t->row + 1);
    t->row++;
    return TN_OK;
}

/* Where each stage is, by its first cell. */
static void place_stages(table *t, int32_t *rank_of, int32_t *n_of)
{
    for (int32_t i = 0; i < t->n_stages; i++) rank_of[i] = -1;
    for (int64_t i = 0; i < t->n_cells; i++) {
        cell c = t->cells[i];
        int32_t *r = &rank_of[c.action.stage];
        if (*r < 0) {
            *r = c.rank;
            n_of[c.rank]++;
        } else if (*r != c.rank) {
            tn_schedule_fault(
                &t->faults, "row %d has %s, but stage %d stands in row %d; a stage is on one rank",
                c.rank + 1, tn_schedule_text(c.action).s, c.action.stage, *r + 1);
        }
    }
    for (int32_t i = 0; i < t->n_stages; i++)
        if (rank_of[i] < 0)
            tn_schedule_fault(
                &t->faults,
                "stage %d has no action, but there is one of stage %d; stages are counted from 0",
                i, t->n_stages - 1);
    for (int32_t r = 1; t->faults.n == 0 && r < t->row; r++)
        if (n_of[r] != n_of[0])
            tn_schedule_fault(&t->faults,
                              "row %d has actions of %d stages, row 1 of %d; ranks have the same "
                              "number of stages",
                              r + 1, n_of[r], n_of[0]);
}

static tn_status make(table *t, tn_schedule **out)
{
    tn_schedule *s = NULL;
    void *mem = NULL;
    if ((int64_t)t->n_stages * t->n_microbatches > t->n_cells)
        TN_FAIL(TN_BAD_INPUT,
                "%s: %d stages and %d microbatches need %lld actions or more, the table has %lld; "
                "stages and "
                "microbatches are counted from 0, without gaps",
                t->where, t->n_stages, t->n_microbatches,
                2 * (long long)t->n_stages * t->n_microbatches, (long long)t->n_cells);
    TN_TRY(tn_alloc(((size_t)t->n_stages + (size_t)t->row) * sizeof(int32_t), &mem));
    int32_t *rank_of = mem;
    place_stages(t, rank_of, rank_of + t->n_stages);
    tn_status st = tn_schedule_faults_end(&t->faults);
    if (st == TN_OK) st = tn_schedule_create(t->row, t->n_stages, t->n_microbatches, rank_of, &s);
    tn_free(mem);
    for (int64_t i = 0; st == TN_OK && i < t->n_cells; i++)
        st = tn_schedule_add(s, t->cells[i].rank, t->cells[i].action);
    if (st == TN_OK) *out = s;
    else tn_schedule_destroy(s);
    return st;
}

tn_status tn_schedule_parse(const char *where, const char *text, int64_t n_bytes, tn_schedule **out)
{
    table t = {.where = where, .text = text, .end = text + n_bytes, .faults = {.where = where}};
    tn_status st = TN_OK;
    const char *p = text;
    if (n_bytes > MAX_BYTES)
        TN_FAIL(TN_BAD_INPUT, "%s: %s; at most %s", where, tn_text_bytes(n_bytes).s,
                tn_text_bytes(MAX_BYTES).s);
    while (st == TN_OK && p < t.end) st = take_row(&t, &p);
    if (st == TN_OK) st = tn_schedule_faults_end(&t.faults);
    if (st == TN_OK && t.n_cells == 0)
        st = tn_error(TN_BAD_INPUT,
                      "%s: no action; a row per rank, its cells <stage><op><microbatch>", where);
    if (st == TN_OK) st = make(&t, out);
    tn_free(t.cells);
    return st;
}

void tn_schedule_print(const tn_schedule *s, tn_text *out)
{
    for (int32_t r = 0; r < s->n_ranks; r++) {
        for (int64_t i = 0; i < s->lists[r].n; i++)
            tn_text_add(out, "%s%s", i ? "," : "", tn_schedule_text(s->lists[r].actions[i]).s);
        tn_text_add(out, "\n");
    }
}
