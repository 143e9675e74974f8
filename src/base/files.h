/* files.h - the few things the program does with files and folders.
 *
 * Nothing is ever half written under its final name: a file is written whole to
 * "<name>.tmp", fsynced, and renamed.
 */
#ifndef WEFT_BASE_FILES_H
#define WEFT_BASE_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* All functions name the path and the system's reason in the error text (ST_IO). */

/* Reads a whole regular file; *data has one extra 0 byte after *bytes and is freed by the
 * caller with free(). NULL and 0 on failure. */
MUST_USE enum status file_read_all(const char *path, char **data, size_t *bytes);

/* Writes a whole file under its final name or not at all (tmp, fsync, rename). Of a link
 * its target is replaced; a device, pipe or folder of that name is an error. */
MUST_USE enum status file_write_all(const char *path, const void *data, size_t bytes);

MUST_USE enum status file_size(const char *path, uint64_t *bytes);
bool file_exists(const char *path); /* anything by that name */
/* Fails when there is something by that name and it is no regular file: opening a pipe
 * would wait for its other end. */
MUST_USE enum status file_check_regular(const char *path);
bool file_is_folder(const char *path);

/* mkdir -p. */
MUST_USE enum status folder_make(const char *path);
/* Whether files could be written there, after a folder_make, as far as rights and kinds
 * of what is there tell. */
MUST_USE enum status folder_check(const char *path);
/* fsyncs a folder, so that renames in it survive a power cut. */
MUST_USE enum status folder_sync(const char *path);
/* Removes a folder and what is in it; a missing one is not an error. */
MUST_USE enum status folder_remove(const char *path);

/* pwrite / pread of exactly `bytes` at `offset`, restarted when interrupted; `path` is
 * for the error text. A short file is ST_FORMAT with found and needed sizes. */
MUST_USE enum status fd_write_at(int fd, const char *path, const void *data, size_t bytes,
                                 uint64_t offset);
MUST_USE enum status fd_read_at(int fd, const char *path, void *data, size_t bytes,
                                uint64_t offset);

/* A growing list of strings, each owned by the list. */
struct path_list {
    char **paths;
    size_t count;
    size_t capacity;
};

MUST_USE enum status path_list_add(struct path_list *l, const char *path);
void path_list_release(struct path_list *l); /* leaves it empty and reusable */

/* Adds the regular files below `path` (itself when it is a file), in byte order of their
 * full names, hidden files and folders left out. `path` itself may be a link; below it
 * links to files count as files, while links to folders and links to nothing are left out
 * with a warning each. */
MUST_USE enum status path_list_add_tree(struct path_list *l, const char *path);

/* Adds what matches a glob pattern, sorted; no match is ST_IO and names the pattern. */
MUST_USE enum status path_list_add_glob(struct path_list *l, const char *pattern);

#endif
