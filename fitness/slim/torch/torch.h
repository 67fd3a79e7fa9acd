// Stands in for <torch/torch.h> on the slim route.
#pragma once

#include <kb_slim/all.h>
