/* world.h - which ranks there are and which one this is; starting them on this host and watching
 * them until all have ended. */
#ifndef TN_ENGINE_WORLD_H
#define TN_ENGINE_WORLD_H
#include "engine/base/base.h"

TN_C_BEGIN

typedef struct tn_world {
    int rank, size, local_rank, local_size;
    int control_fd;   /* the page that the launcher's ranks share; -1 without a launcher */
    bool hidden;      /* the launcher shows nothing of what this rank prints */
    char master[256]; /* without a launcher: where rank 0 can be met */
    int port;
} tn_world;

/* From the launcher's variable, else torchrun's RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT,
 * else one rank. Variables that are incomplete or contradict each other are an error that prints
 * them. */
tn_status tn_world_find(tn_world *out) TN_MUST_USE;

typedef struct tn_world_launch_options {
    int ranks;
    char *const *argv;
    const char *show; /* whose output goes to the terminal: "all", "0,3"; NULL: "0" */
    bool input;       /* every rank reads all of standard input */
} tn_world_launch_options;

/* Runs this program `ranks` times with the same arguments and waits for all. The first rank that
 * ends badly, or that does not end when the others have, takes the others with it within seconds:
 * the error names it and why, and each rank's flight recorder lies in the run's folder.
 * TN_BAD_INPUT: refused by a rank; the text has no rank's name when all say it. SIGINT and SIGTERM
 * are passed on, a second one kills; TN_STOPPED and *signal_out when the ranks have stopped for it.
 */
tn_status tn_world_launch(const tn_world_launch_options *o, int *signal_out) TN_MUST_USE;

/* A rank that fails says so to its launcher, once. True: the launcher prints it, on the same
 * terminal. */
bool tn_world_failed(const tn_world *w, const char *text);

/* Where the run writes: each rank's output is in FOLDER/logs/rank_R.log from now on (a shown rank's
 * stdout also where it went before; a hidden rank's log begins with what it had printed), recorders
 * of an earlier run are removed. Collective in effect: rank 0 before any other. Nothing without a
 * launcher. */
tn_status tn_world_log(const tn_world *w, const char *folder) TN_MUST_USE;

/* Threads of one rank: its share of the cores, at least one. */
int tn_world_threads(const tn_world *w);

TN_C_END
#endif
