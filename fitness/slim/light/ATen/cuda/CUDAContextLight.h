// Stands in for <ATen/cuda/CUDAContextLight.h> on the light route.
#pragma once

#include <kb_light/cuda.h>
