// Stands in for <pybind11/pybind11.h> on the slim route.
#pragma once

#include <kb_slim/all.h>
