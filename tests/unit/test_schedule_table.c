/* Schedules as tables: what is printed reads back the same, and every way a table can be wrong has
 * its line. */
#include "graph/schedule.h"
#include "tests/test.h"

static tn_status parse(const char *text, tn_schedule **out)
{
    return tn_schedule_parse("s.csv", text, (int64_t)strlen(text), out);
}

static bool same(const tn_schedule *a, const tn_schedule *b)
{
    if (a->n_ranks != b->n_ranks || a->n_stages != b->n_stages ||
        a->n_microbatches != b->n_microbatches)
        return false;
    for (int32_t i = 0; i < a->n_stages; i++)
        if (a->rank_of[i] != b->rank_of[i]) return false;
    for (int32_t r = 0; r < a->n_ranks; r++) {
        if (a->lists[r].n != b->lists[r].n) return false;
        for (int64_t i = 0; i < a->lists[r].n; i++) {
            tn_schedule_action x = a->lists[r].actions[i], y = b->lists[r].actions[i];
            if (x.kind != y.kind || x.stage != y.stage || x.microbatch != y.microbatch)
                return false;
        }
    }
    return true;
}

/* Every named schedule, printed and read. */
static void test_round_trip(void)
{
    const tn_schedule_type *type = NULL;
    for (int i = 0; (type = tn_schedule_type_at(i)) != NULL; i++)
        for (int32_t p = 1; p <= 6; p++) {
            tn_schedule_options o = {type->name, p, type->default_stages, 2 * p, NULL};
            tn_schedule *s = NULL, *back = NULL;
            tn_text t = {0}, again = {0};
            if (!TN_CHECK_OK(tn_schedule_generate(&o, &s))) return;
            tn_schedule_print(s, &t);
            TN_CHECK_OK(tn_text_end(&t));
            if (TN_CHECK_OK(parse(tn_text_str(&t), &back))) {
                TN_CHECK(same(s, back));
                TN_CHECK_OK(tn_schedule_check(back, true));
                tn_schedule_print(back, &again);
                TN_CHECK_TEXT(tn_text_str(&again), tn_text_str(&t));
            }
            tn_schedule_destroy(s);
            tn_schedule_destroy(back);
            tn_text_fini(&t);
            tn_text_fini(&again);
        }
}

static void prints_as(const char *text, const char *want)
{
    tn_schedule *s = NULL;
    tn_text t = {0};
    if (!TN_CHECK_OK(parse(text, &s))) return;
    tn_schedule_print(s, &t);
    TN_CHECK_TEXT(tn_text_str(&t), want);
    tn_text_fini(&t);
    tn_schedule_destroy(s);
}

static void test_forms(void)
{
    prints_as("0F0,0B0", "0F0,0B0\n");
    prints_as(" 0F0 ,\t0I0,, 0W0,\r\n",
              "0F0,0I0,0W0\n"); /* idle cells, blanks, the ends of lines of other systems */
    prints_as("0F0,0B0,,\n,1F0,1B0\n", "0F0,0B0\n1F0,1B0\n");
    prints_as("1F0,1B0\n0F0,0B0", "1F0,1B0\n0F0,0B0\n"); /* stages where the table has them */
    prints_as("0F0,0F1,0B0,0B1\n\n", "0F0,0F1,0B0,0B1\n");
    prints_as("00F000,0B00", "0F0,0B0\n");
}

