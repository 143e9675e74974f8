/* ref.h - what each kernel computes, as plainly as it can be said.
 *
 * One source (ref_body.h), built for float (names end in _f) and for double (_d). The
 * double build judges the kernels and, by central differences, its own gradients. Slow,
 * full matrices, natural order of loops; the tests and `weft check` use it.
 *
 * Shapes and letters as in kernels.h. Matrices are packed unless an ld is given.
 * Gradients of inputs are "=", those of parameters "+=".
 */
#ifndef WEFT_KERNELS_REF_H
#define WEFT_KERNELS_REF_H

#include "kernels/kernels.h"

#define REAL      float
#define REF(name) ref_##name##_f
#include "kernels/ref/ref_list.h"
#undef REAL
#undef REF

#define REAL      double
#define REF(name) ref_##name##_d
#include "kernels/ref/ref_list.h"
#undef REAL
#undef REF

#endif
