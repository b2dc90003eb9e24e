#include "engine/store.h"

#include "engine/base/clock.h"
#include "engine/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* Both directions: a head, then key (none in an answer), then value. Little-endian, as every
 * machine that titan runs on. */
enum { REQUEST = 0x31534e54, ANSWER = 0x32534e54, SET = 1, GET = 2, ADD = 3, OK = 0, REFUSED = 1 };
typedef struct head {
    uint32_t magic;
    uint16_t op, n_key;
    uint32_t n_value, unused;
} head;

typedef struct frame {
    head h;
    char body[TN_STORE_MAX_KEY + TN_STORE_MAX_VALUE];
} frame;

static const double HALF_REQUEST_S = 10, ANSWER_S = 30;

/* ------------------------------------------------------------ server */

typedef struct entry {
    int n_key, n_value;
    char key[TN_STORE_MAX_KEY];
    void *value;
} entry;

typedef struct client {
    int fd; /* -1: free */
    size_t n_in;
    double since_s; /* when the first byte of what lies in `in` came */
    bool waits;     /* for the key of the request that lies in `in` */
    frame in;
} client;

struct tn_store_server {
    int listener, wake, port;
    pthread_t thread;
    entry *entries;
    int64_t n_entries, cap_entries;
    client clients[TN_STORE_MAX_CLIENTS];
    struct pollfd poll[TN_STORE_MAX_CLIENTS + 2];
};

static void drop(client *c)
{
    close(c->fd);
    c->fd = -1;
}

static entry *lookup(tn_store_server *s, const char *key, int n_key)
{
    for (int64_t i = 0; i < s->n_entries; i++)
        if (s->entries[i].n_key == n_key && !memcmp(s->entries[i].key, key, (size_t)n_key))
            return &s->entries[i];
    return NULL;
}

static entry *add_entry(tn_store_server *s, const char *key, int n_key)
{
    void *value;
    if (s->n_entries == TN_STORE_MAX_KEYS) return NULL;
    if (tn_grow((void **)&s->entries, &s->cap_entries, s->n_entries + 1, sizeof *s->entries))
        return NULL;
    if (tn_alloc(TN_STORE_MAX_VALUE, &value)) return NULL;
    entry *e = &s->entries[s->n_entries++];
    *e = (entry){.n_key = n_key, .value = value};
    memcpy(e->key, key, (size_t)n_key);
    return e;
}

/* A client has at most one answer under way, which the socket's buffer takes whole; one that does
 * not is cut off. */
static void answer(client *c, int status, const void *value, size_t n)
{
    frame f = {.h = {.magic = ANSWER, .op = (uint16_t)status, .n_value = (uint32_t)n}};
    if (n) memcpy(f.body, value, n);
    size_t all = sizeof f.h + n;
    if (send(c->fd, &f, all, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)all) drop(c);
}

static void add_number(client *c, entry *e, const void *delta)
{
    uint64_t sum = 0, more;
    if (e->n_value == sizeof sum) memcpy(&sum, e->value, sizeof sum);
    memcpy(&more, delta, sizeof more);
    sum += more;
    memcpy(e->value, &sum, sizeof sum);
    e->n_value = sizeof sum;
    answer(c, OK, &sum, sizeof sum);
}

static void obey(tn_store_server *s, client *c)
{
    const head *h = &c->in.h;
    const char *value = c->in.body + h->n_key;
    entry *e = lookup(s, c->in.body, h->n_key);
    c->waits = h->op == GET && !e;
    if (c->waits) return;
    if (!e && !(e = add_entry(s, c->in.body, h->n_key))) {
        answer(c, REFUSED, NULL, 0);
    } else if (h->op == SET) {
        memcpy(e->value, value, h->n_value);
        e->n_value = (int)h->n_value;
        answer(c, OK, NULL, 0);
    } else if (h->op == GET) {
        answer(c, OK, e->value, (size_t)e->n_value);
    } else {
        add_number(c, e, value);
    }
}

static bool sound(const head *h)
{
    bool op = h->op == SET || (h->op == GET && h->n_value == 0) ||
              (h->op == ADD && h->n_value == sizeof(int64_t));
    return h->magic == REQUEST && op && h->n_key > 0 && h->n_key <= TN_STORE_MAX_KEY &&
           h->n_value <= TN_STORE_MAX_VALUE;
}

