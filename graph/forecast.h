/* forecast.h - how long a step takes, from the programs of all pipeline ranks: every rank walks its
 * actions, a segment begins when what it receives is there (graph/pipeline.h), and lasts what its
 * nodes cost on the machine's streams (graph/cost.h). One program without a pipeline is one class
 * that never waits. */
#ifndef TN_GRAPH_FORECAST_H
#define TN_GRAPH_FORECAST_H
#include "graph/cost.h"
#include "graph/program.h"

TN_C_BEGIN

typedef struct tn_forecast_class { /* the ranks of one pipeline rank */
    double compute_s, exchange_s;  /* in a step */
    double busy_s, idle_s;         /* among the microbatches: at work, waiting for other stages */
    double outside_s;              /* in front of the microbatches and behind them */
} tn_forecast_class;

typedef struct tn_forecast {
    double seconds; /* of the step */
    double
        bubble; /* the microbatches' time beyond the work of the busiest class, as a share of it */
    int n, slowest; /* classes; which one is busiest */
    tn_forecast_class *classes;
} tn_forecast;

/* programs: one of each pipeline rank; the classes lie in `arena`. */
tn_status tn_forecast_make(tn_program *const *programs, int n, const tn_cost_machine *m,
                           tn_arena *arena, tn_forecast *out) TN_MUST_USE;

TN_C_END
#endif
