// Devices by name, GPUs of this machine included.
#pragma once

#include <string>

#include "attention/device.h"

namespace fovea::cuda {

// As fovea::find_device, and `cuda` or `cuda:N`: the GPU of that number. Throws DeviceError with
// what is missing if there is none.
Device find_device(const std::string& name);

int device_count();  // 0 without a driver

}  // namespace fovea::cuda
