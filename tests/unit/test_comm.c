/* Ranks that meet: random exchanges in random groups give what they should, and a rank that is
 * killed, stopped, gives up or leaves, in any phase, is named by all others before the deadline is
 * long over. */
#include "engine/base/file.h"
#include "engine/comm.h"
#include "tests/ranks.h"
#include "tests/scratch.h"

#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <time.h>

/* ------------------------------------------------------------ exchanges */

enum { STEPS = 300, WORDS = 4096 };

static uint32_t mix(uint32_t a, uint32_t b)
{
    uint32_t h = a * 2654435761u + b * 2246822519u + 374761393u;
    h ^= h >> 15;
    return h * 3266489917u ^ h >> 13;
}

/* Every rank draws the same groups from the same numbers; who is in one writes, meets, checks all
 * members' words, meets. */
static tn_status exchange(tn_comm *c, int region, uint32_t seed)
{
    int me = tn_comm_rank(c), n = tn_comm_size(c);
    void *mine;
    TN_TRY(tn_comm_region(c, region, (int64_t)(WORDS + me) * 4, &mine)); /* sizes differ */
    for (uint32_t step = 0; step < STEPS; step++) {
        int ranks[TN_COMM_MAX_RANKS], k = 0, group;
        bool in = false;
        uint32_t draw = mix(seed, step), size = 1 + draw % WORDS;
        for (int r = 0; r < n; r++)
            if (step % 7 == 0 || mix(draw, (uint32_t)r) & 1) {
                ranks[k++] = r;
                in |= r == me;
            }
        if (!in) continue;
        TN_TRY(tn_comm_group(c, ranks, k, &group));
        for (uint32_t i = 0; i < size; i++) ((uint32_t *)mine)[i] = mix(step, (uint32_t)me + i);
        TN_TRY(tn_comm_sync(c, group, "write", size));
        for (int j = 0; j < k; j++) {
            const uint32_t *theirs = tn_comm_peer(c, ranks[j], region);
            for (uint32_t i = 0; i < size; i++)
                if (theirs[i] != mix(step, (uint32_t)ranks[j] + i))
                    TN_FAIL(TN_FAILED, "step %u: word %u of rank %d", step, i, ranks[j]);
        }
        TN_TRY(tn_comm_sync(c, group, "read", 0));
    }
    return TN_OK;
}

static tn_status exchange_all(const tn_world *w, const void *user)
{
    tn_comm *c;
    int most;
    TN_TRY(tn_comm_open(w, 20, &c));
    tn_comm_set_timeout(c, 20);
    TN_TRY(exchange(c, 0, *(const uint32_t *)user));
    TN_TRY(exchange(c, 3, *(const uint32_t *)user + 1));
    TN_TRY(tn_comm_agree(c, "the seed", *(const uint32_t *)user));
    TN_TRY(tn_comm_most(c, "most", w->rank == w->size / 2 ? 77 : w->rank, &most));
    if (most != 77) TN_FAIL(TN_FAILED, "the largest is %d", most);
    tn_comm_close(c);
    return TN_OK;
}

static void test_exchanges(void)
{
    for (int n = 1; n <= 5; n++)
        for (uint32_t seed = 1; seed <= 3; seed++)
            TN_CHECK_OK(ranks_run(n, exchange_all, &seed, NULL));
    ranks_check_clean();
}

static tn_status disagree(const tn_world *w, const void *user)
{
    tn_comm *c;
    (void)user;
    TN_TRY(tn_comm_open(w, 20, &c));
    return tn_comm_agree(c, "the plan", w->rank == 2 ? 8 : 7);
}

static void test_disagree(void)
{
    tn_status st = ranks_run(4, disagree, NULL, NULL);
    TN_CHECK_MSG(st == TN_BAD_INPUT && strstr(tn_error_text(), "the plan differs") &&
                     strstr(tn_error_text(), "rank 2"),
                 "status %d: %s", (int)st, tn_error_text());
    ranks_check_clean();
}

/* ------------------------------------------------------------ faults */

static const char *const KINDS[] = {"kill", "stop", "abort", "leave", "crash"};
static const char *const PHASES[] = {"before", "open", "compute", "wait", "exit"};
enum { KILL, STOP, ABORT, LEAVE, CRASH, N_KINDS };
enum { BEFORE, OPEN, COMPUTE, WAIT, EXIT, N_PHASES };
static const double DEADLINE_S = 1;

typedef struct fault {
    int kind, phase, victim;
} fault;

static tn_status suffer(const fault *f, tn_comm *c)
{
    if (f->kind == KILL) raise(SIGKILL);
    if (f->kind == STOP) raise(SIGSTOP);
    if (f->kind == LEAVE) _exit(f->phase == EXIT ? 5 : 0);
    if (f->kind == CRASH) raise(SIGTRAP);
    if (c) tn_comm_abort(c, "the soup is cold");
    TN_FAIL(TN_FAILED, "the soup is cold");
}

