// Stands in for <pybind11/pybind11.h> on the light route.
#pragma once

#include <kb_light/all.h>
