// Stands in for <ATen/Tensor.h> on the light route.
#pragma once

#include <kb_light/torch.h>
