/* The store: what is set is got, waits end with the value or the deadline, and whatever garbage is
 * sent, the others are served. */
#include "engine/base/clock.h"
#include "engine/store.h"
#include "tests/test.h"

#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static tn_store_server *server;

static tn_store *client(void)
{
    tn_store *s = NULL;
    TN_CHECK_OK(tn_store_open("127.0.0.1", tn_store_port(server), 5, &s));
    return s;
}

static void test_values(void)
{
    char in[TN_STORE_MAX_VALUE + 1], out[TN_STORE_MAX_VALUE], long_key[TN_STORE_MAX_KEY + 2];
    tn_store *a = client(), *b = client();
    size_t n;
    for (size_t i = 0; i < sizeof in; i++) in[i] = (char)(i * 7);
    for (size_t size = 0; size <= TN_STORE_MAX_VALUE; size = size * 3 + 1) {
        TN_CHECK_OK(tn_store_set(a, "key", in, size));
        TN_CHECK_OK(tn_store_get(b, "key", 1, out, sizeof out, &n));
        TN_CHECK(n == size && !memcmp(in, out, n));
    }
    TN_CHECK_OK(tn_store_set(a, "key", in, TN_STORE_MAX_VALUE));
    TN_CHECK_OK(tn_store_get(b, "key", 1, out, sizeof out, &n));
    TN_CHECK(n == TN_STORE_MAX_VALUE && !memcmp(in, out, n));
    TN_CHECK_FAILS(tn_store_set(a, "key", in, sizeof in), TN_BAD_INPUT, "at most");
    TN_CHECK_FAILS(tn_store_set(a, "", in, 1), TN_BAD_INPUT, "a key has");
    memset(long_key, 'k', sizeof long_key);
    long_key[sizeof long_key - 1] = 0;
    TN_CHECK_FAILS(tn_store_set(a, long_key, in, 1), TN_BAD_INPUT, "a key has");
    long_key[sizeof long_key - 2] = 0;
    TN_CHECK_OK(tn_store_set(a, long_key, in, 1));
    int64_t sum = 0;
    for (int i = 1; i <= 10; i++) TN_CHECK_OK(tn_store_add(i & 1 ? a : b, "count", i, &sum));
    TN_CHECK(sum == 55);
    TN_CHECK_OK(tn_store_add(b, "count", -60, &sum));
    TN_CHECK(sum == -5);
    TN_CHECK_FAILS(tn_store_get(b, "key", 1, out, 8, &n), TN_FAILED, "were expected");
    tn_store_close(b);
    double begun = tn_clock_s();
    TN_CHECK_FAILS(tn_store_get(a, "nothing", 0.3, out, sizeof out, &n), TN_FAILED,
                   "no 'nothing' in time");
    TN_CHECK(tn_clock_s() - begun >= 0.3 && tn_clock_s() - begun < 3);
    tn_store_close(a);
}

static void *set_later(void *arg)
{
    tn_store *s = arg;
    nanosleep(&(struct timespec){0, 150 * 1000 * 1000}, NULL);
    TN_CHECK_OK(tn_store_set(s, "late", "now", 3));
    return NULL;
}

static void test_waiting(void)
{
    tn_store *who[20], *setter = client();
    pthread_t t;
    char out[8];
    size_t n;
    for (int i = 0; i < 20; i++) who[i] = client();
    if (!TN_CHECK(!pthread_create(&t, NULL, set_later, setter))) return;
    for (int i = 0; i < 20; i++) {
        TN_CHECK_OK(tn_store_get(who[i], "late", 5, out, sizeof out, &n));
        TN_CHECK(n == 3 && !memcmp(out, "now", 3));
    }
    pthread_join(t, NULL);
    for (int i = 0; i < 20; i++) tn_store_close(who[i]);
    tn_store_close(setter);
}

static int raw(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_addr = {htonl(INADDR_LOOPBACK)},
                            .sin_port = htons((uint16_t)tn_store_port(server))};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct timeval limit = {5, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    TN_CHECK(connect(fd, (struct sockaddr *)&a, sizeof a) == 0);
    return fd;
}

/* Cut off: the answer is the end (or a reset). Heads that are nearly right are among what is sent.
 */
