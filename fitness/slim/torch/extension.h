// Stands in for <torch/extension.h> on the slim route.
#pragma once

#include <kb_slim/all.h>
