// Stands in for <torch/types.h> on the light route.
#pragma once

#include <kb_light/torch.h>
