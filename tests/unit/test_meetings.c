/* test_meetings.c - exchanges that share a meeting, and the sequences of meetings of all ranks:
 * what is built is sound; what is damaged is refused with the ranks and the meeting that differ. */
#include "graph/meetings.h"

#include "graph/traffic.h"
#include "tests/programs.h"

static const char *const layouts[][3] = {
    {"parallelism.data_parallel_shard_degree=4", "training.global_batch_size=24"},
    {"parallelism.tensor_parallel_degree=2", "training.global_batch_size=24"},
    {"parallelism.tensor_parallel_degree=4", "training.global_batch_size=12",
     "parallelism.enable_sequence_parallel=false"},
    {"parallelism.data_parallel_replicate_degree=2", "training.global_batch_size=48"},
    {"parallelism.data_parallel_shard_degree=4", "training.global_batch_size=48",
     "parallelism.fsdp_reshard_after_forward=never"},
    {"parallelism.data_parallel_shard_degree=4", "training.global_batch_size=24",
     "parallelism.fsdp_reshard_after_forward=2"}};

static tn_program *build(int layout, int rank)
{
    wanted w = {.recipe = tiny_recipe, .world = 4, .rank = rank};
    tn_program *p = NULL;
    for (int i = 0; i < 3; i++) w.overrides[i] = layouts[layout][i];
    TN_CHECK_OK(build_program(&w, &p));
    return p;
}

/* Buckets are as long as they may be: never more meetings than exchanges, fewer where parameters
 * are gathered. */
static void joined(void)
{
    for (int i = 0; i < TN_COUNT(layouts); i++) {
        tn_program *p = build(i, i % 4);
        int64_t exchanges = 0, begins = 0, ends = 0, gathers = 0, buckets = 0;
        if (!p) return;
        for (int64_t k = 0; k < p->n_entries; k++) {
            tn_traffic_move m;
            const tn_entry *e = &p->entries[k];
            bool meets = tn_traffic_of_node(p->g, &p->g->nodes[e->node], &m);
            TN_CHECK(meets || !e->meets);
            exchanges += meets;
            bool gather = meets && e->stream == TN_STREAM_GATHER;
            gathers += gather;
            buckets += gather && e->meets & TN_MEETS_BEFORE;
            begins += e->meets & TN_MEETS_BEFORE;
            ends += (e->meets & TN_MEETS_BEHIND) != 0;
        }
        TN_CHECK(begins == ends && begins > 0 && begins <= exchanges);
        TN_CHECK_MSG(3 * buckets <= gathers, "%d gathers in %d meetings", (int)gathers,
                     (int)buckets);
        TN_CHECK_OK(tn_meetings_check_joined(p));
        tn_program_destroy(p);
    }
}

static void badly_joined(void)
{
    int64_t refused = 0;
    tn_program *p = build(0, 0);
    if (!p) return;
    for (int64_t i = 0; i < p->n_entries; i++) {
        tn_entry kept = p->entries[i];
        for (int bit = 1; bit <= 2; bit++) { /* a meeting without its beginning, or its end */
            if (!(kept.meets & bit)) continue;
            p->entries[i].meets = (uint8_t)(kept.meets & ~bit);
            tn_status st = tn_meetings_check_joined(p);
            TN_CHECK_MSG(st == TN_FAILED && !strncmp(tn_error_text(), "program: ", 9), "entry %d",
                         (int)i);
            tn_error_clear();
            refused++;
        }
        p->entries[i].meets = 0;
        TN_CHECK((tn_meetings_check_joined(p) != TN_OK) == (kept.meets != 0));
        tn_error_clear();
        if (!kept.meets) {
            p->entries[i].meets = TN_MEETS_BEFORE | TN_MEETS_BEHIND;
            tn_status st = tn_meetings_check_joined(p);
            bool exchange = tn_node_is_exchange(p->g, &p->g->nodes[kept.node]);
            TN_CHECK(exchange || st == TN_FAILED);
            tn_error_clear();
        }
        p->entries[i] = kept;
    }
    TN_CHECK(refused > 20);
    /* one that writes where another of its meeting reads */
    for (int64_t i = 0; i + 1 < p->n_entries; i++) {
        if (p->entries[i].meets & TN_MEETS_BEHIND || !p->entries[i].meets) continue;
        const tn_node *a = &p->g->nodes[p->entries[i].node],
                      *b = &p->g->nodes[p->entries[i + 1].node];
        tn_place kept = p->places[b->out0];
        p->places[b->out0] = p->places[tn_node_in(p->g, a, 0)];
        TN_CHECK_FAILS(tn_meetings_check_joined(p), TN_FAILED,
                       "a rank would overwrite what another still reads in the same meeting");
        p->places[b->out0] = kept;
        break;
    }
    TN_CHECK_OK(tn_meetings_check_joined(p));
    tn_program_destroy(p);
}

static void sequences(void)
{
    for (int i = 0; i < TN_COUNT(layouts); i++) {
        tn_program *own[4];
        const tn_program *all[4];
        for (int r = 0; r < 4; r++) all[r] = own[r] = build(i, r);
        if (!own[0] || !own[1] || !own[2] || !own[3]) return;
        TN_CHECK_OK(tn_meetings_check(all, 4));
        TN_CHECK_FAILS(tn_meetings_check(all, 3), TN_FAILED, "program: 3 programs for 4 ranks");
        /* one exchange less on one rank; two that trade places; one step longer */
        int64_t n = own[2]->n_entries, dropped = 0, swapped = 0, last = -1, compute = 0;
        while (own[2]->entries[compute].stream != TN_STREAM_COMPUTE) compute++;
        for (int64_t k = 0; k < n; k++) {
            tn_traffic_move m;
            tn_entry kept = own[2]->entries[k];
            if (!tn_traffic_of_node(own[2]->g, &own[2]->g->nodes[kept.node], &m)) continue;
            own[2]->entries[k] = own[2]->entries[compute];
            tn_status st = tn_meetings_check(all, 4);
            const char *said = tn_error_text();
            TN_CHECK_MSG(st == TN_FAILED && strstr(said, "ranks ") && strstr(said, "meet over") &&
                             strstr(said, tn_traffic_axes(m.axes).s),
                         "'%s'", st ? said : "the same");
            tn_error_clear();
            dropped++;
            own[2]->entries[k] = kept;
            if (last >= 0) {
                own[2]->entries[k].node = own[2]->entries[last].node;
                own[2]->entries[last].node = kept.node;
                TN_CHECK_FAILS(tn_meetings_check(all, 4), TN_FAILED, "program: ranks ");
                own[2]->entries[last].node = own[2]->entries[k].node;
                own[2]->entries[k].node = kept.node;
                swapped++;
            }
            last = k;
        }
        TN_CHECK(dropped > 10 && swapped > 10);
        own[2]->g->n_microbatches++;
        TN_CHECK_FAILS(tn_meetings_check(all, 4), TN_FAILED, "in loops of other lengths");
        own[2]->g->n_microbatches--;
        TN_CHECK_OK(tn_meetings_check(all, 4));
        for (int r = 0; r < 4; r++) tn_program_destroy(own[r]);
    }
}

int main(void)
{
    joined();
    badly_joined();
    sequences();
    return tn_test_done("meetings");
}
