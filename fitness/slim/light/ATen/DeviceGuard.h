// Stands in for <ATen/DeviceGuard.h> on the light route: device_of stands in kb_light/torch.h.
#pragma once

#include <kb_light/torch.h>
