// Stands in for <ATen/Functions.h> on the light route.
#pragma once

#include <kb_light/torch.h>
