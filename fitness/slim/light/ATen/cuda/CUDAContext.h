// Stands in for <ATen/cuda/CUDAContext.h> on the light route.
#pragma once

#include <kb_light/cuda.h>
