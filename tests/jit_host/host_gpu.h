// Engine jit on a GPU that is the host: its kernels are compiled by the host's compiler, and device
// cuda:0 is the driver of tests/host_gpu.
#pragma once

namespace fovea::on_host {

// Before anyone looks for a driver or makes a plan. Throws std::runtime_error.
void use_host_gpu();

}  // namespace fovea::on_host
