// Stands in for <torch/types.h> on the slim route.
#pragma once

#include <kb_slim/all.h>
