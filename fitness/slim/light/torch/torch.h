// Stands in for <torch/torch.h> on the light route.
#pragma once

#include <kb_light/torch.h>
