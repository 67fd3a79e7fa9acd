// Stands in for <torch/python.h> on the slim route.
#pragma once

#include <kb_slim/all.h>
