#include "engine/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/fault.h"
#include "engine/base/mem.h"
#include "engine/base/text.h"

/* The most that one read or write is asked for. */
#ifdef TN_HOSTILE
enum { PIECE_BYTES = 61 };
#else
enum { PIECE_BYTES = 1 << 30 };
#endif
enum { PATH_BYTES = 4096 };

struct tn_file {
    int fd;
    bool temporary;        /* stands under `temp` until it is published */
    char path[PATH_BYTES]; /* the name it will have, or has */
    char temp[PATH_BYTES + 32];
};

tn_status tn_file_error(const char *path, const char *action)
{
    int e = errno;
    bool user = e == ENOENT || e == ENOTDIR || e == EISDIR || e == EACCES || e == EPERM ||
                e == ELOOP || e == ENAMETOOLONG || e == EROFS || e == EEXIST;
    TN_FAIL(user ? TN_BAD_INPUT : TN_FAILED, "%s: cannot %s: %s", path, action, strerror(e));
}

static tn_status open_file(const char *path, const char *action, int flags, int *fd)
{
    int got = tn_fault_hit(TN_FAULT_FILE_OPEN) ? -1 : open(path, flags | O_CLOEXEC, 0666);
    if (got < 0) return tn_file_error(path, action);
    *fd = got;
    return TN_OK;
}

/* Up to n bytes until the end of the file; a signal or a short read is no end. */
static tn_status read_all(int fd, const char *path, char *to, int64_t n, int64_t *got)
{
    int64_t done = 0;
    while (done < n) {
        int64_t want = n - done < PIECE_BYTES ? n - done : PIECE_BYTES;
        ssize_t r = tn_fault_hit(TN_FAULT_FILE_READ) ? -1 : read(fd, to + done, (size_t)want);
        if (r < 0 && errno == EINTR) continue;
        if (r < 0) return tn_file_error(path, "read");
        if (r == 0) break;
        done += r;
    }
    *got = done;
    return TN_OK;
}

tn_status tn_file_read(const char *path, int64_t limit, char **out, int64_t *n_out)
{
    tn_status st = TN_OK;
    struct stat info;
    void *mem = NULL;
    int64_t n = 0;
    int fd = -1;
    TN_TRY(open_file(path, "open", O_RDONLY, &fd));
    if (fstat(fd, &info) != 0) {
        st = tn_file_error(path, "open");
    } else if (S_ISDIR(info.st_mode)) {
        errno = EISDIR;
        st = tn_file_error(path, "read");
    } else if (info.st_size > limit) {
        st = tn_error(TN_BAD_INPUT, "%s: %s, at most %s can be read here", path,
                      tn_text_bytes(info.st_size).s, tn_text_bytes(limit).s);
    }
    if (!st) st = tn_alloc((size_t)info.st_size + 1, &mem);
    if (!st) st = read_all(fd, path, mem, info.st_size, &n);
    if (!st && n != info.st_size)
        st = tn_error(TN_FAILED, "%s: ended after %lld of %lld bytes while it was read", path,
                      (long long)n, (long long)info.st_size);
    close(fd);
    if (st) {
        tn_free(mem);
        return st;
    }
    *out = mem;
    *n_out = n;
    return TN_OK;
}

tn_status tn_file_read_input(int64_t limit, const char *what, char **out, int64_t *n_out)
{
    void *items = NULL;
    int64_t capacity = 0, n = 0;
    tn_status st;
    while ((st = tn_grow(&items, &capacity, n + 4096, 1)) == TN_OK) {
        ssize_t got = read(STDIN_FILENO, (char *)items + n, 4095);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) st = tn_file_error("standard input", "read");
        if (got <= 0) break;
        n += got;
        if (n > limit)
            st = tn_error(TN_BAD_INPUT, "standard input: more than %s; %s", tn_text_bytes(limit).s,
                          what);
        if (st) break;
    }
    if (st) {
        tn_free(items);
        return st;
    }
    *out = items;
    *n_out = n;
    return TN_OK;
}

static tn_status new_file(const char *path, tn_file **out)
{
    void *mem = NULL;
    if (strlen(path) >= PATH_BYTES) {
        errno = ENAMETOOLONG;
        return tn_file_error(path, "write");
    }
    TN_TRY(tn_alloc(sizeof(tn_file), &mem));
    *out = mem;
    (*out)->fd = -1;
    strcpy((*out)->path, path);
    return TN_OK;
}

