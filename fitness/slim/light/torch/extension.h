// Stands in for <torch/extension.h> on the light route.
#pragma once

#include <kb_light/all.h>
