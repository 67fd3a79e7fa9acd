// Stands in for <ATen/cuda/Exceptions.h> on the light route.
#pragma once

#include <kb_light/cuda.h>