static void test_refused(void)
{
    static const struct {
        const char *text, *part;
    } rows[] = {
        {"", "s.csv: no action; a row per rank, its cells <stage><op><microbatch>"},
        {"\n", "s.csv: no action"},
        {",,,\n", "s.csv: row 1 has no action; every rank has its row"},
        {"0F0,0B0\n\n1F0,1B0\n", "s.csv: row 2 has no action"},
        {"0F0,0B0\n,\n", "s.csv: row 2 has no action"},
        {"0F0,0B0\n\n\n", "s.csv: row 2 has no action"},
        {"F0", "s.csv: row 1, cell 1: 'F0': it must begin with the stage, a number below 16777216"},
        {"0F0,-1F0", "row 1, cell 2: '-1F0': it must begin with the stage"},
        {"16777217F0", "row 1, cell 1: '16777217F0': it must begin with the stage"},
        {"99999999999999999999F0", "it must begin with the stage"},
        {"0", "row 1, cell 1: '0': behind the stage stands F (forward), B (whole backward), I "
              "(input gradient) or W"},
        {"0F0\n0X0", "row 2, cell 1: '0X0': behind the stage stands F"},
        {"0f0", "'0f0': behind the stage"},
        {"0UNSHARD", "'0UNSHARD': behind the stage"},
        {"(0F0;1B0)OVERLAP_F_B", "'(0F0;1B0)OVERLAP_F_B': it must begin with the stage"},
        {"0F", "'0F': behind the op stands the microbatch, a number below 16777216"},
        {"0FF", "'0FF': behind the op stands the microbatch"},
        {"0F4294967296", "'0F4294967296': behind the op stands the microbatch"},
        {"0F0 0B0",
         "'0F0 0B0': nothing may stand behind the microbatch; cells are divided by commas"},
        {"0F0;0B0", "'0F0;0B0': nothing may stand behind"},
        {"0F0_RECV_AND_OTHER_WORDS_THAT_ARE_LONG", "'0F0_RECV_AND_OTHER_WORDS...': nothing may"},
        {"0F\x01\xff", "'0F\?\?': behind the op"},
        {"0F0,0B0\n0F1,1F0",
         "s.csv: row 2 has 0F1, but stage 0 stands in row 1; a stage is on one rank"},
        {"0F0,0B0\n2F0,2B0",
         "s.csv: stage 1 has no action, but there is one of stage 2; stages are counted from 0"},
        {"0F0,1F0,1B0,0B0,2F0,2B0\n3F0,3B0,4F0,4B0",
         "s.csv: row 2 has actions of 2 stages, row 1 of 3"},
        {"0F0,0B0\n7F3,7B3", "s.csv: 8 stages and 4 microbatches need 64 actions or more, the "
                             "table has 4; stages and microbatches "
                             "are counted from 0, without gaps"},
        {"16777216F0", "16777217 stages and 1 microbatches need"},
        {"0F16777216", "1 stages and 16777217 microbatches need"},
    };
    tn_schedule *s = NULL;
    for (int i = 0; i < TN_COUNT(rows); i++)
        TN_CHECK_FAILS(parse(rows[i].text, &s), TN_BAD_INPUT, rows[i].part);
    TN_CHECK_FAILS(tn_schedule_parse("s.csv", "0F0\0,0B0", 8, &s), TN_BAD_INPUT,
                   "'0F0?': nothing may stand behind");
    TN_CHECK_FAILS(tn_schedule_parse("s.csv", "0\0000", 3, &s), TN_BAD_INPUT,
                   "'0?0': behind the stage");
    TN_CHECK_FAILS(tn_schedule_parse("s.csv", "", INT64_C(1) << 30, &s), TN_BAD_INPUT,
                   "s.csv: 1.00 GiB; at most 512 MiB");
    /* All at once. */
    TN_CHECK(parse("x,0F0,y\n,z", &s) == TN_BAD_INPUT);
    TN_CHECK_TEXT(
        tn_error_text(),
        "s.csv: row 1, cell 1: 'x': it must begin with the stage, a number below 16777216\n"
        "s.csv: row 1, cell 3: 'y': it must begin with the stage, a number below 16777216\n"
        "s.csv: row 2, cell 2: 'z': it must begin with the stage, a number below 16777216");
    tn_error_clear();
    TN_CHECK(!s);
}

/* A table that reads well is still the validator's business. */
static void test_checked_later(void)
{
    static const struct {
        const char *text, *part;
    } rows[] = {
        {"0F0,0B0,0F1", "rank 0: stage 0 has no I or B (input gradient) of microbatch 1"},
        {"0F0,0I0", "rank 0: stage 0 has no W or B (weight gradient) of microbatch 0"},
        {"0B0,0W0",
         "rank 0, action 2: 0W0; the weight gradient of stage 0, microbatch 0 is action 1 already"},
        {"0F0,0B0,0I0",
         "rank 0, action 3: 0I0; the input gradient of stage 0, microbatch 0 is action 2 already"},
        {"0F0,0W0,0I0", "the weight gradient of stage 0, microbatch 0 (action 2) comes before its "
                        "input gradient (action 3)"},
        {"0F0,0F1,0B1,0B0",
         "comes before that of microbatch 0 (action 4); canonical sums add in the order of rows"},
    };
    for (int i = 0; i < TN_COUNT(rows); i++) {
        tn_schedule *s = NULL;
        if (TN_CHECK_OK(parse(rows[i].text, &s)))
            TN_CHECK_FAILS(tn_schedule_check(s, true), TN_BAD_INPUT, rows[i].part);
        tn_schedule_destroy(s);
    }
}

static void test_fits(void)
{
    tn_schedule *s = NULL;
    TN_CHECK_OK(parse("0F0,0B0\n1F0,1B0\n", &s));
    TN_CHECK_OK(tn_schedule_fits(s, "s.csv", 2, 1));
    TN_CHECK_FAILS(tn_schedule_fits(s, "s.csv", 4, 1), TN_BAD_INPUT,
                   "s.csv: 2 rows for parallelism.pipeline_parallel_degree = 4; one row per rank");
    TN_CHECK_FAILS(tn_schedule_fits(s, "s.csv", 3, 8), TN_BAD_INPUT,
                   "\ns.csv: 1 microbatches, the recipe makes 8");
    tn_schedule_destroy(s);
}

static tn_status parse_all(void *text)
{
    tn_schedule *s = NULL;
    TN_TRY(parse(text, &s));
    tn_schedule_destroy(s);
    return TN_OK;
}

int main(void)
{
    test_round_trip();
    test_forms();
    test_refused();
    test_checked_later();
    test_fits();
    TN_CHECK(tn_test_each_alloc(parse_all, (void *)"0F0,0B0\n1F0,1B0\n") >= 6);
    return tn_test_done("schedule_table");
}
