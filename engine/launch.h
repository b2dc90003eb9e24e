/* launch.h - a launcher's watch over its ranks (world.h starts one; tests start their own).
 *
 * NOTES
 * (1) The first bad end is the run's: its text is the page's abort, which every other rank finds in
 * its next wait. (2) Whoever has not ended GRACE_S after the first bad end is killed; so is whoever
 * has not ended comm.train_timeout_s after the first good one (a rank that was stopped while it was
 * leaving). (3) No rank outlives the launcher: the kernel kills them with it. Nothing has a name in
 * the file system.
 */
#ifndef TN_ENGINE_LAUNCH_H
#define TN_ENGINE_LAUNCH_H
#include "engine/comm_page.h"

#include <sys/types.h>

TN_C_BEGIN

enum { TN_LAUNCH_NO_START = 127 };

typedef struct tn_launch_child {
    int rank;
    bool hidden;   /* its output is kept in output_fd until it has a log file */
    int output_fd; /* -1: the launcher's own output */
    pid_t pid;     /* 0: it has ended */
    int status;    /* of waitpid */
} tn_launch_child;

typedef struct tn_launch tn_launch;
struct tn_launch {
    int n;
    char *const *argv;
    void (*become)(const tn_launch_child *c,
                   const tn_launch *l); /* what a child does; does not come back */
    void *user;
    int input_fd, control_fd; /* -1: none */
    tn_comm_page *page;
    tn_launch_child child[TN_COMM_MAX_RANKS];
    int left, signal, n_signals; /* running ranks; what was passed on */
    bool failed, one_is_done;
    double kill_at; /* 0: not decided */
};

/* Starts l->n children, waits for all and says how it went, as tn_world_launch. */
tn_status tn_launch_run(tn_launch *l, int *signal_out) TN_MUST_USE;

TN_C_END
#endif