tn_status tn_file_create(const char *path, tn_file **out)
{
    tn_file *f = NULL;
    TN_TRY(new_file(path, &f));
    snprintf(f->temp, sizeof f->temp, "%s.%ld.tmp", path, (long)getpid());
    tn_status st = open_file(f->temp, "write", O_WRONLY | O_CREAT | O_TRUNC, &f->fd);
    if (st) {
        tn_free(f);
        return st;
    }
    f->temporary = true;
    *out = f;
    return TN_OK;
}

tn_status tn_file_append(const char *path, tn_file **out)
{
    tn_file *f = NULL;
    TN_TRY(new_file(path, &f));
    tn_status st = open_file(path, "append", O_WRONLY | O_CREAT | O_APPEND, &f->fd);
    if (st) {
        tn_free(f);
        return st;
    }
    *out = f;
    return TN_OK;
}

tn_status tn_file_put(tn_file *f, const void *data, size_t n)
{
    const char *from = data;
    while (n) {
        ssize_t w = tn_fault_hit(TN_FAULT_FILE_WRITE)
                        ? -1
                        : write(f->fd, from, n < PIECE_BYTES ? n : PIECE_BYTES);
        if (w < 0 && errno == EINTR) continue;
        if (w < 0) return tn_file_error(f->path, "write");
        from += w;
        n -= (size_t)w;
    }
    return TN_OK;
}

/* A rename is on disk only when its folder is. */
static tn_status sync_folder_of(const char *path)
{
    char folder[PATH_BYTES];
    const char *slash = strrchr(path, '/');
    size_t n = slash == path ? 1 : slash ? (size_t)(slash - path) : 1;
    memcpy(folder, slash ? path : ".", n);
    folder[n] = 0;
    int fd = -1;
    TN_TRY(open_file(folder, "open", O_RDONLY | O_DIRECTORY, &fd));
    int bad = tn_fault_hit(TN_FAULT_FILE_SYNC) || fsync(fd) != 0;
    tn_status st = bad && errno != EINVAL ? tn_file_error(folder, "sync")
                                          : TN_OK; /* EINVAL: a file system without it */
    close(fd);
    return st;
}

tn_status tn_file_publish(tn_file *f)
{
    tn_status st = TN_OK;
    if (tn_fault_hit(TN_FAULT_FILE_SYNC) || fsync(f->fd) != 0) st = tn_file_error(f->path, "sync");
    int bad_close = close(f->fd);
    f->fd = -1;
    if (!st && bad_close) st = tn_file_error(f->path, "close");
    if (!st && (tn_fault_hit(TN_FAULT_FILE_RENAME) || rename(f->temp, f->path) != 0))
        st = tn_file_error(f->path, "give the file its name");
    if (!st) {
        f->temporary = false;
        st = sync_folder_of(f->path);
    }
    tn_file_discard(f);
    return st;
}

tn_status tn_file_rename(const char *from, const char *to)
{
    if (tn_fault_hit(TN_FAULT_FILE_RENAME) || rename(from, to) != 0)
        return tn_file_error(to, "give the file its name");
    return sync_folder_of(to);
}

void tn_file_discard(tn_file *f)
{
    if (!f) return;
    if (f->fd >= 0) close(f->fd);
    if (f->temporary) unlink(f->temp);
    tn_free(f);
}

tn_status tn_file_write(const char *path, const void *data, size_t n)
{
    tn_file *f = NULL;
    TN_TRY(tn_file_create(path, &f));
    tn_status st = tn_file_put(f, data, n);
    if (st) {
        tn_file_discard(f);
        return st;
    }
    return tn_file_publish(f);
}

tn_status tn_file_mkdirs(const char *path)
{
    char part[PATH_BYTES];
    size_t n = strlen(path);
    if (n >= sizeof part) {
        errno = ENAMETOOLONG;
        return tn_file_error(path, "make the folder");
    }
    for (size_t i = 1; i <= n; i++) {
        if (path[i] != '/' && path[i] != 0) continue;
        memcpy(part, path, i);
        part[i] = 0;
        if (tn_file_is_folder(part)) continue;
        /* another rank may be making the same folder */
        int bad = tn_fault_hit(TN_FAULT_FILE_MKDIR) || mkdir(part, 0777) != 0;
        if (bad && !tn_file_is_folder(part)) return tn_file_error(part, "make the folder");
    }
    return TN_OK;
}

bool tn_file_exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0;
}

bool tn_file_is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}
