/* comm.h - the ranks of a run on one host: shared regions of memory, groups, and the point where
 * all members of a group meet.
 *
 * Data moves by reading a peer's region between two syncs: the first says that what is read has
 * been written, the second that it may be overwritten. A wait spins for a few microseconds, then
 * sleeps on a futex, so that more ranks than cores work. Every wait ends: with the others, with the
 * deadline, or with the abort of a rank, which all others learn by its name.
 */
#ifndef TN_ENGINE_COMM_H
#define TN_ENGINE_COMM_H
#include "engine/world.h"

#include <stdatomic.h>

TN_C_BEGIN

typedef struct tn_comm tn_comm;

enum { TN_COMM_MAX_RANKS = 64, TN_COMM_MAX_REGIONS = 8 };

/* Collective; a world of one rank starts nothing. */
tn_status tn_comm_open(const tn_world *w, double init_timeout_s, tn_comm **out) TN_MUST_USE;
void tn_comm_close(tn_comm *c);                       /* NULL is fine */
void tn_comm_set_timeout(tn_comm *c, double seconds); /* comm.train_timeout_s */
int tn_comm_rank(const tn_comm *c);
int tn_comm_size(const tn_comm *c);

/* Collective: region number `region` of this rank, zeroed pages that peers map too; bytes may
 * differ by rank. It lives until tn_comm_close. */
tn_status tn_comm_region(tn_comm *c, int region, int64_t bytes, void **mine_out) TN_MUST_USE;
void *tn_comm_peer(const tn_comm *c, int rank,
                   int region); /* where that rank's region is mapped here */

/* Bytes of the peers' regions that this process has looked at: the system counts them as its own.
 */
int64_t tn_comm_peers_resident(const tn_comm *c);

/* A group is its list of ranks, ascending, this one among them; the same list gives the same group.
 */
tn_status tn_comm_group(tn_comm *c, const int *ranks, int n, int *group_out) TN_MUST_USE;

/* All members have arrived; what they wrote before is visible. `what` and `bytes` are for the
 * flight recorder and for errors. */
tn_status tn_comm_sync(tn_comm *c, int group, const char *what, int64_t bytes) TN_MUST_USE;
double tn_comm_waited_s(const tn_comm *c); /* in all syncs and awaits so far */
enum { TN_COMM_WORLD = 0 };                /* the group of all ranks */

/* A flag in a shared region. post: what this rank wrote before is visible to who sees the value,
 * and who waits for it wakes. await: until the flag has that value; `rank` posts it. */
void tn_comm_post(tn_comm *c, _Atomic uint32_t *flag, uint32_t value, int rank, const char *what,
                  int64_t bytes);
tn_status tn_comm_await(tn_comm *c, _Atomic uint32_t *flag, uint32_t value, int rank,
                        const char *what, int64_t bytes) TN_MUST_USE;

/* All ranks hold the same value, or TN_BAD_INPUT names two that do not. */
tn_status tn_comm_agree(tn_comm *c, const char *what, uint64_t value) TN_MUST_USE;

/* The largest of the ranks' numbers. */
tn_status tn_comm_most(tn_comm *c, const char *what, int value, int *out) TN_MUST_USE;

/* The last meetings of this rank as JSON: what, ranks, bytes, when, and which one it waits in. A
 * launcher writes them itself. */
tn_status tn_comm_record_write(const tn_comm *c, const char *path) TN_MUST_USE;

/* The first abort is the run's: every rank's next wait fails with "rank R: text". */
void tn_comm_abort(tn_comm *c, const char *text);

TN_C_END
#endif
