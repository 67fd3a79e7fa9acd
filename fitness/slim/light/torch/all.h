// Stands in for <torch/all.h> on the light route.
#pragma once

#include <kb_light/torch.h>
