// Stands in for <torch/all.h> on the slim route.
#pragma once

#include <kb_slim/all.h>
