/* train.h - the training loop of one rank: batches in, a program replayed, numbers out.
 *
 * A step fills the inputs, runs the program up to the update, looks at loss and gradient norm, and
 * only then updates: a step whose loss or norm is not finite leaves the parameters as they were. No
 * step allocates. */
#ifndef TN_ENGINE_TRAIN_H
#define TN_ENGINE_TRAIN_H
#include "engine/data.h"
#include "engine/exec.h"
#include "engine/lr.h"

TN_C_BEGIN

/* One step, as it is logged. */
typedef struct tn_train_report {
    int64_t step;    /* 1-based */
    double loss;     /* sum over the step's valid tokens / their number, before the update */
    float grad_norm; /* 2-norm before clipping */
    double lr_factor;
    int64_t valid_tokens, tokens; /* of the step; of the run so far, padding included */
    double step_s, data_s;        /* wall time of the step; of it, making batches */
} tn_train_report;

/* Who looks at a step from inside (engine/timeline.h). */
typedef struct tn_train_watch {
    void *user;
    bool (*begin)(void *user, int64_t step);    /* 1-based; false: not at this one */
    tn_exec_hook entry;                         /* behind every entry */
    void (*mark)(void *user, const char *what); /* between entries: what has just been done */
    tn_status (*end)(void *user, int64_t step);
} tn_train_watch;

typedef struct tn_train_options {
    tn_exec *train, *eval;            /* eval NULL: no validation */
    tn_comm *comm;                    /* NULL: one rank */
    const tn_data *data, *validation; /* validation may be data itself */
    int64_t steps, global_batch, seq;
    tn_lr lr;
    int64_t validate_every, validate_steps; /* 0: never; -1 steps: a whole pass */
    const tn_train_watch *watch;            /* NULL: none */
    volatile int *stop; /* non-zero: end behind the current step; the signal's number */
    void *user;
    tn_status (*on_step)(void *user, const tn_train_report *r);
    tn_status (*on_validation)(void *user, int64_t step, double loss, int64_t tokens,
                               double seconds);
} tn_train_options;

/* TN_STOPPED: *o->stop was set. TN_FAILED with the step and the first bad tensor: a loss or norm
 * that is not finite. */
tn_status tn_train_run(const tn_train_options *o) TN_MUST_USE;

/* Mean loss over the valid tokens of `steps` batches of the split (-1: one pass). */
tn_status tn_train_evaluate(tn_exec *e, const tn_data *data, tn_data_split split, int64_t steps,
                            double *loss_out, int64_t *tokens_out) TN_MUST_USE;

/* What a program that has run left: mean loss, norm, valid tokens. */
double tn_train_loss(const tn_exec *e);
float tn_train_grad_norm(const tn_exec *e);
int64_t tn_train_valid_tokens(const tn_exec *e);

/* Fills the inputs of step `step`. */
tn_status tn_train_load(tn_exec *e, const tn_data *data, tn_data_split split,
                        int64_t step) TN_MUST_USE;

TN_C_END
#endif
