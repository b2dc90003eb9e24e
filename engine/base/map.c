#include "engine/base/map.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/fault.h"
#include "engine/base/file.h"

static tn_status map_fd(int fd, const char *path, tn_map *out)
{
    struct stat info;
    if (fstat(fd, &info) != 0) return tn_file_error(path, "open");
    if (S_ISDIR(info.st_mode)) {
        errno = EISDIR;
        return tn_file_error(path, "map");
    }
    if (!S_ISREG(info.st_mode)) TN_FAIL(TN_BAD_INPUT, "%s: cannot map: not a regular file", path);
    if (info.st_size == 0) { /* the system refuses to map nothing */
        *out = (tn_map){.data = "", .n = 0};
        return TN_OK;
    }
    void *p = MAP_FAILED;
    if (!tn_fault_hit(TN_FAULT_MAP))
        p = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) return tn_file_error(path, "map");
    *out = (tn_map){.data = p, .n = info.st_size};
    return TN_OK;
}

tn_status tn_map_open(const char *path, tn_map *out)
{
    int fd = tn_fault_hit(TN_FAULT_FILE_OPEN) ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return tn_file_error(path, "open");
    tn_status st = map_fd(fd, path, out);
    close(fd);
    return st;
}

void tn_map_close(tn_map *map)
{
    if (map->n) munmap((void *)(uintptr_t)map->data, (size_t)map->n);
    *map = (tn_map){0};
}
