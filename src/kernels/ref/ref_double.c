/* SPDX-License-Identifier: MIT */
/* ref_double.c - the definitions of ref.h for double. */
#include "kernels/ref/ref.h"

#include <tgmath.h>

#define REAL      double
#define REF(name) ref_##name##_d
#include "kernels/ref/ref_body.h"
