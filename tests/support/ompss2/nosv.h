/* nosv.h - stands in for nOS-V's header where that is not installed; see nodes.h. */
#ifndef WEFT_TESTS_NOSV_H
#define WEFT_TESTS_NOSV_H

int nosv_init(void);
int nosv_shutdown(void);

#endif
