/* SPDX-License-Identifier: MIT */
/* Files are whole or absent; errors name the path. */
#include "base/files.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "scratch.h"

static void put(const char *name, const char *text)
{
    assert_int_equal(file_write_all(scratch(name), text, strlen(text)), ST_OK);
}

static void whole_files(void **state)
{
    const size_t sizes[] = {0, 1, 63, 4096, 100001};

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char *data = malloc(sizes[i] + 1);
        char *back;
        size_t bytes;
        uint64_t on_disk;

        assert_non_null(data);
        for (size_t j = 0; j < sizes[i]; j++)
            data[j] = (char)(j * 7);
        assert_int_equal(file_write_all(scratch("a"), data, sizes[i]), ST_OK);
        assert_int_equal(file_size(scratch("a"), &on_disk), ST_OK);
        assert_int_equal(on_disk, sizes[i]);
        assert_int_equal(file_read_all(scratch("a"), &back, &bytes), ST_OK);
        assert_int_equal(bytes, sizes[i]);
        assert_int_equal(back[bytes], 0);
        if (bytes > 0)
            assert_memory_equal(back, data, bytes);
        assert_false(file_exists(scratch("a.tmp")));
        free(back);
        free(data);
    }
}

static void links_are_written_through(void **state)
{
    char link[256], *data;
    size_t bytes;

    (void)state;
    put("target", "old");
    (void)snprintf(link, sizeof link, "%s", scratch("link"));
    assert_int_equal(symlink("target", link), 0);
    assert_int_equal(file_write_all(link, "new", 3), ST_OK);
    assert_int_equal(file_read_all(scratch("target"), &data, &bytes), ST_OK);
    assert_string_equal(data, "new");
    free(data);
    assert_int_equal(symlink("nowhere", scratch("lost")), 0);
    assert_int_equal(file_write_all(scratch("lost"), "x", 1), ST_IO);
}

static void failures_name_the_path(void **state)
{
    char *data = (char *)1;
    size_t bytes = 5;
    uint64_t size;

    (void)state;
    assert_int_equal(file_read_all(scratch("missing"), &data, &bytes), ST_IO);
    assert_non_null(strstr(fail_text(), "missing: cannot open: No such file"));
    assert_null(data);
    assert_int_equal(bytes, 0);
    assert_int_equal(file_read_all(scratch(""), &data, &bytes), ST_IO);
    assert_non_null(strstr(fail_text(), "not a regular file"));
    assert_int_equal(file_size(scratch("missing"), &size), ST_IO);
    assert_int_equal(file_write_all(scratch("no/such/folder"), "x", 1), ST_IO);
    assert_non_null(strstr(fail_text(), "no/such/folder"));
    put("plain", "x");
    assert_int_equal(folder_make(scratch("plain/below")), ST_IO);
    assert_int_equal(mkfifo(scratch("pipe"), 0600), 0);
    assert_int_equal(file_write_all(scratch("pipe"), "x", 1), ST_IO);
    assert_non_null(strstr(fail_text(), "pipe: not a regular file"));
    assert_int_equal(folder_check(scratch("plain/below")), ST_IO);
    assert_non_null(strstr(fail_text(), "plain is no folder"));
    assert_int_equal(folder_check(scratch("not/there/yet")), ST_OK);
    assert_false(file_exists(scratch("not")));
    assert_int_equal(folder_check("here"), ST_OK);
    assert_int_equal(folder_check("/"), access("/", W_OK) == 0 ? ST_OK : ST_IO);
    assert_non_null(strstr(fail_text(), "plain"));
    assert_int_equal(folder_make(""), ST_IO);
    assert_int_equal(folder_sync(scratch("missing")), ST_IO);
}

/* A write that fails leaves the file that was there, and nothing beside it. */
static void failed_write_keeps_the_old(void **state)
{
    char *data;
    size_t bytes;

    (void)state;
    put("kept", "old");
    /* The temporary name is taken by a folder. */
    assert_int_equal(folder_make(scratch("kept.tmp")), ST_OK);
    assert_int_equal(file_write_all(scratch("kept"), "new", 3), ST_IO);
    assert_int_equal(folder_remove(scratch("kept.tmp")), ST_OK);
    assert_int_equal(file_read_all(scratch("kept"), &data, &bytes), ST_OK);
    assert_string_equal(data, "old");
    free(data);
    /* The final name is. */
    assert_int_equal(folder_make(scratch("taken")), ST_OK);
    assert_int_equal(file_write_all(scratch("taken"), "new", 3), ST_IO);
    assert_true(file_is_folder(scratch("taken")));
    assert_false(file_exists(scratch("taken.tmp")));
}

