// Empty on the slim route: torch's operator headers include <ATen/DeviceGuard.h> without using it, at the price of 1.7 s.
#pragma once
