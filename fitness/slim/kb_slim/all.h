// Stands in for <torch/extension.h> and the headers that candidates include beside it.
#pragma once

#include <kb_slim/torch.h>

#include <kb_slim/module.h>