/* The request that lies complete in `in`, if one does. */
static void take(tn_store_server *s, client *c)
{
    while (c->fd >= 0 && !c->waits && c->n_in >= sizeof(head)) {
        size_t all = sizeof(head) + c->in.h.n_key + c->in.h.n_value;
        if (!sound(&c->in.h)) {
            drop(c);
            return;
        }
        if (c->n_in < all) return;
        obey(s, c);
        if (c->waits || c->fd < 0) return;
        c->n_in -= all;
        memmove(&c->in, (char *)&c->in + all, c->n_in);
        c->since_s = tn_clock_s();
    }
}

static void hear(tn_store_server *s, client *c)
{
    if (c->n_in ==
        sizeof c->in) { /* more than one request while the first waits: no client of ours */
        drop(c);
        return;
    }
    ssize_t n = recv(c->fd, (char *)&c->in + c->n_in, sizeof c->in - c->n_in, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
        drop(c);
        return;
    }
    if (n < 0) return;
    if (c->n_in == 0) c->since_s = tn_clock_s();
    c->n_in += (size_t)n;
    take(s, c);
}

static void welcome(tn_store_server *s)
{
    int one = 1, fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return;
    for (int i = 0; i < TN_STORE_MAX_CLIENTS; i++) {
        if (s->clients[i].fd >= 0) continue;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        s->clients[i].n_in = 0;
        s->clients[i].waits = false;
        s->clients[i].since_s = tn_clock_s();
        s->clients[i].fd = fd;
        return;
    }
    close(fd);
}

static void *serve(void *arg)
{
    tn_store_server *s = arg;
    for (;;) {
        s->poll[0] = (struct pollfd){.fd = s->wake, .events = POLLIN};
        s->poll[1] = (struct pollfd){.fd = s->listener, .events = POLLIN};
        for (int i = 0; i < TN_STORE_MAX_CLIENTS; i++)
            s->poll[2 + i] = (struct pollfd){.fd = s->clients[i].fd, .events = POLLIN};
        if (poll(s->poll, TN_STORE_MAX_CLIENTS + 2, 1000) < 0 && errno != EINTR) return NULL;
        if (s->poll[0].revents) return NULL;
        double now = tn_clock_s();
        for (int i = 0; i < TN_STORE_MAX_CLIENTS; i++) {
            client *c = &s->clients[i];
            if (c->fd >= 0 && s->poll[2 + i].revents) hear(s, c);
            if (c->fd >= 0 && c->n_in && !c->waits && now - c->since_s > HALF_REQUEST_S) drop(c);
        }
        for (int i = 0; i < TN_STORE_MAX_CLIENTS; i++) { /* what they wait for may be there now */
            client *c = &s->clients[i];
            if (c->fd < 0 || !c->waits) continue;
            c->waits = false;
            take(s, c);
        }
        if (s->poll[1].revents) welcome(s);
    }
}

/* ------------------------------------------------------------ addresses */

static tn_status resolve(const char *host, int port, struct addrinfo **out)
{
    char text[16];
    struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    snprintf(text, sizeof text, "%d", port);
    int e = getaddrinfo(host, text, &hints, out);
    if (e)
        TN_FAIL(TN_BAD_INPUT, "store: %s: %s; MASTER_ADDR must be the address of rank 0's host",
                host, gai_strerror(e));
    return TN_OK;
}

static int listen_on(const struct addrinfo *a)
{
    int one = 1, fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (!bind(fd, a->ai_addr, a->ai_addrlen) && !listen(fd, 64)) return fd;
    int e = errno;
    close(fd);
    errno = e;
    return -1;
}

static int port_of(int fd)
{
    struct sockaddr_storage a;
    socklen_t n = sizeof a;
    char text[16] = "0";
    int port = 0;
    if (getsockname(fd, (struct sockaddr *)&a, &n) ||
        getnameinfo((struct sockaddr *)&a, n, NULL, 0, text, sizeof text, NI_NUMERICSERV))
        return 0;
    for (const char *p = text; *p; p++) port = port * 10 + (*p - '0');
    return port;
}

