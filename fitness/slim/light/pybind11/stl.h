// Stands in for <pybind11/stl.h> on the light route.
#pragma once

#include <kb_light/all.h>
