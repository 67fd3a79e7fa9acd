// Stands in for <ATen/ATen.h> on the slim route.
#pragma once

#include <kb_slim/all.h>