static void *later(void *arg)
{
    nanosleep(&(struct timespec){0, 100 * 1000 * 1000}, NULL);
    const fault *f = arg;
    if (f->kind == LEAVE) _exit(5); /* with 0 it would have done its part */
    kill(getpid(), f->kind == KILL ? SIGKILL : f->kind == STOP ? SIGSTOP : SIGTRAP);
    return NULL;
}

/* While this rank sleeps in a wait. */
static tn_status suffer_waiting(const fault *f, tn_comm *c)
{
    pthread_t t;
    if (f->kind == ABORT) return suffer(f, c);
    if (pthread_create(&t, NULL, later, (void *)(uintptr_t)f)) TN_FAIL(TN_FAILED, "no thread");
    return tn_comm_sync(c, TN_COMM_WORLD, "wait", 0);
}

static tn_status work(const tn_world *w, const void *user)
{
    const fault *f = user;
    bool mine = w->rank == f->victim;
    tn_comm *c;
    void *mem;
    if (mine && f->phase == BEFORE) return suffer(f, NULL);
    TN_TRY(tn_comm_open(w, DEADLINE_S, &c));
    tn_comm_set_timeout(c, DEADLINE_S);
    if (mine && f->phase == OPEN) return suffer(f, c);
    TN_TRY(tn_comm_region(c, 0, 1 << 16, &mem));
    for (int i = 0; i < 50; i++) {
        TN_TRY(tn_comm_sync(c, TN_COMM_WORLD, "step", 8));
        if (i == 30 && mine && f->phase == COMPUTE) return suffer(f, c);
    }
    if (mine && f->phase == WAIT) return suffer_waiting(f, c);
    if (f->phase == WAIT && w->rank == (f->victim + 1) % w->size)
        nanosleep(&(struct timespec){0, 400 * 1000 * 1000}, NULL);
    TN_TRY(tn_comm_sync(c, TN_COMM_WORLD, "wait", 8));
    tn_comm_close(c);
    return mine && f->phase == EXIT ? suffer(f, NULL) : TN_OK;
}

static void test_faults(void)
{
    uint32_t draw = 1;
    for (int kind = 0; kind < N_KINDS; kind++)
        for (int phase = 0; phase < N_PHASES; phase++) {
            double took;
            char who[32];
            int n = 2 + (int)(draw % 3);
            fault f = {kind, phase, (int)(draw / 3 % (uint32_t)n)};
            draw = mix(draw, 7);
            tn_status st = ranks_run(n, work, &f, &took);
            snprintf(who, sizeof who, "rank %d", f.victim);
            TN_CHECK_MSG(st == TN_FAILED, "%s at %s of %d: status %d", KINDS[kind], PHASES[phase],
                         f.victim, (int)st);
            TN_CHECK_MSG(!strncmp(tn_error_text(), who, strlen(who)), "%s at %s of %d: %s",
                         KINDS[kind], PHASES[phase], f.victim, tn_error_text());
            TN_CHECK_MSG(kind != ABORT || strstr(tn_error_text(), "soup"), "%s", tn_error_text());
            TN_CHECK_MSG(took < DEADLINE_S + 5, "%s at %s of %d: %g s", KINDS[kind], PHASES[phase],
                         f.victim, took);
            TN_CHECK_MSG(kind == STOP || took < DEADLINE_S * 2, "%s at %s of %d: %g s", KINDS[kind],
                         PHASES[phase], f.victim, took);
            ranks_check_clean();
        }
}

/* ------------------------------------------------------------ whom to blame */

static tn_status chain(const tn_world *w, const void *user)
{
    tn_comm *c;
    int group, pair[2] = {w->rank, w->rank + 1};
    (void)user;
    TN_TRY(tn_comm_open(w, 10, &c));
    tn_comm_set_timeout(
        c, w->rank == 0 ? 0.7 : 10); /* rank 0 looks first, and its neighbour is not to blame */
    if (w->rank == w->size - 1) raise(SIGSTOP);
    TN_TRY(tn_comm_group(c, pair, 2, &group));
    return tn_comm_sync(c, group, "with my neighbour", 0);
}

static tn_status circle(const tn_world *w, const void *user)
{
    tn_comm *c;
    int group, next = (w->rank + 1) % w->size;
    int pair[2] = {w->rank < next ? w->rank : next, w->rank < next ? next : w->rank};
    (void)user;
    TN_TRY(tn_comm_open(w, 10, &c));
    tn_comm_set_timeout(c, 0.7);
    TN_TRY(tn_comm_group(c, pair, 2, &group));
    return tn_comm_sync(c, group, "round", 0);
}

static void test_blame(void)
{
    tn_status st = ranks_run(4, chain, NULL, NULL);
    TN_CHECK_MSG(st == TN_FAILED && !strncmp(tn_error_text(), "rank 3 is stopped", 17), "%s",
                 tn_error_text());
    st = ranks_run(3, circle, NULL, NULL);
    TN_CHECK_MSG(st == TN_FAILED && strstr(tn_error_text(), "wait for each other"), "%s",
                 tn_error_text());
    ranks_check_clean();
}

/* ------------------------------------------------------------ without a launcher */