static void places_in_files(void **state)
{
    char back[8] = "";
    int fd = open(scratch("at"), O_RDWR | O_CREAT | O_TRUNC, 0666);

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(fd_write_at(fd, "at", "abcdef", 6, 100), ST_OK);
    assert_int_equal(fd_write_at(fd, "at", "XY", 2, 102), ST_OK);
    assert_int_equal(fd_read_at(fd, "at", back, 6, 100), ST_OK);
    assert_string_equal(back, "abXYef");
    assert_int_equal(fd_read_at(fd, "at", back, 6, 103), ST_FORMAT);
    assert_non_null(strstr(fail_text(), "at: file ends at byte 106, 3 more needed"));
    close(fd);
    assert_int_equal(fd_read_at(fd, "at", back, 1, 0), ST_IO);
    assert_int_equal(fd_write_at(fd, "at", back, 1, 0), ST_IO);
}

static void folders(void **state)
{
    (void)state;
    assert_int_equal(folder_make(scratch("x/y/z/")), ST_OK);
    assert_int_equal(folder_make(scratch("x/y/z")), ST_OK);
    assert_true(file_is_folder(scratch("x/y/z")));
    assert_int_equal(folder_sync(scratch("x/y")), ST_OK);
    put("x/y/f", "1");
    put("outside", "kept");
    /* A link is removed, not what it points at. */
    assert_int_equal(symlink(scratch("outside"), scratch("x/link")), 0);
    assert_int_equal(folder_remove(scratch("x")), ST_OK);
    assert_false(file_exists(scratch("x")));
    assert_true(file_exists(scratch("outside")));
    assert_int_equal(folder_remove(scratch("x")), ST_OK);
}

static void lists(void **state)
{
    struct path_list l = {0};

    (void)state;
    assert_int_equal(folder_make(scratch("tree/b")), ST_OK);
    assert_int_equal(folder_make(scratch("tree/.hidden")), ST_OK);
    put("tree/c.txt", "");
    put("tree/b/a.txt", "");
    put("tree/B.txt", "");
    put("tree/.dot", "");
    put("tree/.hidden/x", "");
    assert_int_equal(path_list_add(&l, "first"), ST_OK);
    assert_int_equal(path_list_add_tree(&l, scratch("tree")), ST_OK);
    assert_int_equal(l.count, 4);
    assert_string_equal(l.paths[0], "first");
    assert_string_equal(l.paths[1], scratch("tree/B.txt"));
    assert_string_equal(l.paths[2], scratch("tree/b/a.txt"));
    assert_string_equal(l.paths[3], scratch("tree/c.txt"));
    path_list_release(&l);
    assert_int_equal(l.count, 0);
    assert_int_equal(path_list_add_tree(&l, scratch("tree/c.txt")), ST_OK);
    assert_int_equal(path_list_add_glob(&l, scratch("tree/*.txt")), ST_OK);
    assert_int_equal(l.count, 3);
    assert_string_equal(l.paths[2], scratch("tree/c.txt"));
    assert_int_equal(path_list_add_glob(&l, scratch("tree/*.bin")), ST_IO);
    assert_non_null(strstr(fail_text(), "tree/*.bin"));
    assert_int_equal(path_list_add_tree(&l, scratch("nowhere")), ST_IO);
    assert_int_equal(l.count, 3);
    for (int i = 0; i < 100; i++)
        assert_int_equal(path_list_add(&l, "many"), ST_OK);
    assert_int_equal(l.count, 103);
    path_list_release(&l);
}

/* Links to files are read; those to folders and to nothing are not, nor is a circle
 * walked. */
static void links_in_trees(void **state)
{
    struct path_list l = {0};

    (void)state;
    assert_int_equal(folder_make(scratch("links/b")), ST_OK);
    put("links/b/file", "");
    assert_int_equal(symlink("b/file", scratch("links/a")), 0);
    assert_int_equal(symlink("nowhere", scratch("links/dangling")), 0);
    assert_int_equal(symlink("..", scratch("links/b/circle")), 0);
    assert_int_equal(symlink("self", scratch("links/self")), 0);
    assert_int_equal(symlink("links", scratch("root")), 0);
    assert_int_equal(path_list_add_tree(&l, scratch("root//")), ST_OK);
    assert_int_equal(l.count, 2);
    assert_string_equal(l.paths[0], scratch("root/a"));
    assert_string_equal(l.paths[1], scratch("root/b/file"));
    assert_int_equal(path_list_add_tree(&l, scratch("links/dangling")), ST_IO);
    assert_int_equal(path_list_add_tree(&l, scratch("links/a")), ST_OK);
    assert_int_equal(l.count, 3);
    path_list_release(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_files),
        cmocka_unit_test(failures_name_the_path),
        cmocka_unit_test(links_are_written_through),
        cmocka_unit_test(failed_write_keeps_the_old),
        cmocka_unit_test(places_in_files),
        cmocka_unit_test(folders),
        cmocka_unit_test(lists),
        cmocka_unit_test(links_in_trees),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);

    return folder_remove(scratch("")) == ST_OK ? failed : 1;
}
