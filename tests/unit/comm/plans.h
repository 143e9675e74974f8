/* plans.h - grids and plans for the tests of src/comm; any failure is a failed assertion.
 * Include cmocka.h first. */
#ifndef WEFT_TESTS_PLANS_H
#define WEFT_TESTS_PLANS_H

#include "comm/plan.h"

/* The plan of `options` over a flat grid of so many ranks; options->grid is not read. */
static inline struct plan plan_of(const struct plan_slice *slices, size_t n, int ranks,
                                  struct plan_options options)
{
    struct grid grid;
    struct plan plan;

    assert_int_equal(grid_init(&grid, ranks, NULL, SCHEDULE_FLAT), ST_OK);
    options.grid = &grid;
    assert_int_equal(plan_init(&plan, slices, n, &options), ST_OK);
    grid_release(&grid);
    return plan;
}

#endif