static int free_port(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    bool ok = fd >= 0 && !bind(fd, (struct sockaddr *)&a, sizeof a) &&
              !getsockname(fd, (struct sockaddr *)&a, &n);
    if (fd >= 0) close(fd);
    return ok ? ntohs(a.sin_port) : 0;
}

/* Ranks 0 .. started of `size`, one process each; text[r] is what rank r says at its end. */
static void join(int size, int started, const int *rank_of, ranks_fn fn, char text[][512])
{
    tn_world w = {.size = size, .local_size = size, .control_fd = -1, .port = free_port()};
    int pipes[8][2];
    pid_t pids[8];
    snprintf(w.master, sizeof w.master, "127.0.0.1");
    for (int i = 0; i < started; i++) {
        if (!TN_CHECK(pipe(pipes[i]) == 0) || !TN_CHECK((pids[i] = fork()) >= 0)) return;
        if (pids[i]) {
            close(pipes[i][1]);
            continue;
        }
        w.rank = w.local_rank = rank_of[i];
        tn_status st = fn(&w, NULL);
        const char *say = st ? tn_error_text() : "well";
        _exit(write(pipes[i][1], say, strlen(say)) < 0);
    }
    for (int i = 0; i < started; i++) {
        ssize_t n = read(pipes[i][0], text[i], 511);
        text[i][n > 0 ? n : 0] = 0;
        waitpid(pids[i], NULL, 0);
        close(pipes[i][0]);
    }
}

static tn_status join_and_exchange(const tn_world *w, const void *user)
{
    uint32_t seed = 5;
    (void)user;
    return exchange_all(w, &seed);
}

static tn_status join_soon(const tn_world *w, const void *user)
{
    tn_comm *c;
    (void)user;
    return tn_comm_open(w, 1, &c);
}

static tn_status join_and_die(const tn_world *w, const void *user)
{
    tn_comm *c;
    char name[32];
    (void)user;
    TN_TRY(tn_comm_open(w, 10, &c));
    TN_TRY(tn_comm_sync(c, TN_COMM_WORLD, "alive", 1));
    if (w->rank == 1) raise(SIGKILL);
    tn_status st = tn_comm_sync(c, TN_COMM_WORLD, "dead", 2);
    char why[512];
    tn_error_take(why, sizeof why);
    snprintf(name, sizeof name, "flight_%d.json", w->rank);
    if (tn_comm_record_write(c, tn_scratch_path(name))) TN_FAIL(TN_FAILED, "no record");
    return tn_error_give(st, why);
}

static void test_joined(void)
{
    char text[8][512];
    const int order[8] = {2, 0, 1, 3}, twice[8] = {0, 1, 1};
    join(4, 4, order, join_and_exchange, text);
    for (int i = 0; i < 4; i++) TN_CHECK_TEXT(text[i], "well");
    join(4, 3, order, join_soon, text);
    TN_CHECK_MSG(strstr(text[1], "rank 3 did not come within 1 s"), "%s", text[1]);
    join(2, 1, order + 2, join_soon, text);
    TN_CHECK_MSG(strstr(text[0], "rank 0 does not answer"), "%s", text[0]);
    join(3, 3, twice, join_soon, text);
    TN_CHECK_MSG(strstr(text[1], "two processes") || strstr(text[2], "two processes"), "%s / %s",
                 text[1], text[2]);
    const char *record = tn_scratch_path("flight_0.json"); /* the folder is there before they are */
    double begun = tn_clock_s();
    join(4, 4, order, join_and_die, text);
    for (int i = 0; i < 4; i++)
        TN_CHECK_MSG(i == 2 || strstr(text[i], "rank 1 died"), "%s", text[i]);
    TN_CHECK(tn_clock_s() - begun < 5);
    char *flight;
    int64_t n;
    if (TN_CHECK_OK(tn_file_read(record, 1 << 20, &flight, &n))) {
        TN_CHECK(strstr(flight, "\"what\": \"dead\"") && strstr(flight, "waiting") &&
                 strstr(flight, "rank 1 died"));
        tn_free(flight);
    }
    ranks_check_clean();
}

static void test_one(void)
{
    tn_world w = {.size = 1, .local_size = 1, .control_fd = -1};
    tn_comm *c;
    void *mem;
    if (!TN_CHECK_OK(tn_comm_open(&w, 1, &c))) return;
    TN_CHECK_OK(tn_comm_region(c, 1, 100, &mem));
    TN_CHECK(tn_comm_peer(c, 0, 1) == mem);
    TN_CHECK_OK(tn_comm_sync(c, TN_COMM_WORLD, "alone", 0));
    TN_CHECK_OK(tn_comm_agree(c, "all", 3));
    TN_CHECK_FAILS(tn_comm_region(c, TN_COMM_MAX_REGIONS, 1, &mem), TN_FAILED, "region");
    tn_comm_close(c);
    w.size = TN_COMM_MAX_RANKS + 1;
    TN_CHECK_FAILS(tn_comm_open(&w, 1, &c), TN_BAD_INPUT, "at most");
}

int main(void)
{
    test_one();
    test_exchanges();
    test_disagree();
    test_faults();
    test_blame();
    test_joined();
    return tn_test_done("comm");
}
