// Stands in for <c10/cuda/CUDAGuard.h> on the light route.
#pragma once

#include <kb_light/cuda.h>
