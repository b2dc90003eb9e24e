/* Any bytes: refused with clear lines, or lists that print and read back the same and that the
 * validator answers for. */
#include <stdlib.h>
#include <string.h>

#include "graph/schedule.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
    if (!ok) abort();
}

static void again(const tn_schedule *s)
{
    tn_text first = {0}, second = {0};
    tn_schedule *back = NULL;
    tn_schedule_print(s, &first);
    must(tn_text_end(&first) == TN_OK);
    must(tn_schedule_parse("again", tn_text_str(&first), first.n_bytes, &back) == TN_OK);
    tn_schedule_print(back, &second);
    must(tn_text_end(&second) == TN_OK && strcmp(tn_text_str(&first), tn_text_str(&second)) == 0);
    tn_schedule_destroy(back);
    tn_text_fini(&first);
    tn_text_fini(&second);
}

static void judge(const tn_schedule *s)
{
    tn_schedule_report r;
    if (tn_schedule_simulate(s, NULL, true, &r) != TN_OK) {
        must(tn_error_text()[0] != 0);
        return;
    }
    int64_t live = 0;
    for (int32_t i = 0; i < s->n_stages; i++) {
        must(r.slots[i] >= 1 && r.slots[i] <= s->n_microbatches);
        live += r.slots[i];
    }
    must(r.makespan >= r.ideal &&
         r.ideal == 3 * (int64_t)s->n_microbatches * (s->n_stages / s->n_ranks));
    must(r.span_bubble >= 0 && r.span_bubble <= r.step_bubble && r.peak >= 1 && r.peak <= live);
    tn_schedule_report_fini(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tn_schedule *s = NULL;
    if (tn_schedule_parse("fuzz", (const char *)data, (int64_t)size, &s) == TN_OK) {
        must(s && s->n_stages % s->n_ranks == 0);
        again(s);
        judge(s);
        tn_schedule_destroy(s);
    } else {
        must(!s && strncmp(tn_error_text(), "fuzz: ", 6) == 0);
    }
    tn_error_clear();
    return 0;
}
