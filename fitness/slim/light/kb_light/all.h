// Stands in for <torch/extension.h>; the bindings only where the source has them (nvcc pays 1.5 s for them).
#pragma once

#include <kb_light/torch.h>

#ifdef KB_LIGHT_BINDINGS
#include <kb_slim/module.h>
#endif
