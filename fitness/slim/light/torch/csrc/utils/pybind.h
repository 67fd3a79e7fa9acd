// Stands in for <torch/csrc/utils/pybind.h> on the light route.
#pragma once

#include <kb_light/all.h>
