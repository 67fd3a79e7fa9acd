// Stands in for <torch/python.h> on the light route.
#pragma once

#include <kb_light/all.h>
