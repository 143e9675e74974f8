/* SPDX-License-Identifier: MIT */
/* ref_float.c - the definitions of ref.h for float. */
#include "kernels/ref/ref.h"

#include <tgmath.h>

#define REAL      float
#define REF(name) ref_##name##_f
#include "kernels/ref/ref_body.h"
