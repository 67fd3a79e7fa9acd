// Stands in for <ATen/Functions.h> on the slim route.
#pragma once

#include <kb_slim/all.h>