static void test_garbage(void)
{
    unsigned draw = 12345;
    const struct {
        uint32_t magic;
        uint16_t op, n_key;
        uint32_t n_value, unused;
    } heads[] = {{0x31534e54, 9, 3, 0, 0},     {0x31534e54, 1, 0, 0, 0},
                 {0x31534e54, 1, 65535, 0, 0}, {0x31534e54, 1, 3, 0xffffffff, 0},
                 {0x31534e54, 2, 3, 1, 0},     {0x31534e54, 3, 3, 7, 0},
                 {0x32534e54, 1, 3, 0, 0},     {0, 0, 0, 0, 0}};
    for (int i = 0; i < 40; i++) {
        char bytes[8192], answer[64];
        size_t n = 16 + (size_t)(rand_r(&draw) % 8000);
        for (size_t k = 0; k < n; k++) bytes[k] = (char)rand_r(&draw);
        if (i < TN_COUNT(heads)) memcpy(bytes, &heads[i], sizeof heads[i]);
        int fd = raw();
        ssize_t sent = send(fd, bytes, n, MSG_NOSIGNAL);
        TN_CHECK(sent > 0 && recv(fd, answer, sizeof answer, 0) <= 0);
        close(fd);
    }
    const char *http = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    char answer[64];
    int fd = raw();
    TN_CHECK(send(fd, http, strlen(http), MSG_NOSIGNAL) > 0 &&
             recv(fd, answer, sizeof answer, 0) <= 0);
    close(fd);
    /* a request in single bytes is a request */
    const char get[] = "TNS1\2\0\3\0\0\0\0\0\0\0\0\0key";
    fd = raw();
    for (size_t k = 0; k < sizeof get - 1; k++) TN_CHECK(send(fd, get + k, 1, MSG_NOSIGNAL) == 1);
    TN_CHECK(recv(fd, answer, 16, MSG_WAITALL) == 16 && !memcmp(answer, "TNS2", 4));
    close(fd);
}

/* More connections than there is room for, silent ones: those behind are turned away, and room
 * comes back. */
static void test_crowd(void)
{
    static int fds[TN_STORE_MAX_CLIENTS + 8];
    for (int i = 0; i < TN_COUNT(fds); i++) fds[i] = raw();
    char byte;
    TN_CHECK(recv(fds[TN_COUNT(fds) - 1], &byte, 1, 0) <= 0);
    for (int i = 0; i < TN_COUNT(fds); i++) close(fds[i]);
    tn_store *s = client();
    TN_CHECK_OK(tn_store_set(s, "key", "x", 1));
    tn_store_close(s);
}

static void test_full(void)
{
    tn_store *s = client();
    char key[32];
    int i;
    tn_status st = TN_OK;
    for (i = 0; i <= TN_STORE_MAX_KEYS && !st; i++) {
        snprintf(key, sizeof key, "full %d", i);
        st = tn_store_set(s, key, "", 1);
    }
    TN_CHECK_FAILS(st, TN_FAILED, "the table is full");
    TN_CHECK(i > TN_STORE_MAX_KEYS / 2);
    TN_CHECK_OK(tn_store_set(s, "full 0", "again", 5));
    tn_store_close(s);
}

static void test_addresses(void)
{
    tn_store *s;
    tn_store_server *second;
    TN_CHECK_FAILS(tn_store_serve("127.0.0.1", tn_store_port(server), &second), TN_FAILED,
                   "cannot listen");
    TN_CHECK_FAILS(tn_store_serve("no such host", 1234, &second), TN_BAD_INPUT, "MASTER_ADDR");
    TN_CHECK_FAILS(tn_store_open("no such host", 1234, 1, &s), TN_BAD_INPUT, "MASTER_ADDR");
    tn_store *last = client();
    int port = tn_store_port(server);
    tn_store_stop(server);
    TN_CHECK_FAILS(tn_store_set(last, "key", "x", 1), TN_FAILED, "lost");
    tn_store_close(last);
    TN_CHECK_FAILS(tn_store_open("127.0.0.1", port, 0.2, &s), TN_FAILED, "does not answer");
    tn_store_close(NULL);
    tn_store_stop(NULL);
}

int main(void)
{
    if (!TN_CHECK_OK(tn_store_serve("127.0.0.1", 0, &server))) return tn_test_done("store");
    test_values();
    test_waiting();
    test_garbage();
    test_crowd();
    test_full();
    test_addresses();
    return tn_test_done("store");
}
