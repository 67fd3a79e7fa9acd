// Stands in for <ATen/ATen.h> on the light route.
#pragma once

#include <kb_light/torch.h>
