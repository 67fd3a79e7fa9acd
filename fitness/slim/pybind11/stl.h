// Stands in for <pybind11/stl.h> on the slim route.
#pragma once

#include <kb_slim/all.h>
