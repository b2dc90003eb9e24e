/* world.h - which ranks there are and which one this is; starting them on this host. */
#ifndef TN_ENGINE_WORLD_H
#define TN_ENGINE_WORLD_H
#include "engine/base/base.h"

TN_C_BEGIN

typedef struct tn_world {
    int rank, size, local_rank, local_size;
    int control_fd; /* the page that the launcher's ranks share; -1 in a world of one */
} tn_world;

/* From the launcher's variables, else one rank. */
tn_status tn_world_find(tn_world *out) TN_MUST_USE;

/* Runs this program n times with the same arguments and waits. The first rank that ends badly takes the others with it: the
 * error names it and why (TN_FAILED, or its own status when it refused the input). */
tn_status tn_world_launch(int n, char *const *argv) TN_MUST_USE;

/* Threads of one rank: its share of the cores, at least one. */
int tn_world_threads(const tn_world *w);

TN_C_END
#endif