tn_status tn_store_serve(const char *host, int port, tn_store_server **out)
{
    struct addrinfo *list;
    void *mem;
    TN_TRY(tn_alloc(sizeof(tn_store_server), &mem));
    tn_store_server *s = mem;
    for (int i = 0; i < TN_STORE_MAX_CLIENTS; i++) s->clients[i].fd = -1;
    s->listener = s->wake = -1;
    tn_status st = resolve(host, port, &list);
    if (!st) {
        for (const struct addrinfo *a = list; a && s->listener < 0; a = a->ai_next)
            s->listener = listen_on(a);
        if (s->listener < 0)
            st = tn_error(TN_FAILED,
                          "store: cannot listen on %s port %d: %s; set another MASTER_PORT", host,
                          port, strerror(errno));
        freeaddrinfo(list);
    }
    if (!st && (s->wake = eventfd(0, EFD_CLOEXEC)) < 0)
        st = tn_error(TN_FAILED, "store: %s", strerror(errno));
    if (!st) s->port = port_of(s->listener);
    int e = st ? 0 : pthread_create(&s->thread, NULL, serve, s);
    if (e) st = tn_error(TN_FAILED, "store: no thread: %s", strerror(e));
    if (st) {
        if (s->listener >= 0) close(s->listener);
        if (s->wake >= 0) close(s->wake);
        tn_free(s);
        return st;
    }
    *out = s;
    return TN_OK;
}

int tn_store_port(const tn_store_server *s)
{
    return s->port;
}

void tn_store_stop(tn_store_server *s)
{
    uint64_t one = 1;
    if (!s) return;
    while (write(s->wake, &one, sizeof one) < 0 && errno == EINTR) continue;
    pthread_join(s->thread, NULL);
    for (int i = 0; i < TN_STORE_MAX_CLIENTS; i++)
        if (s->clients[i].fd >= 0) close(s->clients[i].fd);
    for (int64_t i = 0; i < s->n_entries; i++) tn_free(s->entries[i].value);
    tn_free(s->entries);
    close(s->listener);
    close(s->wake);
    tn_free(s);
}

/* ------------------------------------------------------------ client */

struct tn_store {
    int fd;
    int port;
    char host[256];
};

static bool ready(int fd, short events, double deadline)
{
    for (;;) {
        double left = deadline - tn_clock_s();
        struct pollfd p = {.fd = fd, .events = events};
        int n = poll(&p, 1, left <= 0 ? 0 : left > 3600 ? 3600000 : (int)(left * 1000) + 1);
        if (n > 0) return true;
        if (n == 0 && tn_clock_s() >= deadline) return false;
        if (n < 0 && errno != EINTR) return false;
    }
}

static int connect_to(const struct addrinfo *a, double deadline)
{
    int one = 1, e = 0, fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    socklen_t n = sizeof e;
    if (fd < 0) return -1;
    if (connect(fd, a->ai_addr, a->ai_addrlen) && errno != EINPROGRESS) e = errno;
    else if (!ready(fd, POLLOUT, deadline)) e = ETIMEDOUT;
    else getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &n);
    if (!e) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        return fd;
    }
    close(fd);
    errno = e;
    return -1;
}

tn_status tn_store_open(const char *host, int port, double timeout_s, tn_store **out)
{
    struct addrinfo *list;
    double deadline = tn_clock_s() + timeout_s;
    int fd = -1, why = 0;
    void *mem;
    TN_TRY(resolve(host, port, &list));
    do {
        for (const struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
            fd = connect_to(a, deadline);
            why = errno;
        }
        if (fd < 0) nanosleep(&(struct timespec){0, 20 * 1000 * 1000}, NULL);
    } while (fd < 0 && tn_clock_s() < deadline);
    freeaddrinfo(list);
    if (fd < 0)
        TN_FAIL(TN_FAILED, "store: rank 0 does not answer at %s port %d within %g s: %s", host,
                port, timeout_s, strerror(why));
    tn_status st = tn_alloc(sizeof(tn_store), &mem);
    if (st) {
        close(fd);
        return st;
    }
    tn_store *s = mem;
    s->fd = fd;
    s->port = port;
    snprintf(s->host, sizeof s->host, "%s", host);
    *out = s;
    return TN_OK;
}

void tn_store_close(tn_store *s)
{
    if (!s) return;
    close(s->fd);
    tn_free(s);
}

