// Stands in for <torch/csrc/utils/pybind.h> on the slim route.
#pragma once

#include <kb_slim/all.h>
