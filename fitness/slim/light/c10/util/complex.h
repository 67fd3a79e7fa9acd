// Stands in for <c10/util/complex.h> on the light route.
#pragma once

#include <torch/headeronly/util/complex.h>