static tn_status lost(const tn_store *s, const char *what)
{
    TN_FAIL(TN_FAILED, "store: %s port %d: %s", s->host, s->port, what);
}

static tn_status send_all(tn_store *s, const void *data, size_t n, double deadline)
{
    const char *p = data;
    while (n) {
        ssize_t k = send(s->fd, p, n, MSG_NOSIGNAL);
        if (k > 0) {
            p += k;
            n -= (size_t)k;
        } else if (k < 0 && errno != EAGAIN && errno != EINTR) {
            return lost(s, "the connection is lost");
        } else if (!ready(s->fd, POLLOUT, deadline)) {
            return lost(s, "takes no request");
        }
    }
    return TN_OK;
}

static tn_status read_all(tn_store *s, void *data, size_t n, double deadline, const char *key)
{
    char *p = data;
    while (n) {
        ssize_t k = recv(s->fd, p, n, 0);
        if (k > 0) {
            p += k;
            n -= (size_t)k;
        } else if (k == 0 || (errno != EAGAIN && errno != EINTR)) {
            return lost(s, "the connection is lost");
        } else if (!ready(s->fd, POLLIN, deadline)) {
            TN_FAIL(TN_FAILED, "store: %s port %d: no '%s' in time", s->host, s->port, key);
        }
    }
    return TN_OK;
}

/* `out` takes the answer's value of at most `capacity` bytes. */
static tn_status ask(tn_store *s, int op, const char *key, const frame *value, double timeout_s,
                     void *out, size_t capacity, size_t *n_out)
{
    frame f = {.h = {.magic = REQUEST,
                     .op = (uint16_t)op,
                     .n_key = (uint16_t)strlen(key),
                     .n_value = value->h.n_value}};
    head h;
    double deadline = tn_clock_s() + timeout_s;
    memcpy(f.body, key, f.h.n_key);
    memcpy(f.body + f.h.n_key, value->body, f.h.n_value);
    TN_TRY(send_all(s, &f, sizeof f.h + f.h.n_key + f.h.n_value, deadline));
    TN_TRY(read_all(s, &h, sizeof h, deadline, key));
    if (h.magic != ANSWER || h.n_key || h.n_value > TN_STORE_MAX_VALUE)
        return lost(s, "what answers is not titan");
    if (h.op != OK)
        TN_FAIL(TN_FAILED, "store: %s port %d: '%s' is refused; the table is full", s->host,
                s->port, key);
    if (h.n_value > capacity)
        TN_FAIL(TN_FAILED, "store: '%s' has %u bytes, %zu were expected", key, h.n_value, capacity);
    TN_TRY(read_all(s, out, h.n_value, deadline, key));
    *n_out = h.n_value;
    return TN_OK;
}

static tn_status check_sizes(const char *key, size_t n)
{
    size_t n_key = strlen(key);
    if (n_key == 0 || n_key > TN_STORE_MAX_KEY)
        TN_FAIL(TN_BAD_INPUT, "store: a key has 1 to %d bytes", (int)TN_STORE_MAX_KEY);
    if (n > TN_STORE_MAX_VALUE)
        TN_FAIL(TN_BAD_INPUT, "store: '%s': a value has at most %d bytes", key,
                (int)TN_STORE_MAX_VALUE);
    return TN_OK;
}

tn_status tn_store_set(tn_store *s, const char *key, const void *data, size_t n)
{
    frame value = {.h = {.n_value = (uint32_t)n}};
    size_t none;
    TN_TRY(check_sizes(key, n));
    if (n) memcpy(value.body, data, n);
    return ask(s, SET, key, &value, ANSWER_S, NULL, 0, &none);
}

tn_status tn_store_get(tn_store *s, const char *key, double timeout_s, void *out, size_t capacity,
                       size_t *n_out)
{
    frame value = {0};
    TN_TRY(check_sizes(key, 0));
    return ask(s, GET, key, &value, timeout_s, out, capacity, n_out);
}

tn_status tn_store_add(tn_store *s, const char *key, int64_t delta, int64_t *out)
{
    frame value = {.h = {.n_value = sizeof delta}};
    size_t n;
    TN_TRY(check_sizes(key, 0));
    memcpy(value.body, &delta, sizeof delta);
    return ask(s, ADD, key, &value, ANSWER_S, out, sizeof *out, &n);
}
